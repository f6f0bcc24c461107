"""Budgets on a scheduler: who waits or yields above them, and that nobody gets around them."""

import asyncio
import re
import threading
import time

import dask
import pytest
from distributed import Client
from distributed.utils_test import captured_logger, inc
from driving import (
    alerts_of,
    compute_seconds,
    gen_cluster,
    in_job,
    inside,
    jobs,
    let_end,
    on_virtual,
    ready,
    start_plugin,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting, NotAllowed
from dask_slaq.core.owners.usage import DAY_SECONDS, Usage, UsageKey
from dask_slaq.run_history import RunStore

SECOND = 1 / 3600


def budget(seconds, over="spare", **more):
    return {"budget": {"core-hours": seconds * SECOND, "period": "30d", "over": over}, **more}


def spend(plugin, owner, seconds):
    """Have an owner have used some core-seconds today."""
    inside(plugin).accounts.spent.add(int(time.time() // DAY_SECONDS), owner, seconds)
    inside(plugin).accounts.tick()


def seconds_used(plugin, owner):
    inside(plugin).accounts.tick()
    return inside(plugin).budgets.of(owner).used * 3600


@pytest.mark.parametrize("who", ["a job", "a search", "outside of jobs"])
@on_virtual([2, 2], owners={"ann": budget(60.0), "bob": {}})
async def test_above_a_budget_an_owner_runs_on_what_nobody_else_wants(client, cluster, plugin, who):
    """It has used all of it, and then comes bob, who can use half of the threads, and then all."""
    got, totals = {}, inside(plugin).accounts.totals

    async def measure():
        await asyncio.sleep(20)
        async with slaq.job("his", owner="bob", client=client) as job:
            for phase, width, times in (("half", 2, 20), ("all", 40, 5)):
                before = {o: totals.of(o).core_seconds for o in ("ann", "bob")}
                for _ in range(times):
                    await client.gather(in_job(client, "his").map(work, [0.5] * width, pure=False))
                    job.report(1.0)
                after = inside(plugin).accounts.totals
                got[phase] = [after.of(o).core_seconds - before[o] for o in ("ann", "bob")]

    async with Client(cluster.scheduler.address, asynchronous=True) as other:
        inside(plugin).clients.introduce(other.id, "ann")
        if who == "outside of jobs":
            futures = other.map(work, [0.5] * 300, pure=False)
        elif who == "a search":
            async with slaq.search("hers", owner="ann", client=client):
                futures = client.map(work, [0.5] * 300, pure=False)
        else:
            async with slaq.job("hers", owner="ann", client=client):
                futures = client.map(work, [0.5] * 300, pure=False)
                await measure()
        if who != "a job":
            await measure()
        await client.cancel(futures)
    assert got["half"][1] == pytest.approx(20.0, abs=1.0)  # 20 times two tasks of half a second
    assert got["half"][0] > 15.0
    assert got["all"][1] == pytest.approx(100.0, abs=2.5)
    assert got["all"][0] < 0.05 * got["all"][1]  # what was begun, and tails


@with_plugin([1, 1], owners={"ann": budget(0.2, "wait")}, prefetch=0)
async def test_new_jobs_wait_above_a_budget_until_it_is_raised(c, s, plugin, a, b):
    alerts = await alerts_of(c, s)
    async with slaq.job("first", owner="ann@desk", client=c):
        await c.gather(c.map(time.sleep, [0.06] * 4, pure=False))
        assert seconds_used(plugin, "ann") == pytest.approx(compute_seconds(s), rel=0.01)
        assert await c.submit(inc, 1, pure=False) == 2  # it goes on
        async with slaq.job("inner", owner="ann@desk", client=c):
            assert await c.submit(inc, 2, pure=False) == 3  # the one around it may wait for it
    async with slaq.job("of bob", owner="bob", client=c):
        assert await c.submit(inc, 3, pure=False) == 4
    async with slaq.job("second", owner="ann@lab", client=c):
        future = c.submit(inc, 4, pure=False)
        await until(lambda: ready(plugin, "second") == 1)
        plugin.run_once()
        assert ready(plugin, "second") == 1 and inside(plugin).queued == {"second"}
        found = await slaq.explain("second", client=c)
        said = r"waits: ann has used (\S+) of (\S+) core-hours of the last 30 days"
        used, most = map(float, re.fullmatch(said, found["reason"]).groups())
        assert used > most == pytest.approx(0.2 * SECOND, rel=0.01)
        assert "more core-hours" in found["would_change"][0]
        (of_ann,) = (await slaq.usage(client=c))["budgets"]
        assert (of_ann["owner"], of_ann["left"], of_ann["days"]) == ("ann", 0.0, 30)
        owners = (await slaq.status(c))["owners"]
        assert owners["ann@lab"]["spare"] and owners["ann@lab"]["core_hours_left"] == 0.0
        await slaq.set_owner("ann", core_hours=1.0, client=c)
        assert await future == 5
        assert inside(plugin).terms.of("ann").over == "wait"
    (told,) = [alert["message"] for alert in alerts if alert["event"] == "budget"]
    assert told.endswith("new jobs wait, and its jobs run on what nobody else wants")


@with_plugin([1, 1], owners={"ann": budget(1.0)}, operators=["root"])
async def test_four_fifths_of_a_budget_are_an_alert_and_operators_change_it(c, s, plugin, a, b):
    alerts = await alerts_of(c, s)
    await c.gather(c.map(time.sleep, [0.09] * 10, pure=False))  # outside of any job
    inside(plugin).clients.introduce(c.id, "eve")
    spend(plugin, "ann@desk", 0.85)
    await until(lambda: any(alert["event"] == "budget" for alert in alerts))
    (told,) = [alert for alert in alerts if alert["event"] == "budget"]
    assert told["owner"] == "ann" and told["message"].startswith("ann has used 0.000236 of 0.000")
    with dask.config.set({"slaq.owner": "eve"}), pytest.raises(NotAllowed):
        await slaq.set_owner("ann", core_hours=9.0, client=c)
    with pytest.raises(InvalidSetting, match="period of owner 'ann' must be a number of days"):
        await c.scheduler.slaq_owner(owner="ann", by="root", period="1h")
    await c.scheduler.slaq_owner(owner="ann", by="root", core_hours=9.0, over="wait")
    terms = inside(plugin).terms.of("ann@desk")
    assert (terms.core_hours, terms.period, terms.over) == (9.0, 30 * DAY_SECONDS, "wait")


def test_a_budget_counts_over_restarts_what_dask_counted(tmp_path):
    path, seconds = str(tmp_path / "runs.db"), []

    @gen_cluster(client=True, nthreads=[1, 1])
    async def life(c, s, a, b):
        owners = {"ann": budget(0.5, "wait"), "bob": budget(1e6)}
        plugin = await start_plugin(c, s, run_history=path, owners=owners)
        waits = sum(seconds) >= 0.5
        await until(lambda: inside(plugin).accounts.loaded)
        async with slaq.job("a", client=c, owner="ann@desk"):
            assert ("a" in inside(plugin).queued) or not waits
        inside(plugin).clients.introduce(c.id, "ann@lab")
        await c.gather(c.map(time.sleep, [0.05] * 6, pure=False))  # outside of jobs
        seconds.append(compute_seconds(s))
        assert seconds_used(plugin, "ann") == pytest.approx(sum(seconds), rel=0.01)
        assert inside(plugin).budgets.of("bob").used == 0.0
        async with slaq.job("b", client=c, owner="ann"):
            assert inside(plugin).queued == ({"b"} if sum(seconds) >= 0.5 else set())

    for _ in range(3):
        life()
    assert sum(seconds) > 0.9


@gen_cluster(client=True, nthreads=[1, 1])
async def test_usage_of_days_before_the_period_does_not_count(c, s, a, b, tmp_path):
    path = str(tmp_path / "runs.db")
    store, today = RunStore(path), int(time.time() // DAY_SECONDS)
    for age, used in ((0, 1.0), (29, 2.0), (30, 4.0), (100, 8.0), (800, 16.0)):
        store.add_usage([(UsageKey(today - age, "ann", "svm", f"svm-{age}"), Usage(used))])
    store.close()

    plugin = await start_plugin(c, s, run_history=path, owners={"ann": budget(10.0)})
    await until(lambda: inside(plugin).accounts.loaded)
    for days, seconds in ((30, 3.0), (31, 7.0), (365, 15.0), (1, 1.0)):
        await slaq.set_owner("ann", period=f"{days}d", client=c)
        assert inside(plugin).budgets.of("ann").used * 3600 == pytest.approx(seconds)


@pytest.mark.parametrize("over", ["wait", "spare"])
@gen_cluster(client=True, nthreads=[1, 1])
async def test_no_task_runs_before_usage_is_read(c, s, a, b, over, tmp_path, monkeypatch):
    """Neither of an owner that has used its budget before the start, nor of one that has not."""
    path, read = str(tmp_path / "runs.db"), threading.Event()
    store, usage = RunStore(path), RunStore.usage
    store.add_usage([(UsageKey(int(time.time() // DAY_SECONDS), "ann", "svm", "a"), Usage(9.0))])
    store.close()
    monkeypatch.setattr(RunStore, "usage", lambda *args: read.wait(60) and usage(*args))

    owners = {"ann": budget(1.0, over), "bob": budget(9.0, over), "eve": {}}
    plugin = await start_plugin(c, s, run_history=path, owners=owners)
    hers, his = slaq.job("hers", owner="ann", client=c), slaq.job("his", owner="bob", client=c)
    async with hers, his, slaq.job("eves", owner="eve", client=c):
        names = ("hers", "his", "eves")
        futures = {name: in_job(c, name).submit(inc, 1, pure=False) for name in names}
        assert await futures["eves"] == 2
        assert inside(plugin).queued == {"hers", "his"}
        assert (await slaq.explain("hers", client=c))["reason"] == "waits: usage is being read"
        assert ready(plugin, "hers") == ready(plugin, "his") == 1
        read.set()
        assert await futures["his"] == 2  # nothing else happens that would let it begin
        if over == "spare":
            assert await futures["hers"] == 2
        else:
            assert inside(plugin).queued == {"hers"} and ready(plugin, "hers") == 1


@with_plugin([1, 1], owners={"ann": budget(0.2, "wait"), "default": {}}, prefetch=0)
async def test_two_owners_do_not_get_around_a_budget(c, s, plugin, a, b):
    """By other machines, clients, names of jobs, jobs within those of others, and no job at all."""
    async with Client(s.address, asynchronous=True) as second:
        for client, owner in ((c, "ann@desk"), (second, "ann@lab")):
            inside(plugin).clients.introduce(client.id, owner)
        await c.gather(c.map(time.sleep, [0.05] * 2, pure=False))  # no job at all
        await second.gather(second.map(time.sleep, [0.05] * 3, pure=False))
        assert seconds_used(plugin, "ann") == pytest.approx(compute_seconds(s), rel=0.01)
        for client, owner in ((c, "ann"), (second, "ann@lab"), (c, "ann@elsewhere")):
            async with slaq.job("new", owner=owner, client=client):
                assert inside(plugin).queued == {"new"}
        # A job of bob's around hers does not let it run; one of her own would have had to wait.
        async with slaq.job("of bob", owner="bob", client=c):
            async with slaq.job("within", owner="ann", client=c):
                assert inside(plugin).queued == {"within"}
                async with slaq.job("more", owner="ann", client=c):
                    assert inside(plugin).queued == {"within", "more"}
            # Her client's tasks outside of jobs only take what bob leaves.
            future = second.submit(wait_for, "go", 2)
            await until(lambda: f"other:{second.id}" in inside(plugin).pools)
            assert inside(plugin).pool(f"other:{second.id}").group.on_leftovers
            assert await let_end(c, future) == 2
        # A job with a new name and kind each time.
        for n in range(5):
            async with slaq.job(f"kind-{n}-of", owner="ann@desk", client=c):
                assert inside(plugin).queued == {f"kind-{n}-of"}


@with_plugin([1, 1], owners={"ann": budget(0.1)}, prefetch=0)
async def test_short_jobs_above_a_budget_do_not_come_first_as_newcomers(c, s, plugin, a, b):
    spend(plugin, "ann", 9.0)
    async with jobs(c, "of ann", owner="ann"), jobs(c, "of bob", owner="bob"):
        pools = inside(plugin).pools  # before any decision
        assert pools["of ann"].group.on_leftovers and not pools["of bob"].group.on_leftovers
        keys = [plugin.pools.cluster.key(pools[name]) for name in ("of bob", "of ann")]
        assert keys == sorted(keys)


@with_plugin([1, 1], owners={"ann": budget(0.1, "wait")}, prefetch=0)
async def test_a_mistake_of_the_accounts_costs_one_line_and_nobody_waits_for_a_budget(
    c, s, plugin, a, b
):
    spend(plugin, "ann", 9.0)
    async with slaq.job("a", owner="ann", client=c):
        future = c.submit(inc, 1, pure=False)
        await until(lambda: ready(plugin, "a") == 1)
        with captured_logger("dask_slaq") as log:
            inside(plugin).accounts._owner_of = lambda client: 1 / 0
            await c.submit(inc, 2, pure=False, key="outside", workers=a.address)
            inside(plugin).accounts._outside[c.id] += 1.0
            inside(plugin).accounts.tick()
        assert await future == 2
        assert log.getvalue().count("usage is no longer counted") == 1
        assert "ZeroDivisionError" in (await slaq.usage(client=c))["note"]
