"""Models with a state leave their worker, go on elsewhere, and are not lost with it."""

import asyncio
import os
import threading
import time
from glob import glob
from typing import Any

import pytest
from distributed import Worker
from distributed.utils_test import captured_logger
from driving import inside, pause, until, with_plugin
from moving import RUN, STEPS, begin, check, count_kept, let_some_leave, train

import dask_slaq as slaq
from dask_slaq.worker.trial_agent import agent_of
from dask_slaq.worker.trial_slot import SavedState, TrialSlot


@with_plugin([1, 1])
async def test_models_of_a_worker_that_dies_go_on_from_their_state(c, s, plugin, a, b):
    _search, futures = await begin(c, plugin)
    names = inside(plugin).states
    await until(lambda: all(s.tasks[n].who_has for some in names.values() for n in some))
    await a.close()
    check(await c.gather(futures))


@with_plugin([1], Worker=Worker)
async def test_a_new_worker_gets_models_that_wait(c, s, plugin, a):
    search, futures = await begin(c, plugin)
    async with Worker(s.address, nthreads=1) as b:
        await until(lambda: any(t.worker == b.address for t in search.trials.alive.values()))
        check(await c.gather(futures))


def train_and_note(offset: float, steps: int = STEPS) -> list[int]:
    step, made = slaq.resume() or (0, [])
    while step < steps:
        time.sleep(0.03)  # long enough to see all of them there
        step += 1
        made = [*made, step]
        RUN.append((offset, step))
        slaq.report(offset + 1 / step, state=lambda step=step, made=made: (step, made))
    return made


@with_plugin([1, 1])
async def test_states_in_files_outlive_their_search(c, s, plugin, a, b, tmp_path):
    RUN.clear()
    settings = {"client": c, "steps": STEPS, "states": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        async with slaq.search("grid", **settings):
            futures = c.map(train_and_note, range(6), key=[f"model-{i}" for i in range(6)])
            await until(lambda: len(list(tmp_path.glob("grid/*.state"))) == 6)
            raise KeyboardInterrupt
    await c.cancel(futures)
    await until(lambda: not s.tasks)
    before = len(RUN)
    async with slaq.search("grid", **settings):
        futures = c.map(train_and_note, range(6), key=[f"model-{i}" for i in range(6)])
        check(await c.gather(futures))
    assert min(step for _, step in RUN[before:]) > 1  # no model began anew
    await until(lambda: not (tmp_path / "grid").exists())


def train_and_keep_the_end(offset):
    step = slaq.resume() or 0
    RUN.append((offset, step))
    while step < 6:
        time.sleep(0.02)
        step += 1
        slaq.report({"loss": offset + 1 / step, "step": step}, state=step)
    return offset


async def train_and_check(client, search) -> list[Any]:
    futures = client.map(train_and_keep_the_end, range(4), key=[f"model-{i}" for i in range(4)])
    assert await client.gather(futures) == [*range(4)]
    rows = {t["params"]["offset"]: t for t in await search.trials()}
    shown = [[rows[k][n] for n in ("state", "iteration", "loss", "metrics")] for k in range(4)]
    assert shown == [["done", 6, k + 1 / 6, {"step": 6.0}] for k in range(4)]
    assert (await search.best())[:2] == ({"offset": 0}, 1 / 6)
    return futures


@pytest.fixture
def all_are_kept(monkeypatch):
    """Keep the state of every report, the last one included."""
    monkeypatch.setattr("dask_slaq.worker.keeping.KEEP_SECONDS", 0.0)
    monkeypatch.setattr("dask_slaq.worker.trial_slot.KEEPING_PART", 1e9)
    RUN.clear()
    yield
    assert any(step == 6 for _, step in RUN)  # one had no step to make


@with_plugin([1, 1])
async def test_a_model_whose_result_is_lost_has_its_row(c, s, plugin, a, b, tmp_path, all_are_kept):
    async with slaq.search("grid", client=c, states=str(tmp_path)) as search:
        futures = await train_and_check(c, search)
        await a.close()
        await until(lambda: all(s.tasks[future.key].who_has for future in futures))
        await train_and_check(c, search)
        assert [len(row["curve"]) for row in await search.trials()] == [6] * 4


@with_plugin([1, 1])
async def test_a_model_of_the_last_program_has_its_row(c, s, plugin, a, b, tmp_path, all_are_kept):
    settings = {"client": c, "states": str(tmp_path)}
    with pytest.raises(KeyboardInterrupt):
        async with slaq.search("grid", **settings) as search:
            futures = await train_and_check(c, search)
            raise KeyboardInterrupt
    await c.cancel(futures)
    await until(lambda: not s.tasks)
    async with slaq.search("grid", **settings) as search:
        await train_and_check(c, search)


@with_plugin([1, 1])
async def test_states_in_files_outlive_a_program_that_left_its_block(c, s, plugin, a, b, tmp_path):
    async with slaq.search("grid", client=c, steps=STEPS, states=str(tmp_path)):
        futures = c.map(train_and_note, range(6), steps=3 * STEPS, pure=False)
        await until(lambda: len(list(tmp_path.glob("grid/*.state"))) == 6)
    await c.cancel(futures)  # as Dask does if the program dies
    await until(lambda: not s.tasks and not inside(plugin).searches)
    await asyncio.sleep(0.2)
    assert len(list(tmp_path.glob("grid/*.state"))) == 6


@with_plugin([1, 1])
async def test_only_files_of_states_are_removed(c, s, plugin, a, b, tmp_path):
    for name in ("grid", "victim"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "mine.txt").write_text("mine")
    for name in ("grid", "../runs/victim", ".."):
        async with slaq.search(name, client=c, steps=STEPS, states=str(tmp_path / "runs")):
            check(await c.gather(c.map(train, range(4), pure=False)))
    # Unlike that of a path, it bears that a folder is removed meanwhile.
    await until(lambda: not glob(f"{tmp_path}/**/*.state", recursive=True))
    assert len(list(tmp_path.rglob("mine.txt"))) == 2


@with_plugin([1, 1])
async def test_models_under_joblib_stay_on_their_worker(c, s, plugin, a, b):
    """It would return the exception by which they leave as their result."""
    async with slaq.search("grid", client=c, steps=STEPS):
        futures = c.map(as_joblib_does, range(8), pure=False)
        assert all(isinstance(made, list) for made in await c.gather(futures))


def as_joblib_does(offset: float):
    from joblib._parallel_backends import _TracebackCapturingWrapper

    return _TracebackCapturingWrapper(lambda: train(offset))()


class Model(list):
    """The steps of a model that can be called, like every module of torch."""

    def __call__(self, x: int = 1) -> int:
        return 2 * x


def train_callable(offset: float) -> list[int]:
    model = slaq.resume() or Model()
    while len(model) < STEPS:
        time.sleep(0.01)
        model.append(len(model) + 1)
        slaq.report(offset + 1 / len(model), state=model)
    return list(model)


@with_plugin([1, 1])
async def test_a_model_that_can_be_called_is_a_state_itself(c, s, plugin, a, b):
    async with slaq.search("callable", client=c, steps=STEPS):
        futures = c.map(train_callable, range(6), pure=False)
        await until(lambda: count_kept(inside(plugin).search("callable")) >= 2)
        await c.retire_workers([b.address])
        check(await c.gather(futures))


def fails_once(steps: int = STEPS) -> list[int]:
    step, made = slaq.resume() or (0, [])
    while step < steps:
        time.sleep(0.01)
        step += 1
        made = [*made, step]
        RUN.append((0.0, step))
        if step == 20 and RUN.count((0.0, 20)) == 1:
            time.sleep(0.3)
            raise ZeroDivisionError
        slaq.report(1 / step, state=(step, made))
    return made


@with_plugin([1])
async def test_a_task_that_is_retried_goes_on_from_its_last_state(c, s, plugin, a):
    RUN.clear()
    async with slaq.search("grid", client=c, steps=STEPS):
        others = c.map(train, [5, 6, 7], pure=False)
        future = c.submit(fails_once, retries=1)
        check([await future, *await c.gather(others)])
    assert sum(offset == 0 for offset, _ in RUN) < 2 * STEPS - 3


@with_plugin([1, 1])
async def test_a_state_that_cannot_be_pickled_is_said_and_its_model_waits(c, s, plugin, a, b):
    def with_a_lock(offset, steps=STEPS):
        slaq.resume()
        for step in range(steps):
            time.sleep(0.005)
            slaq.report(offset + 1 / (step + 1), state=threading.Lock())
        return steps

    with captured_logger("dask_slaq.worker.reports") as log:
        async with slaq.search("grid", client=c, steps=STEPS) as search:
            futures = c.map(with_a_lock, range(6), pure=False)
            assert await c.gather(futures) == [STEPS] * 6
    assert log.getvalue().count("cannot be pickled: it stays on its worker") == 6
    assert sum(t["waited"] for t in await search.trials()) > 0
    assert not inside(plugin).states


@with_plugin([1, 1])
async def test_models_that_have_left_go_on_after_an_exception_left_the_block(c, s, plugin, a, b):
    with pytest.raises(ZeroDivisionError):
        async with slaq.search("grid", client=c, steps=STEPS):
            futures = c.map(train, range(8), pure=False)
            search = inside(plugin).search("grid")
            await until(lambda: count_kept(search) >= 12)
            await let_some_leave(c, plugin, a)
            raise ZeroDivisionError
    await until(lambda: not inside(plugin).searches)
    check(await c.gather(futures))


@pytest.mark.parametrize("what", ["failure", "stopped"])
@with_plugin([1, 1], may_fail=True)
async def test_models_that_have_left_go_on_whatever_fails(c, s, plugin, a, b, what):
    _search, futures = await begin(c, plugin)
    await let_some_leave(c, plugin, a)
    if what == "failure":
        plugin.fall_back(RuntimeError("test"))
    else:
        await slaq.stop("grid", client=c)
        await until(lambda: {f.status for f in futures} <= {"error", "finished"})
        return
    check(await c.gather(futures))
    assert not inside(plugin).migrating


#: Steps at which models of `guarded` have left, or ended.
LEFT: list[int] = []


def guarded(offset: float, steps: int = STEPS) -> tuple[list[int], list[str]]:
    step, made = slaq.resume() or (0, [])
    said = []
    try:
        while step < steps:
            time.sleep(0.01)
            step += 1
            made = [*made, step]
            try:
                slaq.report(offset + 1 / step, state=(step, made))
            except Exception as error:
                said.append(repr(error))
    finally:
        LEFT.append(step)
    return made, said


@with_plugin([1, 1])
async def test_code_that_catches_exceptions_lets_its_model_leave(c, s, plugin, a, b):
    LEFT.clear()
    _, futures = await begin(c, plugin, guarded)
    await c.retire_workers([a.address])
    for made, said in await c.gather(futures):
        assert made == list(range(1, STEPS + 1)) and not said
    assert len(LEFT) > 8  # `finally` runs whenever a model leaves


@with_plugin([1, 1])
async def test_the_time_waited_before_a_model_left_is_counted(c, s, plugin, a, b):
    search, futures = await begin(c, plugin)
    await slaq.pause("grid", client=c)
    stays = [
        t for t in search.trials.alive.values() if t.worker == a.address and not t.state.migrates
    ]
    await until(lambda: all(t.state.waits or t.outcome for t in stays))
    # Others have left meanwhile, or wait in their last report, and have nothing to go on for.
    stays = [t for t in stays if not (t.state.migrates or t.outcome or t.step >= STEPS)]
    await asyncio.sleep(0.6)  # some may have made another step meanwhile
    pause(a)  # a worker that is retired may close before it has told
    await until(lambda: all(t.state.migrates for t in stays))
    assert all(t.times.waited >= 0.3 for t in stays)
    await slaq.unpause("grid", client=c)
    check(await c.gather(futures))


@with_plugin([1])
async def test_a_model_at_its_last_step_does_not_leave(c, s, plugin, a):
    agent = agent_of(a)
    turn = {"run": "run", "leaves": True, "steps": 3, "order": [], "width": 0, "stop": False}
    agent.set_turns([{**turn, "explored": 0, "prune": []}])
    slot = TrialSlot("x", "run", checkpoint=SavedState(offered=1, resumes=True, nbytes=1))
    for step, leaves in ((1, True), (2, True), (3, False)):
        slot.iterations.count(step)
        assert agent.must_leave(slot, waits=True) == leaves


@pytest.mark.skipif(os.name != "posix", reason="Windows has no such modes")
@pytest.mark.parametrize("how", ["group", "sticky", "above", "another user", "safe"])
@with_plugin([1])
async def test_a_folder_where_others_write_is_refused(c, s, plugin, a, tmp_path, monkeypatch, how):
    """States are unpickled. Dask keeps them then, and each model is trained."""
    folder = tmp_path / "states" / "grid"
    if how != "safe":
        folder.mkdir(parents=True)
    modes = {"group": 0o770, "sticky": 0o1777, "above": 0o777}
    if how in modes:
        os.chmod(folder.parent if how == "above" else folder, modes[how])
    me, refused = os.geteuid(), how != "safe"
    if how == "another user":
        monkeypatch.setattr(os, "geteuid", lambda: me + 1)
    if me == 0 and refused:
        os.chown(folder, 2 if how == "another user" else -1, 1 if how == "group" else -1)
    if how == "group" and os.stat(folder).st_gid == me:
        refused = False  # hers alone
    with captured_logger("dask_slaq", propagate=False) as log:
        async with slaq.search("grid", client=c, steps=STEPS, states=str(folder.parent)):
            check(await c.gather(c.map(train, range(4), pure=False)))
    assert log.getvalue().count("no states are kept in") == refused
    if refused:
        assert not glob(f"{folder}/*.state")
