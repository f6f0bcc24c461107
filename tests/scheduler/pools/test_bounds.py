"""Records of tasks are bounded by the tasks that are there, not by those that were."""

import asyncio
from types import SimpleNamespace

import numpy as np
import pytest
from driving import jobs, map_in_each, on_virtual, work

from dask_slaq.core.dispatch import DurationEstimate, Handover, JobQueue, Ready
from dask_slaq.core.dispatch.ready import FEW_ENTRIES
from dask_slaq.scheduler.pools.durations import MOST_GROUPS, Durations
from dask_slaq.scheduler.pools.slots import SentTasks


@pytest.mark.slow
@on_virtual([1] * 6, prefetch="1s")
async def test_epochs_beside_long_tasks_leave_one_timer_per_worker(client, cluster, plugin):
    """Each epoch looks at all workers, and asks to look again when their tasks should end."""
    async with jobs(client, "a", "b"):
        for seconds in (100.0, 3600.0):
            futures = map_in_each(client, "ab", work, [seconds] * 12)
            if seconds == 100.0:
                await client.gather(futures)  # now it is known how long they take
        await asyncio.sleep(200)  # epochs
        assert len(plugin.pools.rounds._timers) <= 6 + 1  # timers
        await client.cancel(futures)


def test_compute_times_are_kept_of_the_names_that_were_seen_last():
    """A program that runs for weeks may name its tasks anew in each step."""
    everywhere = Durations()
    of_job = Durations(everywhere)
    often = SimpleNamespace(prefix=SimpleNamespace(name="often"))
    for k in range(3 * MOST_GROUPS):
        of_job.like(SimpleNamespace(prefix=SimpleNamespace(name=f"step-{k}")), 8).observe(1.0)
        of_job.like(often, 8).observe(2.0)
    assert max(len(of_job._groups), len(everywhere._groups)) <= MOST_GROUPS
    assert of_job.like(often, 8).mean == everywhere.like(often, 8).mean == 2.0


def test_entries_behind_a_task_that_stays_first_go_as_well():
    ready = Ready()
    ready.push(_task(None, 0, ("a", "b")))
    for count in range(1, 1000):
        task = _task(None, count, ("a", "b"))
        ready.push(task)
        ready.pop(task)  # sent to one of its preferred
    assert max(len(heap) for heap in ready._heaps.values()) <= 2 + FEW_ENTRIES + 1


def test_tasks_that_are_stolen_leave_nothing_on_a_worker_that_is_always_busy():
    busy = {"processing": range(9), "long_running": (), "resources": {}, "used_resources": {}}
    ws = SimpleNamespace(address="w", nthreads=1, **busy)
    sent, rng = SentTasks(0.0), np.random.default_rng(0)
    sent.put(_task("always", 0), ws)
    tasks = []
    for k in range(2000):
        tasks.append(_task(k, rng.random()))
        sent.put(tasks[-1], ws)
        if k >= 5:
            sent.by_worker["w"].remove(tasks[k - 5], 0.0)
    assert len(sent.by_worker["w"].queue) <= 2 * 6 + FEW_ENTRIES
    assert len(sent) == 6


def _task(ts, order, preferred=()):
    rank = False, (order,), order
    return Handover(
        JobQueue("a"), ts, DurationEstimate(), rank, preferred=preferred, order=(order,)
    )
