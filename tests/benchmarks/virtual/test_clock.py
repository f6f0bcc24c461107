"""On the virtual clock, real Dask runs without waiting."""

import asyncio
import time

import pytest
from driving import virtually

from benchmarks import virtual


@virtually
async def test_tasks_take_their_virtual_time_on_real_workers():
    async with virtual.Cluster(threads=[2, 2]) as cluster, cluster.client() as client:
        begin = virtual.now()
        futures = client.map(virtual.work, range(8), seconds=600.0, result=7, pure=False)
        assert await client.gather(futures) == [7] * 8
        assert virtual.now() - begin == pytest.approx(1200, abs=1)


def test_modules_that_bound_the_clock_read_the_virtual_one():
    from distributed import metrics

    async def main():
        await asyncio.sleep(5)
        return [time.time(), time.monotonic(), time.perf_counter(), metrics.time()]

    assert virtual.run(main) == pytest.approx([virtual.BEGINNING + 5] * 4)
    assert abs(metrics.time() - time.time()) < 1
    assert time.time() > 1e9  # the real one again


@virtually
async def test_sleeping_stalls_the_loop_in_virtual_time():
    begin = virtual.now()
    time.sleep(3)
    assert virtual.now() - begin == pytest.approx(3)


def test_a_run_that_cannot_go_on_says_so():
    async def main():
        await asyncio.get_running_loop().create_future()

    with pytest.raises(TimeoutError):
        virtual.run(main, limit=60)


@virtually
async def test_sized_values_weigh_what_they_say():
    async with virtual.Cluster(threads=[1]) as cluster, cluster.client() as client:
        future = client.submit(virtual.work, nbytes=10**9, result="x")
        assert await future == virtual.Sized("x", 10**9)
        assert cluster.scheduler.tasks[future.key].nbytes == pytest.approx(10**9)


@virtually
async def test_one_virtual_run_at_a_time():
    with pytest.raises(RuntimeError, match="active already"):
        virtual.run(asyncio.sleep, 0)


@virtually
async def test_timers_that_are_set_again_and_again_just_ahead_do_not_stop_the_clock():
    """As several of Dask's batched sends do, whose deadlines are subject to rounding."""
    loop = asyncio.get_running_loop()
    deadline = virtual.now() + 1e-10
    turns = 0

    def again(ended):
        nonlocal turns
        turns += 1
        if virtual.now() >= deadline or turns > 1000:
            ended.set_result(None)
        else:
            loop.call_soon(loop.call_later, 1e-12, again, ended)

    several = [loop.create_future() for _ in range(3)]
    for hops, ended in enumerate(several):
        for _ in range(hops):
            await asyncio.sleep(0)
        again(ended)
    await asyncio.gather(*several)
    assert turns < 20
