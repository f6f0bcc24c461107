"""What is kept and told of trials is bounded, whatever they do."""

import functools
import itertools
from dataclasses import dataclass
from enum import Enum

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import (
    EndedSearches,
    SearchSettings,
    Trials,
    arguments,
    as_parameters,
    bounded,
)
from dask_slaq.core.trials.losses import FEWEST_POINTS, MOST_POINTS, MOST_POINTS_IN_ALL, TrialCurve
from dask_slaq.core.trials.unreported import Unreported


@given(st.integers(2, 40), st.lists(st.floats(-10, 10), min_size=1, max_size=300))
def test_few_points_evenly_from_the_first_to_the_last(most, losses):
    curve = TrialCurve()
    for step, loss in enumerate(losses, 1):
        curve.add(step, loss, most)
        assert len(curve) <= most
    steps = list(curve.steps)
    assert steps[0] == 1 and steps[-1] == len(losses)
    assert steps == sorted(set(steps))
    assert [losses[step - 1] for step in steps] == list(curve.losses)
    assert len(steps) >= min(len(losses), most // 2)
    gaps = {b - a for a, b in itertools.pairwise(steps[:-1])}
    assert len(gaps) <= 1


@given(st.lists(st.integers(2, 40), min_size=1, max_size=100))
def test_the_bound_may_change(bounds):
    curve = TrialCurve()
    for step, most in enumerate(bounds, 1):
        curve.add(step, 1.0, most)
        assert len(curve) <= most and curve.steps[-1] == step


def test_more_models_have_shorter_curves():
    trials = Trials(SearchSettings())
    trials._count = MOST_POINTS_IN_ALL // 100 - 1
    trial = trials.at("x", "w")
    trials.report(trial, [1.0] * 1000, 1.0)
    assert 50 <= len(trial.losses.curve) <= 100 < MOST_POINTS
    trials._count = 10 * MOST_POINTS_IN_ALL
    trial = trials.at("y", "w")
    trials.report(trial, [1.0] * 1000, 1.0)
    assert FEWEST_POINTS // 2 <= len(trial.losses.curve) <= FEWEST_POINTS


def rows(count: int) -> list[dict[str, object]]:
    trials = Trials(SearchSettings())
    for number in range(count):
        key = f"train-6b3f2a9c-{number}"
        trials.report(trials.at(key, "tcp://127.0.0.1:43210"), [1 / (number + 1)] * 3, 0.3)
        trials.end(key, "done")
    return trials.as_dicts()


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 30)), min_size=1))
def test_the_newest_are_kept_within_the_bytes(added):
    ended, most = EndedSearches(3000), {}
    for run, count in added:
        most.pop(run, None)
        most[run] = [{"key": f"{run}{k}", "loss": k / 7} for k in range(count)]
        ended.add(run, most[run])
        assert ended.get(run) == most[run]
        assert ended.nbytes <= 3000 or len(ended) == 1
    kept = [run for run in most if ended.get(run) or not most[run]]
    assert list(most)[-1] in kept
    assert len(ended) <= len(most)
    assert ended.get("unknown") == []


def test_a_hundred_large_searches_stay_within_the_bytes():
    ended, some = EndedSearches(1_000_000), rows(1000)
    for run in range(100):
        ended.add(str(run), some)
    assert ended.nbytes <= 1_000_000
    assert ended.nbytes / len(ended) / 1000 < 250  # bytes of a trial
    assert repr(ended.get("99")) == repr(some) and ended.get("0") == []


@dataclass
class Config:
    lr: float
    depth: int = 3


class Kind(Enum):
    RELU = "relu"


def train(params, epochs=10, *, data=None, **others):
    pass


def parameters(function, *args, **kwargs):
    return as_parameters(arguments(function, args, kwargs))


def test_the_only_mapping_or_dataclass_is_taken_apart():
    assert parameters(train, {"lr": 0.1}, 5) == {"lr": 0.1, "epochs": 5}
    assert parameters(train, Config(0.1)) == {"lr": 0.1, "depth": 3}
    assert parameters(train, dict.fromkeys(range(1000), 1)) == {}  # data
    assert parameters(train, {"lr": 1}, data={"rows": 2}) == {"params.lr": 1, "data.rows": 2}


def test_others_are_by_name():
    assert parameters(train, 0.1, seed=3) == {"params": 0.1, "seed": 3}
    assert parameters(functools.partial(train, epochs=2), 0.5) == {"params": 0.5, "epochs": 2}
    assert parameters(dict.fromkeys, [1]) != {} and parameters(max, 1, 2) == {"0": 1, "1": 2}


def test_only_plain_values_are_parameters():
    given = {
        "model": {"layers": [8, 8], "act": Kind.RELU, "fit": train},
        "array": np.zeros(3),
        "number": np.float32(0.5),
        "flag": np.bool_(True),
        "none": None,
        "kind": Config,
        "object": object(),
    }
    assert as_parameters(given) == {
        "model.layers": (8, 8),
        "model.act": "RELU",
        "model.fit": "train",
        "number": 0.5,
        "flag": True,
        "none": None,
        "kind": "Config",
    }


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(), inner, max_size=5),
)


@given(st.dictionaries(st.text(), values, max_size=50))
def test_what_is_kept_is_small_and_stays_what_it_is(given):
    found = bounded(as_parameters(given))
    assert len(found) <= 32 and len(repr(found)) < 300_000
    assert all(len(name) <= 100 for name in found)
    assert bounded(as_parameters(found)) == found


def test_tasks_of_a_name_that_has_reported_are_not_odd():
    tasks = Unreported()
    tasks.ended("train", 1)
    tasks.heard("train")
    for key in (2, 3, 4):
        tasks.ended("train", key)
    assert list(tasks.of(2, lambda key: False)) == []


def test_each_name_is_told_of_once():
    tasks = Unreported()
    for found in ([("optimize", 2)], []):
        for key in (1, 2):
            tasks.ended("optimize", key)
        assert list(tasks.of(2, lambda key: False)) == found
