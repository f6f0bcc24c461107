"""Usage of a scheduler adds up to Dask's own compute seconds, and outlives it."""

import asyncio
import contextlib
import functools
import math
import time

import dask
import pytest
from distributed import Client, Event, secede, worker_client
from distributed.utils_test import captured_logger
from driving import (
    begun,
    compute_seconds,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    map_in_each,
    on_virtual_clock,
    start_plugin,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.usage import Usage, UsageKey
from dask_slaq.run_history import RunStore, read_usage
from dask_slaq.scheduler.jobs.hindrances import is_waiting
from dask_slaq.scheduler.views import core_seconds_by_day


def total(found, column="core_seconds"):
    return sum(row[column] for row in found["rows"])


def as_dask(scheduler):
    """Compute seconds as Dask counts them, up to the moments in which tasks begin and end."""
    return pytest.approx(compute_seconds(scheduler), rel=0.01)


def by(found, name):
    return {row[name]: row for row in found["rows"]}


@with_plugin([1, 1])
async def test_usage_in_jobs_and_outside_adds_up_to_that_of_dask(c, s, plugin, a, b):
    await c.gather(c.map(time.sleep, [0.02] * 5, pure=False))  # before the first job
    async with jobs(c, "svm-1", "svm-2", owner="ann@desk") as (one, two):
        for job in (one, two):
            job.report(1.0)
        futures = in_job(c, "svm-1").map(time.sleep, [0.02] * 6, pure=False)
        futures += in_job(c, "svm-2").map(time.sleep, [0.02] * 3, pure=False)
        futures += c.map(time.sleep, [0.02] * 4, pure=False, key="plain")
        await c.gather(futures)
    await c.gather(c.map(time.sleep, [0.02] * 5, pure=False))  # after the last
    found = await slaq.usage(client=c, by=["owner", "job"])
    assert total(found) == as_dask(s)
    used = {(row["owner"], row["job"]): row for row in found["rows"]}
    of_ann = {("ann@desk", job) for job in ("svm-1", "svm-2", "")}
    assert used.keys() == {("unknown@127.0.0.1", "")} | of_ann
    assert used["ann@desk", "svm-1"]["core_seconds"] >= 0.12
    assert by(await slaq.usage(client=c, by="kind"), "kind")["svm"]["done"] == 2
    assert "slaq.run-history names no file" in found["note"] and found["since"] <= time.time()


@gen_cluster(client=True, nthreads=[1, 1])
async def test_tasks_count_while_they_run_and_once(c, s, a, b, tmp_path):
    path = tmp_path / "runs.db"
    plugin = await start_plugin(c, s, run_history=str(path))

    def used_in_file():
        inside(plugin).accounts.tick()  # as every few seconds: what a killed scheduler had written
        assert inside(plugin).store.flush()
        return sum(usage.core_seconds for usage in read_usage(path).values())

    plain = await begun(s, c.submit(wait_for, "plain", key="plain", workers=a.address))
    async with slaq.job("a", client=c, owner="ann") as job:
        job.report(1.0)
        mine = in_job(c, "a").submit(wait_for, "mine", key="mine", workers=b.address)
        await begun(s, mine)

        async def wait_until_both_count(least):
            found = {}
            while found.keys() != {"a", ""} or min(found.values()) < least:
                for worker in (a, b):
                    await worker.heartbeat()
                rows = (await slaq.usage(client=c, by="job"))["rows"]
                found = {row["job"]: row["core_seconds"] for row in rows}

        await wait_until_both_count(0.1)
        assert used_in_file() >= 0.2
        await let_end(c, mine, "mine")
    await wait_until_both_count(0.05)  # what a job has used stays its own
    await let_end(c, plain, "plain")
    assert total(await slaq.usage(client=c)) == as_dask(s)
    # By heartbeats a task may begin some milliseconds sooner, and the file's counters never fall.
    assert math.isclose(used_in_file(), compute_seconds(s), rel_tol=0.01, abs_tol=0.05)
    assert not inside(plugin).accounts.ahead


TOOK = []


def slow_failure(seconds):
    begin = time.time()
    time.sleep(seconds)
    TOOK.append(time.time() - begin)
    raise ValueError(seconds)


@pytest.mark.parametrize("open_jobs", [1, 0, 2])
@with_plugin([1, 1])
async def test_each_attempt_counts(c, s, plugin, a, b, open_jobs):
    await asyncio.gather(
        *(f._result() for f in c.map(slow_failure, [0] * 4)), return_exceptions=True
    )
    before = total(await slaq.usage(client=c))  # with the imports of the first failures
    TOOK.clear()
    async with jobs(c, *"ab"[:open_jobs]):
        futures = c.map(slow_failure, [0.05] * 4, retries=2, pure=False)
        if open_jobs:
            futures += in_job(c, "a").map(slow_failure, [0.05] * 4, retries=2, pure=False)
        await asyncio.gather(*(future._result() for future in futures), return_exceptions=True)
        found = total(await slaq.usage(client=c)) - before
    assert len(TOOK) == 3 * len(futures) and found == pytest.approx(sum(TOOK), rel=0.2)


@with_plugin([1, 1])
async def test_what_is_cancelled_or_lost_counts_until_then(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        event = Event(client=c)
        futures = in_job(c, "a").map(lambda k: event.wait(), range(2), pure=False)
        await until(lambda: sum(len(ws.processing) for ws in s.workers.values()) == 2)
        await asyncio.sleep(0.5)
        await c.cancel(futures)
        await until(lambda: not any(ws.processing for ws in s.workers.values()))
        assert 0.9 < total(await slaq.usage(client=c)) < 2
        await event.set()


@pytest.mark.parametrize("how", ["secede", "worker_client"])
@with_plugin([1, 1])
async def test_a_task_that_gave_up_its_thread_counts_until_it_ends(c, s, plugin, a, b, how):
    def leave():
        with contextlib.ExitStack() as stack:
            secede() if how == "secede" else stack.enter_context(worker_client())
            time.sleep(0.3)

    async with slaq.job("a", client=c, owner="ann"):
        future = await begun(s, in_job(c, "a").submit(leave, key="leave"))
        ws = s.tasks["leave"].processing_on
        await until(lambda: s.tasks["leave"] in ws.long_running)
        for worker in (a, b):
            await worker.heartbeat()
        inside(plugin).accounts.tick()  # it counts while it runs, too, and once
        await future
    found = by(await slaq.usage(client=c), "owner")
    assert found["ann"]["core_seconds"] == pytest.approx(compute_seconds(s), rel=0.02)
    assert compute_seconds(s) >= 0.3


@with_plugin([1], prefetch=0)
async def test_waits_and_ends_of_jobs_count(c, s, plugin, a):
    async with jobs(c, "a", "b", owner="ann") as (one, _):
        one.report(1.0)
        futures = [in_job(c, name).submit(wait_for, "go", key=name) for name in ("a", "b")]
        waiting = functools.partial(is_waiting, plugin.jobs)
        await until(lambda: sorted(map(waiting, ("a", "b"))) == [False, True])
        (late,) = filter(waiting, ("a", "b"))
        for _ in range(3):
            plugin.run_once()
        await let_end(c, futures)
    with pytest.raises(ZeroDivisionError):
        async with slaq.job("c", client=c, owner="ann"):
            raise ZeroDivisionError
    async with slaq.job("d", client=c, owner="bob"):
        plugin.end_job("d")  # as if its client was lost
    found = await slaq.usage(client=c, by=("owner", "job"))
    used = {row["job"]: row for row in found["rows"]}
    (first,) = {"a", "b"} - {late}
    assert used[late]["waited"] > used[first]["waited"] == 0
    ends = {name: used[name] for name in "abcd"}
    assert {n: r["done"] for n, r in ends.items()} == {"a": 1, "b": 1, "c": 0, "d": 0}
    assert ends["c"]["failed"] == ends["d"]["lost"] == 1 == ends["d"]["jobs"]


def test_usage_is_in_the_file_and_goes_on_with_the_next_scheduler(tmp_path):
    path, seconds = str(tmp_path / "runs.db"), []

    @gen_cluster(client=True, nthreads=[1, 1])
    async def life(c, s, a, b):
        plugin = await start_plugin(c, s, run_history=path)
        async with slaq.job("svm-1", client=c, owner="ann") as job:
            job.report(1.0)
            await c.gather(in_job(c, "svm-1").map(time.sleep, [0.02] * 5, pure=False))
        await c.gather(c.map(time.sleep, [0.02] * 5, pure=False))
        seconds.append(compute_seconds(s))
        found = await slaq.usage("1d", client=c)
        assert found["note"] is None and found["file"] == path and found["since"] is None
        assert math.isclose(total(found), sum(seconds), rel_tol=0.01)
        assert total(found, "jobs") == len(seconds)
        counters = inside(plugin).accounts.counters
        await until(lambda: counters() and counters()["ann"].jobs == len(seconds))
        assert math.isclose(counters()["ann"].core_seconds, total(found), rel_tol=1e-6)
        days = core_seconds_by_day(inside(plugin).accounts)
        assert math.isclose(sum(days.values()), total(found), rel_tol=1e-6)
        assert (await slaq.status(c))["owners"]["ann"]["finished_jobs"] == len(seconds)

    for _ in range(3):
        life()


@gen_cluster(client=True, nthreads=[1, 1])
async def test_a_file_that_cannot_be_written_costs_its_usage_nothing(c, s, a, b, tmp_path):
    with captured_logger("dask_slaq"):
        plugin = await start_plugin(c, s, run_history=str(tmp_path))
        await until(lambda: inside(plugin).store.failed is not None)
    await c.gather(c.map(time.sleep, [0.02] * 5, pure=False))
    inside(plugin).accounts.tick()
    found = await slaq.usage(client=c)
    assert total(found) == as_dask(s)
    assert "cannot be used" in found["note"] and found["since"] is not None
    assert sum(u.core_seconds for u in inside(plugin).accounts.counters().values()) > 0


@with_plugin([1, 1])
async def test_steps_of_a_graph_are_charged_to_its_client_whatever_their_names(c, s, plugin, a, b):
    async with Client(s.address, asynchronous=True) as other:
        for client, owner in ((c, "ann"), (other, "bob")):
            inside(plugin).clients.introduce(client.id, owner)
            for _ in range(3):
                step = dask.delayed(time.sleep)(0.02)
                for _ in range(3):
                    step = dask.delayed(lambda before: time.sleep(0.02))(step)
                await client.compute(step)
        found = by(await slaq.usage(client=c), "owner")
    assert found.keys() == {"ann", "bob"}
    for owner in found:
        assert found[owner]["core_seconds"] == pytest.approx(compute_seconds(s) / 2, rel=0.4)
    assert not inside(plugin).accounts._clients


@with_plugin([1, 1])
async def test_what_cannot_be_asked_is_said(c, s, plugin, a, b):
    for bad in ("soon", -1, math.nan, True, c, 10**400):
        with pytest.raises(InvalidSetting, match="since must be a time"):
            await slaq.usage(bad, client=c)
    with pytest.raises(InvalidSetting, match="owner, kind, job, day"):
        await slaq.usage(by="week", client=c)
    for bad in ("x", -1.0, [1]):
        with pytest.raises(InvalidSetting, match="number of seconds"):
            await c.scheduler.slaq_usage(seconds=bad)


def test_an_owner_that_used_much_before_the_restart_yields_within_the_promise(tmp_path):
    path, shares = tmp_path / "runs.db", {}

    def life(half_life):
        store = RunStore(path)
        store.add_usage([(UsageKey(0, "ann", "svm", "svm-1"), Usage(1e9))])
        store.close()

        async def scenario(client, cluster, plugin):
            accounts = inside(plugin).accounts
            await until(lambda: accounts.loaded)
            of_ann, of_bob = jobs(client, "a", owner="ann"), jobs(client, "b", owner="bob")
            async with of_ann as (a,), of_bob as (b,):
                futures = map_in_each(client, "ab", work, [0.5] * 150)
                for job in (a, b):
                    job.report(1.0)
                before = {o: accounts.totals.of(o).core_seconds for o in ("ann", "bob")}
                await asyncio.sleep(15)
                for owner, seconds in before.items():
                    shares[half_life, owner] = accounts.totals.of(owner).core_seconds - seconds
                shares[half_life] = await slaq.explain("a", client=client)
                shares["status"] = (await slaq.status(client))["owners"]
                del futures

        on_virtual_clock(scenario, [2, 2], run_history=str(path), half_life=half_life)

    for half_life in (None, "7d"):
        life(half_life)
    assert shares[None, "ann"] == pytest.approx(shares[None, "bob"], rel=0.1)
    assert shares["7d", "ann"] == pytest.approx(shares["7d", "bob"] / 3, rel=0.2)
    assert shares[None]["yields"] is None
    assert "Its owner used 2 times its share lately (half-life 7 days)" in shares["7d"]["text"]
    assert "its weight counts 0.25 times" in shares["7d"]["text"]
    assert shares["status"]["ann"]["factor"] == pytest.approx(0.25, rel=0.01)
