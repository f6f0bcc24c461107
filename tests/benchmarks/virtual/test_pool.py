"""The result of a virtual run does not depend on its process or on earlier runs."""

import asyncio
import os
import sys

import pytest

import dask_slaq as slaq
from benchmarks import virtual

BYTES = 2**20
WORKERS = 4


async def train(client, name):
    """Iterate over data of which Dask makes copies, and drops some."""
    async with slaq.job(name, client=client) as job:
        parts = client.map(virtual.work, range(10), nbytes=BYTES, pure=False)
        for k in range(7):
            tasks = [client.submit(virtual.work, p, seconds=0.1, pure=False) for p in parts]
            await client.submit(virtual.work, *tasks, pure=False)
            job.report(1 / (k + 1))


async def main(jobs):
    transitions = virtual.Transitions()
    async with (
        virtual.Cluster(threads=[1] * WORKERS) as cluster,
        cluster.client() as one,
        cluster.client() as two,
    ):
        await one.register_plugin(slaq.SlaqPlugin())
        cluster.scheduler.add_plugin(transitions)
        await asyncio.gather(*map(train, [one, two], jobs))
    return transitions.count, transitions.digest, virtual.now()


def digest(seed, jobs=("one", "two")):
    """The transitions of a run: their number, a digest, and the time of the last."""
    return virtual.run(main, jobs, seed=seed)


def after_others(seed):
    """The same in a process that has large data, and that ran others."""
    junk = [bytearray(n) for n in range(0, 60_000, 7)]
    digest(seed + 1, ("three",))
    return len(junk), digest(seed)


def hashing():
    return sys.flags.hash_randomization, hash("a"), os.environ["PYTHONHASHSEED"]


@pytest.mark.slow
def test_runs_are_the_same_in_every_process_and_order():
    before = dict(os.environ)
    with virtual.pool(2) as pool:
        first = [pool.submit(digest, seed) for seed in (0, 1, 0)]
        last = pool.submit(after_others, 0)
        found = [each.result() for each in first]
        hashed = pool.submit(hashing).result()
    with virtual.pool(1) as pool:
        again = [pool.submit(digest, seed).result() for seed in (1, 0)]
        assert pool.submit(hashing).result() == hashed
    assert found[:2] == again[::-1]
    assert found[0] == found[2] == last.result()[1]
    assert found[0] != found[1], "seeds differ"
    assert found[0][0] > 1000
    assert hashed[::2] == (0, "0")
    assert dict(os.environ) == before


def test_a_worker_takes_memory_for_its_own_data():
    async def main():
        async with virtual.Cluster(threads=[1, 1]) as cluster, cluster.client() as client:
            a, b = cluster.workers
            held = client.submit(virtual.work, nbytes=50 * BYTES, workers=[a.address])
            await held
            await asyncio.gather(a.heartbeat(), b.heartbeat())
            memory = [cluster.scheduler.workers[w.address].memory for w in (a, b)]
            return memory[0].process - memory[1].process, memory[0].managed

    more, managed = virtual.run(main)
    assert more == managed >= 50 * BYTES
