"""Which pinned tasks start together, when, and when they are let go."""

import asyncio
import functools
from time import monotonic
from types import SimpleNamespace

import dask
import pytest
from distributed import Event, wait
from driving import (
    gen_cluster,
    hook,
    inside,
    jobs,
    let_end,
    on_virtual,
    running,
    state_of,
    tasks_of,
    until,
    wait_for,
    with_plugin,
    work,
)

import dask_slaq as slaq
from benchmarks import virtual
from dask_slaq.core.dispatch.constants import PATIENCE_SECONDS, QUIET_SECONDS
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGangs


class Task(SimpleNamespace):
    """Stands in for a `TaskState`."""

    __hash__ = object.__hash__
    __eq__ = object.__eq__


def task(prefix="train", state="no-worker", args=(), kwargs=None, actor=False, **annotations):
    return Task(
        prefix=SimpleNamespace(name=prefix), state=state, actor=actor, annotations=annotations,
        run_spec=SimpleNamespace(args=args, kwargs=kwargs or {}),
    )  # fmt: skip


def lightgbm(port, size=2, **more):
    kwargs = {"machines": f"a:{port},b:{port}", "num_machines": size}
    return task("train_part", kwargs=kwargs, **more)


def xgboost(port, **more):
    return task("fn", args=({}, {"dmlc_tracker_uri": "s", "dmlc_tracker_port": port}), **more)


def members(gang):
    return list(gang.members.values())


def test_interleaved_runs_of_lightgbm_are_complete_with_their_last_task():
    gangs = PinnedGangs()
    one = gangs.add("pool", lightgbm(1), "a", 0.0)
    two = gangs.add("pool", lightgbm(2), "b", 0.0)
    assert not one.complete(PATIENCE_SECONDS / 2) and not two.complete(PATIENCE_SECONDS / 2)
    assert gangs.add("pool", lightgbm(2), "a", 1.0) is two
    assert gangs.add("pool", lightgbm(1), "b", 1.0) is one
    assert one.complete(1.0) and two.complete(1.0)
    assert gangs.waiting() == [one, two]
    assert members(one) == ["a", "b"] and members(two) == ["b", "a"]
    assert set(one.threads.values()) == {None}  # LightGBM uses all threads of its worker


def test_a_run_of_unknown_size_is_complete_after_a_quiet_time():
    gangs = PinnedGangs()
    gang = gangs.add("pool", xgboost(1), "a", 0.0)
    assert gangs.add("pool", xgboost(1), "b", QUIET_SECONDS * 0.9) is gang
    assert gangs.add("pool", xgboost(2), "b", QUIET_SECONDS * 0.9) is not gang
    assert not gang.complete(QUIET_SECONDS * 1.8)
    assert gang.complete(QUIET_SECONDS * 2)


def test_a_member_that_is_not_ready_is_waited_for_but_not_for_ever():
    gangs = PinnedGangs()
    first, second = lightgbm(1, state="waiting"), lightgbm(1, state="waiting")
    gang = gangs.add("pool", first, "a", 0.0)
    gangs.add("pool", second, "b", 0.0)
    assert not gang.overdue(2 * PATIENCE_SECONDS)  # nobody is kept from starting
    first.state = "no-worker"
    assert not gang.complete(3 * PATIENCE_SECONDS) and not gang.overdue(3 * PATIENCE_SECONDS)
    assert gang.overdue(4 * PATIENCE_SECONDS)
    second.state = "no-worker"
    assert gang.complete(4 * PATIENCE_SECONDS) and not gang.overdue(4 * PATIENCE_SECONDS)


def test_a_member_that_never_comes_is_not_waited_for_for_ever():
    gangs = PinnedGangs()
    gang = gangs.add("pool", lightgbm(1), "a", 0.0)
    assert not gang.overdue(1.0)
    assert not gang.complete(1.0 + PATIENCE_SECONDS) and gang.overdue(1.0 + PATIENCE_SECONDS)
    gang.closed = True
    assert gangs.waiting() == []
    assert gangs.add("pool", lightgbm(1), "b", 2 * PATIENCE_SECONDS) is None


def test_a_gang_is_forgotten_with_its_last_member():
    gangs = PinnedGangs()
    tasks = [lightgbm(1, size=3) for _ in range(2)]
    gang = gangs.add("pool", tasks[0], "a", 0.0)
    gangs.add("pool", tasks[1], "b", 0.0)
    gangs.remove(tasks[0])  # cancelled before the third came
    assert tasks[0] not in gangs.of_task and gangs.of_task[tasks[1]] is gang
    assert gang.size == 2 and members(gang) == ["b"]
    gangs.remove(tasks[1])
    gangs.remove(tasks[1])
    assert gangs.waiting() == []
    assert gangs.add("pool", lightgbm(1), "a", 0.0) is not gang


def train_part(**kwargs):
    return kwargs["num_machines"]


@gen_cluster(client=True)
async def test_annotations_and_arguments_are_found_on_tasks_of_dask(c, s, a, b):
    gangs, found = PinnedGangs(), {}

    def add(scheduler, *, client, tasks, **kwargs):
        for ts in map(scheduler.tasks.get, tasks):
            if ts.worker_restrictions and len(ts.worker_restrictions) == 1:
                (worker,) = ts.worker_restrictions
                found[ts.key] = gangs.add(client, ts, worker, 0.0)

    hook(s, "update_graph", add)
    addresses, inputs = [a.address, b.address], c.map(abs, range(2))
    parts = [
        c.submit(train_part, machines="a,b", num_machines=2, x=x, workers=[w], pure=False)
        for w, x in zip(addresses, inputs, strict=True)
    ]
    with dask.annotate(slaq_gang="g"):
        named = [c.submit(id, i, workers=[w], pure=False) for i, w in enumerate(addresses)]
    alone = c.submit(id, 2, workers=addresses[:1])
    await c.gather([*parts, *named, alone])
    for futures in (parts, named):
        gang = found[futures[0].key]
        assert found[futures[1].key] is gang
        assert members(gang) == addresses
    assert found[alone.key] is None


@pytest.mark.parametrize("needs", [{}, {"resources": {"GPU": 1}}])
@on_virtual([1, 1, 1], resources=[{"GPU": 1}] * 3)
async def test_tasks_that_start_together_wait_for_no_busy_home(client, cluster, plugin, needs):
    """One half of them would hold its threads, and wait for the other."""
    home, other, _ = (worker.address for worker in cluster.workers)
    async with slaq.job("a", gang=True, client=client), slaq.job("b", client=client):
        with tasks_of("a"):
            large = functools.partial(client.submit, virtual.work, nbytes=10**8, pure=False)
            data = [large(workers=[w]) for w in (home, other)]
        with client.as_current():
            await wait(data)
        with tasks_of("b"):
            await client.submit(work, 0.5, pure=False)  # so that the duration is known
            busy = client.submit(work, 0.5, workers=[home], pure=False)
        await state_of(cluster.scheduler, busy, "processing")
        with tasks_of("a"), dask.annotate(**needs):  # to fetch the data elsewhere takes a second
            gang = client.map(work, [0.2] * 2, data, pure=False)
        await until(lambda: running(plugin, "a") == 2)
        assert cluster.scheduler.tasks[busy.key].state == "processing"
        on = [cluster.scheduler.tasks[f.key].processing_on.address for f in gang]
        assert len({*on, home}) == 3
        await client.gather(gang)


@with_plugin([1, 1])
async def test_two_gangs_of_one_job_do_not_wait_for_each_other(c, s, plugin, a, b):
    """Each worker would run one half of another, for ever."""

    def meet(mine, other):
        Event(mine).set()
        Event(other).wait()
        return mine

    async with jobs(c, "a"):
        futures = []
        for gang, worker in (("one", a), ("two", b), ("one", b), ("two", a)):
            mine, other = (f"{gang}-{w.name}" for w in (worker, b if worker is a else a))
            with tasks_of("a"), dask.annotate(slaq_gang=gang, slaq_gang_size=2):
                futures.append(c.submit(meet, mine, other, workers=[worker.address], key=mine))
        assert len(await asyncio.wait_for(c.gather(futures), 20)) == 4


@with_plugin([1, 1])
async def test_members_of_a_gang_are_charged_once_for_the_time_that_they_run(c, s, plugin, a, b):
    async with jobs(c, "a", "b"):
        begin = monotonic()
        with tasks_of("a"), dask.annotate(slaq_gang="one", slaq_gang_size=2):
            futures = [c.submit(wait_for, "go", w.name, workers=[w.address]) for w in (a, b)]
        await until(lambda: running(plugin, "a") == 2)
        pool = inside(plugin).pool("a")
        for _ in range(5):
            await asyncio.sleep(0.02)
            inside(plugin).tick(1.0)
        assert 0 < pool.service <= 2 * (monotonic() - begin)
        await let_end(c, futures)
        assert pool.service <= 2 * (monotonic() - begin)
        assert 0 < inside(plugin).job("a").attained <= 2 * (monotonic() - begin)
