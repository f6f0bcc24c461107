"""What belongs to the process of a worker, and models that take turns there take along."""

import contextlib
import importlib.util
import io
import logging
import os
import random
import sys
import tempfile
import threading
import time
import types
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from distributed import Client, LocalCluster
from driving import with_plugin
from sklearn.linear_model import SGDClassifier

import dask_slaq as slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.worker.carrying import CARRIED, Carrier, as_carried

STEPS = 6

#: Stands for a tracker with one run at a time.
tracker = types.ModuleType("some_tracker")
tracker.run = None  # type: ignore[attr-defined]
sys.modules["some_tracker"] = tracker


def reports(seed: int) -> Iterator[int]:
    """Yield the steps of a model, each before its report, in which others may take their turn."""
    for step in range(STEPS):
        time.sleep(0.02)
        yield step
        slaq.report(1 / (step + 1) + seed / 100)


def uses_numpy(seed: int) -> object:
    np.random.seed(seed)
    return [np.random.standard_normal() for _ in reports(seed)]


def uses_random(seed: int) -> object:
    random.seed(seed)
    found = [random.gauss(0, 1)]
    for _ in reports(seed):
        state = random.getstate()  # Dask draws from it, too
        found.append(random.gauss(0, 1))
        random.setstate(state)
    return len(set(found[1:])) <= STEPS and found[0]


def uses_estimator(seed: int) -> object:
    np.random.seed(seed)
    X = np.random.standard_normal((100, 3))
    model = SGDClassifier()  # without random_state
    for _ in reports(seed):
        model.partial_fit(X, X[:, 0] > 0, classes=[False, True])
    return model.coef_.tolist()


def uses_torch(seed: int) -> object:
    import torch

    torch.manual_seed(seed)
    return [torch.randn(1).item() for _ in reports(seed)]


def prints(seed: int) -> object:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        for step in reports(seed):
            print(seed, step)
            print(seed, step, file=sys.stderr)
    return out.getvalue(), err.getvalue()


def changes_folder(seed: int) -> object:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for step in reports(seed):
                with open("log.txt", "a") as file:
                    file.write(f"{seed} {step}\n")
            return Path(folder, "log.txt").read_text()
        finally:
            os.chdir(before)


def changes_environment(seed: int) -> object:
    if seed % 2:
        return [os.environ.get("SEED_OF_MODEL") for _ in reports(seed)]
    os.environ["SEED_OF_MODEL"] = str(seed)
    try:
        return [os.environ["SEED_OF_MODEL"] for _ in reports(seed)]
    finally:
        del os.environ["SEED_OF_MODEL"]


def filters_warnings(seed: int) -> object:
    warnings.simplefilter("error" if seed % 2 else "ignore")
    try:
        found = []
        for _ in reports(seed):
            try:
                warnings.warn("x", stacklevel=1)
                found.append("ignored")
            except UserWarning:
                found.append("raised")
        return found
    finally:
        warnings.filters.pop(0)  # type: ignore[attr-defined]


def changes_arguments(seed: int) -> object:
    sys.argv.append(str(seed))
    try:
        return [sys.argv[-1] for _ in reports(seed)]
    finally:
        sys.argv.pop()


def uses_another_generator(seed: int) -> object:
    before = np.random.get_bit_generator()
    np.random.set_bit_generator((np.random.PCG64 if seed % 2 else np.random.SFC64)(seed))
    try:
        return [np.random.standard_normal() for _ in reports(seed)]
    finally:
        np.random.set_bit_generator(before)


def records_warnings(seed: int) -> object:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for step in reports(seed):
            warnings.warn(f"{seed} {step}", stacklevel=1)
    return [str(each.message) for each in found]


def tracks(seed: int) -> object:
    import some_tracker

    if some_tracker.run is not None:
        raise RuntimeError("a run is active")
    some_tracker.run = []
    try:
        for step in reports(seed):
            some_tracker.run.append((seed, step))
        return some_tracker.run
    finally:
        some_tracker.run = None


def process() -> object:
    return sys.stdout is sys.__stdout__, os.getcwd(), warnings.showwarning.__name__


WAYS = [
    uses_numpy,
    uses_random,
    uses_estimator,
    prints,
    changes_folder,
    changes_environment,
    records_warnings,
    filters_warnings,
    changes_arguments,
    uses_another_generator,
    tracks,
]


@pytest.mark.parametrize("train", WAYS)
def test_each_model_finds_its_own_on_a_worker_of_one_thread(train: Callable[[int], object]) -> None:
    @with_plugin([1])
    async def check(c, s, plugin, a):
        alone = [await c.submit(train, seed, pure=False) for seed in range(8)]
        before = sys.stdout, sys.stderr, os.getcwd(), warnings.filters, warnings.showwarning
        async with slaq.search("grid", client=c, steps=STEPS, carries=["some_tracker.run"]) as grid:
            assert await c.gather(c.map(train, range(8), pure=False)) == alone
        assert sum(row["waited"] > 0 for row in await grid.trials()) > 1
        after = sys.stdout, sys.stderr, os.getcwd(), warnings.filters, warnings.showwarning
        assert all(one is other or one == other for one, other in zip(before, after, strict=True))

    check()


@pytest.mark.slow
def test_each_model_finds_its_own_in_processes() -> None:
    ways = WAYS if importlib.util.find_spec("torch") is None else [*WAYS, uses_torch]
    shape = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with LocalCluster(**shape) as cluster, Client(cluster) as client:
        client.register_plugin(slaq.SlaqPlugin())
        client.run(lambda: sys.modules.setdefault("some_tracker", types.ModuleType("some_tracker")))
        client.run(lambda: setattr(sys.modules["some_tracker"], "run", None))
        for train in ways:
            alone = client.gather(client.map(train, range(12), pure=False))
            before = client.run(process)
            with slaq.search("grid", steps=STEPS, carries=["some_tracker.run"]) as grid:
                assert client.gather(client.map(train, range(12), pure=False)) == alone
            assert any(row["waited"] for row in grid.trials())
            assert client.run(process) == before


@with_plugin([1])
async def test_models_that_draw_without_a_seed_do_not_draw_the_same(c, s, plugin, a):
    def train(n: int) -> list[float]:
        return [np.random.standard_normal() for _ in reports(n)]

    async with slaq.search("grid", client=c, steps=STEPS):
        drawn = await c.gather(c.map(train, range(8), pure=False))
    assert len({x for each in drawn for x in each}) == 8 * STEPS


def test_a_process_that_no_model_has_changed_is_left_as_it_is() -> None:
    carrier, state = Carrier(lambda: True), np.random.get_state()[1].tolist()
    carrier.begin("a", None)
    taken = carrier.take("a", None)
    assert "numpy.random" not in taken and "random" not in taken
    carrier.bring("a", taken, apart=False)
    assert np.random.get_state()[1].tolist() == state


def test_workers_of_several_threads_are_left_as_they_are() -> None:
    carrier = Carrier(lambda: False)
    carrier.begin("a", None)
    os.environ["SEED_OF_MODEL"] = "1"
    try:
        assert carrier.take("a", None) is None
        assert os.environ["SEED_OF_MODEL"] == "1"
    finally:
        del os.environ["SEED_OF_MODEL"]


def test_what_is_set_as_a_module_is_imported_holds_for_all_models() -> None:
    carrier = Carrier(lambda: True)
    carrier.begin("a", None)
    os.environ["SET_BY_A_MODULE"] = "1"
    sys.modules["some_module"] = types.ModuleType("some_module")
    try:
        carrier.take("a", None)
        assert os.environ["SET_BY_A_MODULE"] == "1"
    finally:
        del os.environ["SET_BY_A_MODULE"], sys.modules["some_module"]


def test_what_a_module_sets_after_the_last_report_holds_for_models_that_wait() -> None:
    carrier = Carrier(lambda: True)
    carrier.begin("a", None)
    taken = carrier.take("a", None)
    os.environ["SET_BY_A_MODULE"] = "1"  # by another one, which ends
    sys.modules["some_module"] = types.ModuleType("some_module")
    try:
        carrier.bring("a", taken, apart=False)
        assert os.environ["SET_BY_A_MODULE"] == "1"
        carrier.take("a", taken)
        assert os.environ["SET_BY_A_MODULE"] == "1"
    finally:
        del os.environ["SET_BY_A_MODULE"], sys.modules["some_module"]


def test_the_process_of_a_program_is_left_as_it_is() -> None:
    """Its event loop is in a thread of its own."""
    carrier = Carrier(lambda: True)
    thread = threading.Thread(target=carrier.begin, args=("a", None))
    thread.start()
    thread.join()
    assert carrier.take("a", None) is None


def test_attributes_of_objects_and_what_is_in_lists_are_carried() -> None:
    tracker.stack = types.SimpleNamespace(runs=[])
    part = as_carried("some_tracker.stack.runs")
    before, runs = part.save(), tracker.stack.runs
    runs.append("mine")
    mine = part.save()
    part.restore(before)
    assert tracker.stack.runs is runs and runs == []
    part.restore(mine)
    assert runs == ["mine"]
    with pytest.raises(AttributeError):
        as_carried("some_tracker.nothing").save()
    assert as_carried("not_imported.run").save() is None


def test_something_that_cannot_be_saved_is_told_once_and_the_rest_is(caplog) -> None:
    def fails() -> None:
        raise OSError("gone")

    carrier = Carrier(lambda: True)
    carrier._add(lambda: [("broken", fails, fails)])
    with caplog.at_level(logging.ERROR):
        for _ in range(2):
            carrier.begin("a", None)
            taken = carrier.take("a", None)
            carrier.bring("a", taken, apart=False)
    assert [r.message for r in caplog.records] == [
        "models that wait cannot carry broken: OSError('gone')"
    ]
    assert "environment" in taken


def test_what_takes_long_to_save_is_dropped_and_what_cannot_be_compared_is_carried(caplog) -> None:
    with caplog.at_level(logging.ERROR):
        carrier, found = Carrier(lambda: True, longest=0.01), []
        carrier._add(
            lambda: [("slow", lambda: time.sleep(0.02), print), ("odd", dict, found.append)]
        )
        carrier._add(lambda: [("arrays", lambda: {"x": np.ones(2)}, found.append)])
        carrier.begin("a", None)
        carrier.bring("a", carrier.take("a", None), apart=False)
    (told,) = [r.message for r in caplog.records]
    assert told.startswith("models do not carry slow")
    assert found and carrier.broken is None


@pytest.mark.parametrize("given", ["run", "a b.c", ("x", 1, 2), 3, ("x", print), None])
def test_what_cannot_be_carried_is_an_error(given: object) -> None:
    with pytest.raises(InvalidSetting, match="carries must hold paths"):
        slaq.search("grid", carries=[given])


@pytest.mark.parametrize("part", CARRIED)
def test_what_is_saved_can_be_restored(part) -> None:
    value = part.save()
    part.restore(value)
    assert as_carried(part) is part


class Estimator:
    """Model that several tasks reset and train, though it is one object on a worker."""

    def reset(self) -> None:
        self.loss = 1.0

    def step(self) -> float:
        self.loss *= 0.9
        return self.loss


def trains(estimator: Estimator, seed: int) -> None:
    estimator.reset()
    for _ in reports(seed):
        estimator.step()


def looks(estimator: Estimator, seed: int) -> None:
    for _ in reports(seed):
        vars(estimator)


def sets_first(estimator: Estimator, seed: int) -> None:
    estimator.loss = seed
    for _ in reports(seed):
        pass


@pytest.mark.parametrize("train", [trains, sets_first, looks])
def test_a_shared_argument_that_models_change_is_told(train: object, caplog) -> None:
    @with_plugin([1])
    async def check(c, s, plugin, a):
        estimator = await c.scatter(Estimator())
        async with slaq.search("grid", client=c, steps=STEPS):
            await c.gather([c.submit(train, estimator, seed, pure=False) for seed in range(4)])

    with caplog.at_level(logging.WARNING):
        check()
    told = [r.message for r in caplog.records if "is one object for all models" in r.message]
    assert len(told) == (train is not looks)


def draws(seed: int, steps: int) -> list[float]:
    np.random.seed(seed)
    drawn: list[float] = []
    for step in slaq.steps(steps, drawn):
        time.sleep(0.02)
        drawn.append(np.random.standard_normal())
        slaq.report(1 / (step + 1) + seed / 100)
    return drawn


@with_plugin([1, 1])
async def test_a_generator_goes_on_where_a_model_is_trained_on(c, s, plugin, a, b):
    alone = [await c.submit(draws, seed, steps=8, pure=False) for seed in range(4)]
    await b.close()
    async with slaq.search("grid", client=c, steps=4) as grid:
        futures = c.map(draws, range(4), steps=4, pure=False)
        await c.gather(futures)
        more = await grid.train_on(futures, steps=8)
        assert await c.gather(more) == alone
