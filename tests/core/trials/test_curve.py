"""Curves are bounded, begin with the first loss and end with the last one."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.trials import SearchSettings, Trials
from dask_slaq.core.trials.curve import FEWEST, MOST, MOST_IN_ALL, Curve


@given(st.integers(2, 40), st.lists(st.floats(-10, 10), min_size=1, max_size=300))
def test_few_points_evenly_from_the_first_to_the_last(most, losses):
    curve = Curve()
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
    curve = Curve()
    for step, most in enumerate(bounds, 1):
        curve.add(step, 1.0, most)
        assert len(curve) <= most and curve.steps[-1] == step


def test_more_models_have_shorter_curves():
    trials = Trials(SearchSettings())
    trials._count = MOST_IN_ALL // 100 - 1
    trial = trials.at("x", "w")
    trials.report(trial, [1.0] * 1000, 1.0)
    assert 50 <= len(trial.curve) <= 100 < MOST
    trials._count = 10 * MOST_IN_ALL
    trial = trials.at("y", "w")
    trials.report(trial, [1.0] * 1000, 1.0)
    assert FEWEST // 2 <= len(trial.curve) <= FEWEST
