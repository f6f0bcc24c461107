"""Memory that the results of owners hold on the cluster, under ``max-memory``."""

from __future__ import annotations

import asyncio
import contextlib
import time

import dask
import numpy as np
import pytest
from distributed import Client, Future, wait
from distributed.utils_test import captured_logger, inc
from driving import (
    PATIENCE,
    alerts_of,
    jobs,
    on_virtual_clock,
    ready,
    state_of,
    tasks_of,
    until,
    with_plugin,
)

import dask_slaq as slaq
from benchmarks import virtual

FOUR = [("127.0.0.1", 2)] * 2
MB = 1_000_000


def block(k, *inputs, megabytes=1.0):
    """A task that loads, or makes of its inputs, a block of data."""
    return np.ones(int(megabytes * MB / 8))


def total(x):
    return float(x.sum())


async def load(k, megabytes=1.0):
    await virtual.work(seconds=1.0)
    return np.ones(int(megabytes * MB / 8))


async def use(x):
    await virtual.work(seconds=1.0)
    return float(x.sum())


class Peak:
    """The most bytes of results on a cluster, by names of tasks, and how far counts were off."""

    def __init__(self, cluster, plugin, owner="ann"):
        self.scheduler, self.plugin, self.owner = cluster.scheduler, plugin, owner
        self.most = self.off = 0.0

    async def watch(self):
        while True:
            await asyncio.sleep(0.1)
            tasks = self.scheduler.tasks.values()
            mine = [ts for ts in tasks if ts.state == "memory" and str(ts.key).startswith("ann")]
            held = sum(ts.nbytes for ts in mine)
            self.most = max(self.most, held)
            if (memory := self.plugin.pools.tracker.held) is not None:
                counted = memory.of(self.owner).held
                self.off = max(self.off, abs(counted - held) / max(held, MB))


def peak_of(most, *, per_thread=MB, blocks=40, **settings):
    """Load blocks of a megabyte and sum each, on eight threads; the peak, errors and seconds."""

    async def scenario(client, cluster, plugin):
        for ws in cluster.scheduler.workers.values():
            ws.memory_limit = int(per_thread * ws.nthreads)
        peak, begin = Peak(cluster, plugin, **settings), virtual.now()
        async with (
            slaq.job("a", owner="physics/ann", client=client),
            slaq.job("b", owner="bob", client=client),
        ):
            with tasks_of("a"):
                loaded = client.map(load, range(blocks), pure=False, key="ann-load")
                used = client.map(use, loaded, pure=False, key="ann-use")
                del loaded
            watching = asyncio.create_task(peak.watch())
            await client.gather(used)
            watching.cancel()
        return peak.most / MB, peak.off, virtual.now() - begin

    owners = {most[0]: {"max-memory": most[1]}, "physics/eve": {}}
    return on_virtual_clock(scenario, [2] * 4, owners=owners)


@pytest.mark.parametrize("owner", ["physics/ann", "physics"])
@pytest.mark.parametrize(("most", "seconds"), [(4, 30), (1.5, 82)])
def test_results_stay_below_the_limit_and_what_frees_them_goes_on(owner, most, seconds):
    of = owner if "/" in owner else f"{owner}/"
    peak, off, took = peak_of((owner, f"{most} MB"), owner=of)
    assert peak <= most
    assert off < 0.01
    assert took <= seconds


def test_a_limit_that_is_never_reached_costs_nothing():
    assert (
        peak_of(("physics/ann", "1 GB"), owner="physics/ann")[2]
        <= peak_of(("eve", "1 kB"), owner="eve")[2] + 0.1
    )


@with_plugin(FOUR, owners={"ann": {"max-memory": "3 MB"}, "bob": {}}, epoch="20ms")
async def test_an_owner_whose_results_are_kept_is_told_that_nothing_goes_on(c, s, plugin, a, b):
    alerts = await alerts_of(c, s)
    with captured_logger("dask_slaq") as log:
        async with jobs(c, "a", owner="ann"), slaq.job("b", owner="bob", client=c):
            with tasks_of("a"):
                kept = c.map(block, range(10), pure=False)
            await until(lambda: any(alert["event"] == "blocked" for alert in alerts), 20)
            why = "runs nothing that would free some"
            assert ready(plugin, "a") >= 7
            held = sum(ts.nbytes for ts in s.tasks.values() if ts.state == "memory")
            assert held <= 3.01 * MB
            standing = (await slaq.status(c))["owners"]["ann"]
            assert standing["max_memory"] == 3 * MB
            assert abs(standing["memory"] - held) <= 0.01 * held
            found = await slaq.explain("a", client=c)
            assert (
                why in found["reason"]
                and "results of 3 MB, of a max-memory of 3 MB" in found["reason"]
            )
            assert "a higher max-memory of its owner" in found["would_change"][0]
            await until(lambda: why in log.getvalue(), 20)
            # Others go on, as does what works on her results and is small.
            with tasks_of("b"):
                assert len(await c.gather(c.map(inc, range(20), pure=False))) == 20
            first = [future for future in kept if future.done()]
            with tasks_of("a"):
                assert await c.submit(total, first[0], pure=False) == MB / 8
                # Tasks of a name whose results are tiny go on, too.
                again = [c.submit(total, np.ones(k + 1), pure=False) for k in range(3)]
                assert await c.gather(again) == [1.0, 2.0, 3.0]
                # What adds as much as it uses waits, as nothing is freed.
                more = c.submit(block, 1, first[0], pure=False)
                await state_of(s, more, "no-worker")
            await slaq.set_owner("ann", max_memory="40 MB", client=c)
            assert len(await c.gather([*kept, more])) == 11
        assert sum(alert["event"] == "blocked" for alert in alerts) == 1
    assert plugin.failed is None


@with_plugin(FOUR, owners={"ann": {"max-memory": "3 MB"}, "bob": {}}, epoch="20ms")
async def test_results_that_are_released_make_room(c, s, plugin, a, b):
    async with slaq.job("a", owner="ann", client=c), slaq.job("b", owner="bob", client=c):
        with tasks_of("a"):
            kept = c.map(block, range(6), pure=False)
            await until(lambda: sum(future.done() for future in kept) >= 2)
            twice = [c.submit(block, 1, future, pure=False) for future in kept]
        await until(lambda: plugin.pools.tracker.held.of("ann").stuck)
        kept.clear()  # the second half of them is freed only if the tasks that use them go on
        assert len(await c.gather(c.map(total, twice, pure=False))) == 6


@with_plugin(FOUR, owners={"ann": {"max-memory": "2 MB"}, "bob": {}}, epoch="20ms")
async def test_tasks_that_share_tiny_metadata_wait_as_roots_do(c, s, plugin, a, b):
    async with slaq.job("a", owner="ann", client=c), slaq.job("b", owner="bob", client=c):
        with tasks_of("a"):
            store = c.submit(inc, 1, pure=False)
            kept = c.map(block, range(8), [store] * 8, pure=False)
        await until(lambda: plugin.pools.tracker.held.of("ann").stuck)
        assert sum(ts.nbytes for ts in s.tasks.values() if ts.state == "memory") <= 2.01 * MB
        await c.cancel(kept)


def makes_inside(k):
    from distributed import worker_client

    with worker_client() as client:
        return client.gather(client.map(len, client.map(block, range(k), pure=False)))


@with_plugin(FOUR, owners={"ann": {"max-memory": "3 MB"}, "bob": {}}, epoch="20ms")
async def test_two_owners_do_not_get_around_it(c, s, plugin, a, b):
    """By names of machines, by clients, by jobs within others, by whose futures, by scatter."""

    def held():
        return plugin.pools.tracker.held.of("ann")

    def stored():
        return sum(ts.nbytes for ts in s.tasks.values() if ts.state == "memory")

    async def settled():
        await until(lambda: held().stuck, 20)
        assert abs(stored() - held().held) <= 0.01 * stored()

    async with contextlib.AsyncExitStack() as stack:
        with dask.config.set({"slaq.owner": "ann@lab"}):
            lab = await stack.enter_async_context(Client(s.address, asynchronous=True))
            await stack.enter_async_context(slaq.job("lab", client=lab))
        with dask.config.set({"slaq.owner": "ann@home"}):
            home = await stack.enter_async_context(Client(s.address, asynchronous=True))
            async with slaq.job("short", client=home):
                pass
        with dask.config.set({"slaq.owner": "bob"}):
            his = await stack.enter_async_context(Client(s.address, asynchronous=True))
            await stack.enter_async_context(slaq.job("of bob", client=his))
        await stack.enter_async_context(slaq.job("desk", owner="ann@desk", client=c))
        # By three machines, outside of jobs, in the name of another job, and from within a task.
        with tasks_of("desk"):
            desk = c.map(block, range(5), pure=False)
        with tasks_of("lab"):
            there = lab.map(block, range(5), pure=False)
        outside = home.map(block, range(5), pure=False)
        with tasks_of("of bob"):
            disguised = home.map(block, range(5), pure=False)
            inside = home.submit(makes_inside, 5, pure=False)
        await settled()
        assert stored() <= 3.01 * MB
        # Her results count for her while another client holds them.
        mine = [*desk, *there, *outside, *disguised]
        done = [future for future in mine if future.done()]
        taken = [Future(future.key, his) for future in done]
        keys = [future.key for future in done]
        his._send_to_scheduler({"op": "client-desires-keys", "keys": keys, "client": his.id})
        await until(lambda: all(len(s.tasks[future.key].who_wants) == 2 for future in done))
        for future in done:
            future.release()
        await until(lambda: all(len(s.tasks[future.key].who_wants) == 1 for future in taken))
        await settled()
        assert held().held >= 2 * MB
        # What she scatters counts, and his does not.
        data = await lab.scatter(np.ones(int(MB / 8)), hash=False)
        other = await his.scatter(np.ones(int(MB / 8)), hash=False)
        await until(lambda: abs(stored() - MB - held().held) <= 0.01 * MB, 20)
        with tasks_of("of bob"):
            assert await his.submit(total, other, pure=False) == MB / 8
        await slaq.set_owner("ann", max_memory=float("inf"), client=c)
        assert await inside == [MB / 8] * 5
        await asyncio.gather(*(client.cancel(mine) for client in (c, lab, home)))
        await asyncio.gather(*(future.cancel() for future in (data, other, *taken)))
    assert plugin.failed is None


@with_plugin([("", 2)], owners={"ann": {"max-memory": 100e6}}, worker_kwargs={"memory_limit": 2e9})
async def test_a_large_result_of_a_name_does_not_keep_its_smaller_ones_waiting(c, s, plugin, a):
    async with slaq.job("one", owner="ann", client=c):
        for size in (150_000_000, 1_000_000):
            assert len(await c.submit(bytes, size, pure=False)) == size
        held = await c.submit(bytes, 60_000_000, pure=False).result(timeout=PATIENCE)
        kept = c.submit(bytes, 60_000_000, key="bytes-kept")
        await wait(kept, timeout=PATIENCE)
        futures = c.map(bytes, [1_000_000] * 20, pure=False)
        await wait(futures, timeout=PATIENCE)
    assert len(held) == 60_000_000


@pytest.mark.parametrize("most", [1e6, 10e9])
def test_models_of_a_search_take_turns_whatever_is_held(most):
    owners = {"ann": {"max-memory": most}}

    @with_plugin([("", 2)], owners=owners, worker_kwargs={"memory_limit": 2e9})
    async def run(c, s, plugin, a):
        async with slaq.search("grid", steps=8, client=c, owner="ann"):
            futures = c.map(train, range(8), pure=False)
            await wait(futures, timeout=PATIENCE)

    run()


def train(number):
    for step in range(8):
        time.sleep(0.01)
        slaq.report(number + 1 / (step + 1))
    return number


@with_plugin([("", 2)], owners={"ann": {"max-memory": 3 * MB}}, worker_kwargs={"memory_limit": 2e9})
async def test_what_is_freed_starts_what_waits_at_once(c, s, plugin, a):  # epochs are hours long
    async with slaq.job("one", owner="ann", client=c):
        held = [c.submit(block, k, megabytes=1.4) for k in range(2)]
        await wait(held)
        waits = c.submit(block, 2, megabytes=1.4)
        await until(lambda: waits.key in s.tasks and s.tasks[waits.key].state == "no-worker")
        del held
        await wait(waits, timeout=PATIENCE)
