"""Adaptive clusters: only usable tasks ask for workers, and a job's data keeps its workers."""

import pytest
from driving import (
    HELD,
    gen_cluster,
    held_tasks,
    in_job,
    inside,
    jobs,
    let_end,
    start_plugin,
    until,
    wait_for,
    with_plugin,
)


@with_plugin([1], prefetch=0)
async def test_a_paused_job_asks_for_no_workers(c, s, plugin, a):
    async with jobs(c, "a"):
        inside(plugin).pause("a", True)
        futures = await held_tasks(c, plugin, "a", 30, run=0)
        assert s.adaptive_target(target_duration=1) <= 1
        inside(plugin).pause("a", False)
        assert s.handlers["adaptive_target"](target_duration=1) > 5
        await let_end(c, futures)


TWO_GPUS = {"ann": {"max-resources": {"GPU": 2}}}


@pytest.mark.parametrize(
    ("of_job", "needs", "asked"),
    [
        ({"max_share": 2}, {}, {2}),
        ({}, {"resources": {"TPU": 1}}, {0, 1}),  # which no worker has
        ({"owner": "ann"}, {"resources": {"GPU": 1}}, {0, 1, 2}),
    ],
)
@with_plugin([1], prefetch=0, lend=False, owners=TWO_GPUS, worker_kwargs={"resources": {"GPU": 4}})
async def test_tasks_that_no_more_workers_may_run_ask_for_none(
    c, s, plugin, a, of_job, needs, asked
):
    async with jobs(c, "a", "b", **of_job):
        futures = in_job(c, "a").map(wait_for, ["go"] * 30, pure=False, **needs)
        await until(lambda: sum(ts.state in HELD for ts in s.tasks.values()) >= 28)
        assert s.adaptive_target(target_duration=0.1) in asked
        del futures


@pytest.mark.parametrize("keep", ["1h", 0])
@gen_cluster(client=True, nthreads=[1, 1, 1])
async def test_data_keeps_workers_for_a_bounded_time(c, s, *workers, keep):
    await start_plugin(c, s, keep_workers=keep)
    async with jobs(c, "a"):
        futures = in_job(c, "a").map(lambda x: x, range(9))
        await c.gather(futures)
        with_data = {ws.address for ws in s.workers.values() if ws.has_what}
        closed = set(s.workers_to_close(n=3))
        assert closed == (set(s.workers) - with_data if keep else set(s.workers))
    assert len(s.workers_to_close(n=3)) == 3  # no job keeps any
