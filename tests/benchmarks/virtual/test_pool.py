"""The result of a virtual run does not depend on its process or on earlier runs."""

from __future__ import annotations

import asyncio
import os
import sys

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
    """Process, and the transitions of a run."""
    return os.getpid(), virtual.run(main, jobs, seed=seed)


def after_others(seed):
    """The same in a process that has large data, and that ran others."""
    junk = [bytearray(n) for n in range(0, 60_000, 7)]
    for other in (seed + 1, seed + 2):
        digest(other, ("three",))
    return len(junk), digest(seed)[1]


def hashing():
    return sys.flags.hash_randomization, hash("a"), os.environ["PYTHONHASHSEED"]


def test_runs_are_the_same_in_every_process_and_order():
    with virtual.pool(2) as pool:
        first = [pool.submit(digest, seed) for seed in (0, 1, 2, 0)]
        last = pool.submit(after_others, 0)
        found = [each.result()[1] for each in first]
    with virtual.pool(1) as pool:
        again = [each[1] for each in pool.map(digest, (2, 1, 0))]
    assert found[:3] == again[::-1]
    assert found[0] == found[3] == last.result()[1]
    assert len({each[1] for each in again}) == 3, "seeds differ"


def test_hashes_are_those_of_seed_zero_and_the_environment_here_stays():
    before = dict(os.environ)
    with virtual.pool(1) as one, virtual.pool(1) as two:
        found = [pool.submit(hashing).result() for pool in (one, two)]
    assert found[0] == found[1] and found[0][::2] == (0, "0")
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
