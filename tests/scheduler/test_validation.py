"""An invalid request or report, or one for another client's job, affects its sender alone."""

import asyncio
from time import monotonic

import numpy as np
import pytest
from distributed.utils_test import captured_logger, inc
from driving import (
    assert_nothing_left,
    gen_cluster,
    in_job,
    inside,
    jobs,
    on_virtual,
    start_plugin,
    until,
    with_plugin,
)

import dask_slaq as slaq
from dask_slaq.client.connection import request
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import MOST_NAME_CHARACTERS, shown
from dask_slaq.scheduler.requests import validation as edge

HUGE = "x" * 2_000_000

WRONG = [
    *({"name": name} for name in (3, ["b"], "", "other:me", HUGE)),
    *({"resources": given} for given in ("GPU", {"GPU": "1"}, {"GPU": -1}, [HUGE])),
    *({"gang": gang} for gang in ("yes", 1)),
    *({"run": run} for run in (3, HUGE)),
    *({"weight": HUGE}, {"max_share": "1"}, {"max_iter": b"3"}),
    *({"reports": False}, {"more": 1}, {HUGE: 1}),
]


@with_plugin([1])
async def test_a_job_that_may_not_be_opened_is_refused_at_its_caller_alone(c, s, plugin, a):
    async with jobs(c, "a") as (job,):
        for wrong in WRONG:
            told = captured_logger("distributed", propagate=False)
            with told as log, pytest.raises(InvalidSetting) as error:
                await request(c, "slaq_open", **{"name": "b", "client": c.id, **wrong})
            assert len(str(error.value)) < 400 and len(log.getvalue()) < 20_000, shown(wrong)
            known = set(inside(plugin).jobs), set(inside(plugin).pools), set(inside(plugin).reports)
            assert known == ({"a"}, {"a"}, {"a"}), shown(wrong)
        plugin.run_once()
        job.report(1.0)
        assert await in_job(c, "a").submit(inc, 1) == 2


@with_plugin([1])
async def test_what_may_be_given_is_taken(c, s, plugin, a):
    given = {"weight": np.float64(2.0), "max_iter": np.int64(5), "gang": True, "resources": None}
    await request(c, "slaq_open", name="x" * MOST_NAME_CHARACTERS, client=c.id, **given)
    ((name, job),) = inside(plugin).jobs.items()
    assert (job.weight, inside(plugin).pool(name).gang) == (2.0, True)
    await request(c, "slaq_close", name=name, client=c.id)
    async with slaq.job("gang", gang=True, client=c), slaq.job("none", client=c):
        pools = inside(plugin).pools
        assert [pools[name].gang for name in ("gang", "none")] == [True, False]


@gen_cluster(client=True, nthreads=[1])
async def test_a_plugin_that_failed_can_be_replaced_while_jobs_run(c, s, a):
    first = await start_plugin(c, s)
    async with slaq.job("a", client=c) as old, slaq.job("b", client=c):
        with captured_logger("dask_slaq", propagate=False) as log:
            await until(lambda: first.jobs.entered.keys() == {"a", "b"})
            first.fall_back(ZeroDivisionError("on purpose"))
            with pytest.warns(UserWarning, match="already contains"):
                second = await start_plugin(c, s)
        said = "its jobs continue as unowned work until they are opened again: a, b"
        assert said in log.getvalue()
        assert_nothing_left(s, first)
        assert (await slaq.status(c))["failed"] is None
        assert await in_job(c, "a").submit(inc, 1) == 2
        with captured_logger("dask_slaq", propagate=False) as log:
            async with slaq.job("a", client=c) as new:
                # The block of before neither reports for the new job of its name nor ends it.
                old.report(9.0)
                await old._close(c)
                new.report(1.0)
                await until(lambda: second.jobs.reports.get("a"))
                assert (second.jobs.reports, second.engine.jobs["a"].loss) == ({"a": 1}, 1.0)
        assert "that job 'a' has ended" in log.getvalue()
    assert_nothing_left(s, second)


@with_plugin([1])
async def test_bad_reports_are_counted_and_said_now_and_then(c, s, plugin, a, monkeypatch):
    monkeypatch.setattr(edge, "PAUSE_SECONDS", 0.5)
    async with slaq.job("a", client=c) as job:
        with captured_logger("dask_slaq", propagate=False) as log:
            for i in range(3000):
                bad = {"job": HUGE if i % 1000 == 0 else "nobody", "loss": 1.0}
                c._send_to_scheduler({"op": "slaq-report", **bad})
            job.report(2.0)
            await until(lambda: inside(plugin).reports == {"a": 1})
            await until(lambda: "more messages" in log.getvalue())
            await until(lambda: not inside(plugin).dropped)
    lines = log.getvalue().splitlines()
    assert len(lines) < 100 and max(map(len, lines)) < 400
    more = sum(int(line.split()[1]) for line in lines if "more messages" in line)
    assert more + sum("dropped a message" in line for line in lines) == 3000


@gen_cluster(client=True, nthreads=[1])
async def test_senders_that_are_told_apart_are_bounded(c, s, a):
    dropped = edge.Dropped(lambda call, *args: call(*args))
    with captured_logger("dask_slaq", propagate=False) as log:
        for i in range(2 * edge.MOST_SENDERS):
            dropped.add("report", f"{i}", ValueError(HUGE))
    assert len(dropped._held) == edge.MOST_SENDERS
    assert len(log.getvalue()) < 500 * edge.MOST_SENDERS


LONG = [HUGE, HUGE.encode(), 10**5000, [HUGE] * 9, {HUGE: HUGE}]


@pytest.mark.parametrize("value", LONG, ids=lambda value: type(value).__name__)
def test_what_is_shown_is_short(value):
    assert len(shown(value)) <= 100


@with_plugin([1], policy="max-total")
async def test_many_jobs_that_come_at_once_are_decided_on_together(c, s, plugin, a):
    decisions, reallocate = [], inside(plugin).reallocate

    def counted(*args, **kwargs):
        decisions.append(len(inside(plugin).jobs))
        return reallocate(*args, **kwargs)

    inside(plugin).reallocate = counted
    await request(c, "slaq_open", name="first", client=c.id)
    await until(lambda: decisions == [1])  # at once
    for i in range(100):
        await request(c, "slaq_open", name=f"j{i}", client=c.id)
    await until(lambda: decisions[-1] == 101)
    assert len(decisions) < 50
    assert len(inside(plugin).epochs) == 1  # history is of epochs
    names = {"first", *(f"j{i}" for i in range(100))}
    await asyncio.gather(*(request(c, "slaq_close", name=name, client=c.id) for name in names))
    assert set((await slaq.history(c)).job.values) == names


@with_plugin([1])
async def test_the_last_iteration_of_a_job_is_in_the_history(c, s, plugin, a):
    async with slaq.job("b", client=c):
        for loss in (3.0, 2.0):
            async with slaq.job("a", client=c) as job:
                job.report(loss)
    losses = (await slaq.history(c)).loss.sel(job="a").values
    assert [loss for loss in losses if loss == loss] == [3.0, 2.0]


async def idle_until_closed(scheduler):
    """Look for idleness until the scheduler closes; return the seconds that it took."""
    began = monotonic()
    while scheduler.status.name == "running":
        scheduler.check_idle()
        await asyncio.sleep(0.05)
    return monotonic() - began


@on_virtual([1], keep_workers="5s")
async def test_a_forgotten_job_keeps_no_cluster(client, cluster, plugin):
    cluster.scheduler.idle_timeout = 3
    async with slaq.job("a", client=client):  # its driver computes, for all that is known
        assert await idle_until_closed(cluster.scheduler) > 5
        plugin.jobs.close_all()


@on_virtual([1])
async def test_a_cluster_with_a_job_is_not_idle(client, cluster, plugin):
    scheduler = cluster.scheduler
    scheduler.idle_timeout = 3
    async with slaq.job("a", client=client) as job:
        for k in range(8):  # the driver computes
            await asyncio.sleep(1)
            scheduler.check_idle()
            job.report(1.0 / (k + 1))
        assert scheduler.status.name == "running"
    assert await idle_until_closed(scheduler) < 4


@pytest.mark.parametrize("goal", [None, 3, "best"])
def test_packages_are_asked_for_a_goal_only_if_it_is_not_ours(monkeypatch, goal):
    monkeypatch.delattr("dask_slaq.scheduler.requests.validation.add_goals")
    edge.know_goal(goal)


@on_virtual([1])
async def test_the_end_of_a_job_waits_for_its_reports_without_busy_looks(client, cluster, plugin):
    looks = []
    async with slaq.job("a", client=client) as job:
        runs = inside(plugin).runs
        inside(plugin).runs = lambda *job: looks.append(1) or runs(*job)
        job._losses.reports = 5  # that never arrive: it ends after two seconds
    assert not inside(plugin).reports
    assert len(looks) < 30
