"""A worker dies: no model that waits there is blamed, and what was lost is trained again."""

import asyncio
import contextlib
import time

import dask
import pytest
from distributed import Event, Nanny, Status, Worker, as_completed, get_worker, secede
from distributed.scheduler import KilledWorker
from driving import HELD, in_job, inside, jobs, tasks_of, until, wait_for, with_plugin
from moving import descend, killing

import dask_slaq as slaq

STEPS = 30


def no_failures(allowed: int = 1) -> dict[str, int]:
    return {"distributed.scheduler.allowed-failures": allowed}


def suspicious(scheduler) -> set[int]:
    return {ts.suspicious for ts in scheduler.tasks.values()}


async def results(futures) -> list[object]:
    """Results, or the types of errors."""
    found = await asyncio.gather(*(future._result() for future in futures), return_exceptions=True)
    return [type(each) if isinstance(each, BaseException) else each for each in found]


@pytest.mark.slow
@with_plugin([1], Worker=Nanny, config=no_failures())
async def test_a_model_that_kills_its_worker_is_lost_alone(c, s, plugin, a):
    async with slaq.search("grid", client=c):
        futures = c.map(killing(5, at=0), range(6), pure=False)
        assert await results(futures) == [0, 1, 2, 3, 4, KilledWorker]
    others = [ts for ts in s.tasks.values() if ts.state != "erred"]
    assert {ts.suspicious for ts in others} <= {0, 1}


@with_plugin([1, 1], config=no_failures())
async def test_a_death_counts_only_against_models_that_trained(c, s, plugin, a, b):
    excused, trained, remove = inside(plugin).excused, set[str](), s.remove_worker

    def note(address, **how):  # models go on and wait until the last moment
        trained.update(ts.key for ts in s.workers[address].processing if ts not in excused)
        return remove(address, **how)

    s.remove_worker = note
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(descend, range(8), pure=False)
        search = inside(plugin).search("grid")
        await until(lambda: search.trials.waiting >= 4)
        alive = search.trials.alive.items()  # Dask tells a moment before the model why it left
        await until(
            lambda: all((s.tasks[key] in excused) == trial.state.waits for key, trial in alive)
        )
        await a.close(executor_wait=False)
        assert await c.gather(futures) == list(range(8))
    blamed = {ts.key for ts in s.tasks.values() if ts.suspicious}
    assert blamed and blamed <= trained
    assert s.task_prefixes["descend"].suspicious == len(blamed)


@with_plugin([1])
async def test_models_stay_excused_when_tasks_are_held_no_longer(c, s, plugin, a):
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(descend, range(5), pure=False)
        trials = inside(plugin).trials("grid")
        await until(lambda: trials.waiting >= 2)
        inside(plugin).hold(True)
        inside(plugin).hold(False)
        alive, excused = trials.alive.items(), inside(plugin).excused
        await until(
            lambda: all((s.tasks[key] in excused) == trial.state.waits for key, trial in alive)
        )
        assert await c.gather(futures) == list(range(5))
    assert suspicious(s) == {0}


@pytest.mark.parametrize("how", ["pause", "failure", "end of the block"])
@with_plugin([1], may_fail=True)
async def test_all_are_as_suspicious_as_before_when_they_need_not_wait(c, s, plugin, a, how):
    search = await slaq.search("grid", client=c, steps=STEPS).__aenter__()
    futures = c.map(descend, range(5), pure=False)
    trials = inside(plugin).trials("grid")
    await until(lambda: trials.waiting >= 2)
    if how == "pause":
        await slaq.pause("grid", client=c)
        await until(lambda: trials.waiting == len(trials))
        await slaq.unpause("grid", client=c)
    elif how == "failure":
        plugin.fall_back(RuntimeError("test"))
        await until(lambda: suspicious(s) == {0})
    await search.__aexit__(*(how == "end of the block" and (ValueError,) * 3) or (None,) * 3)
    if how == "end of the block":
        await until(lambda: not inside(plugin).searches)
        assert suspicious(s) == {0}
    assert await c.gather(futures) == list(range(5))
    assert suspicious(s) == {0}


@with_plugin([1], config=no_failures())
async def test_a_model_that_computes_without_a_thread_stays_suspicious(c, s, plugin, a):
    def seceded(offset):
        secede()
        return descend(offset)

    async with slaq.search("grid", client=c) as search:
        futures = c.map(seceded, range(3), pure=False)
        trials = inside(plugin).trials("grid")
        await until(lambda: trials.waiting == 3)
        assert suspicious(s) == {0}
        assert await c.gather(futures) == list(range(3))
    assert sum(t["waited"] for t in await search.trials()) == 0


@with_plugin([1, 1], config=no_failures())
async def test_held_members_of_a_gang_are_not_suspicious(c, s, plugin, a, b):
    async with jobs(c, "one", "two"):
        plugin.run_once()
        busy = in_job(c, "two").map(wait_for, ["go"] * 4, range(4), pure=False)
        await until(lambda: inside(plugin).pool("two").ready)
        with tasks_of("one"), dask.annotate(slaq_gang="g", slaq_gang_size=3, slaq_threads=1):
            held = [c.submit(wait_for, "go", workers=[w.address], pure=False) for w in (a, b)]
        await until(lambda: all(f.key in s.tasks and s.tasks[f.key].state in HELD for f in held))
        await a.close(executor_wait=False)
        assert {s.tasks[f.key].suspicious for f in held} == {0}
        assert {ts.suspicious for ts in s.tasks.values()} <= {0, 1}
        await c.cancel(held)
        await Event("go").set()
        assert set(await results(busy)) <= {*range(4), KilledWorker}


@with_plugin([1, 1])
async def test_results_that_are_lost_are_ready_again_and_known(c, s, plugin, a, b):
    async with slaq.search("grid", client=c, steps=STEPS) as search:
        futures = c.map(descend, range(16), pure=False)
        trials = inside(plugin).trials("grid")
        await until(lambda: len(s.workers[a.address].has_what) >= 3 and trials.alive)
        lost = {ts.key for ts in s.workers[a.address].has_what}
        await a.close(executor_wait=False)
        rows = {row["key"]: row["state"] for row in await search.trials()}
        assert not {key for key in lost if rows[key] == "done"}
        begun_again = set()
        while not all(future.done() for future in futures):
            rows = await search.trials()
            assert len(rows) == len({row["key"] for row in rows}) == 16
            for key in lost & trials.alive.keys():
                begun_again.add(key)
                assert trials.alive[key].score == trials.alive[key].known
            await asyncio.sleep(0.005)
        assert await c.gather(futures) == list(range(16))
        assert begun_again == lost
    assert [row["state"] for row in await search.trials()] == ["done"] * 16


@pytest.mark.parametrize(("when", "state"), [("during", "done"), ("after the end", "retried")])
@with_plugin([1])
async def test_a_model_that_failed_and_is_retried_has_one_row(c, s, plugin, a, when, state):
    def fail_first(number):
        slaq.report(1.0)
        assert Event("well").is_set()
        return number

    async with contextlib.AsyncExitStack() as stack:
        search = await stack.enter_async_context(slaq.search("grid", client=c))
        futures = c.map(fail_first, range(2), pure=False)
        assert await results(futures) == [AssertionError] * 2
        if when == "after the end":
            await stack.aclose()
        assert [row["state"] for row in await search.trials()] == ["failed"] * 2
        await Event("well").set()
        await c.retry(futures)
        assert await c.gather(futures) == [0, 1]
        assert [row["state"] for row in await search.trials()] == [state] * 2
        assert (await search.results()).state.tolist() == [state] * 2


#: Steps that the models of `count` have made until they ended once, and these.
made: list[int] = []
ended: set[int] = set()


def count(number: int) -> int:
    for k in range(12):
        time.sleep(0.01)
        if number not in ended:  # whose result was lost
            made.append(number)
        slaq.report(number * 37 % 80 / 80 + 1 / (k + 1))
    if get_worker().status == Status.running:
        ended.add(number)
    return number


@pytest.mark.parametrize("told", [pytest.param(True, marks=pytest.mark.slow), False])
@with_plugin([], config=no_failures(30))
async def test_models_wait_no_longer_than_workers_live(c, s, plugin, told):
    """Of 40 models of 12 steps few are lost with two workers, once it is known how long they live.

    These live for 240 steps. What was made before two were lost does not count.
    """
    made.clear(), ended.clear()
    over, known = asyncio.Event(), [0, 0]

    async def live(lives: int) -> None:
        worker = await Worker(s.address, nthreads=1, dashboard_address=":0")
        worker.lifetime = 1.2 if told else None
        await until(lambda: len(made) >= 240 * lives or over.is_set())
        await worker.close(executor_wait=False, nanny=False)
        if not (told or known[0]):
            known[:] = len(made), len(ended)
        if not over.is_set():
            await live(lives + 1)

    async with slaq.search("grid", client=c, steps=12):
        lives = [asyncio.ensure_future(live(1)) for _ in range(2)]
        async for future in as_completed(c.map(count, range(40), pure=False)):
            await future.result()
    over.set()
    await asyncio.gather(*lives)
    assert len(made) - known[0] <= 1.3 * 12 * (40 - known[1])
