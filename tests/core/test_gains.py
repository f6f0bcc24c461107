"""Gains are interpolated from forecasts correctly, and so is the work to reach a target."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.forecast import FitStatus, Forecast
from dask_slaq.core.forecast.corrections import ending
from dask_slaq.core.forecast.types import HORIZONS
from dask_slaq.core.gains import Gains, Interpolation
from dask_slaq.core.milestones import FIRST_PART, iterations_to_target
from dask_slaq.core.runtime.job_speeds import Speeds

GRIDS = [HORIZONS, np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.25, 7.5]), HORIZONS * 100]


@pytest.mark.parametrize("x", GRIDS, ids=["horizons", "whole", "fractional", "far"])
@given(data=st.data())
def test_interpolation_is_that_of_numpy_row_by_row(x, data):
    n = data.draw(st.integers(0, 5))
    numbers = st.floats(-1e6, 1e6)
    y = np.array([[data.draw(numbers) for _ in x] for _ in range(n)]).reshape(n, len(x))
    at = np.array([data.draw(st.floats(0, 2 * x[-1]) | st.sampled_from(x.tolist())) for _ in y])
    expected = [np.interp(a, x, row) for a, row in zip(at, y, strict=True)]
    before = at.copy()
    assert Interpolation(x, y)(at) == pytest.approx(np.array(expected), rel=1e-9, abs=1e-6)
    assert (at == before).all()


def forecast(
    reduction, *, fallen=0.0, remaining=None, status=FitStatus.OK, horizons=None
) -> Forecast:
    """Of one job, at loss 5."""
    x = np.array([0.0, 1.0, 2.0, 10.0]) if horizons is None else horizons
    y = np.array([reduction], float)
    one = np.ones(1)
    return Forecast(
        horizons=x,
        reduction=y,
        start=(5.0 + fallen) * one,
        level=5.0 * one,
        remaining=y[:, -1] if remaining is None else remaining * one,
        largest_change=one,
        noise=0 * one,
        n_reports=np.array([9]),
        status=np.array([int(status)]),
    )


def left(forecast: Forecast, target: float = math.nan, done: float = 0.0) -> float:
    return float(iterations_to_target(forecast, np.array([target]), np.array([done]))[0])


@pytest.mark.parametrize(
    ("reduction", "known", "target", "expected"),
    [
        ([0.0, 4.0, 6.0, 10.0], {}, math.nan, 8.0),  # nine tenths of the range
        ([0.0, 4.0, 6.0, 10.0], {"fallen": 30.0}, math.nan, 2.0),
        ([0.0, 4.0, 6.0, 10.0], {}, 3.0, 0.5),
        ([0.0, 0.1, 0.2, 1.0], {"fallen": 9.0}, math.nan, 0.0),  # reached
        ([0.0, 4.0, 6.0, 10.0], {}, 5.0, 0.0),
        ([0.0, 4.0, 6.0, 10.0], {}, -6.0, math.inf),  # not in sight
        ([0.0, 4.0, 6.0, 8.0], {"remaining": 100.0}, math.nan, math.inf),
        ([0.0, 0.0, 1e-310, 2e-310], {}, -1e4, math.inf),  # a slope that would overflow
    ],
)
def test_iterations_left_to_the_target(reduction, known, target, expected):
    with np.errstate(over="raise", invalid="raise"):
        assert left(forecast(reduction, **known), target) == pytest.approx(expected)


def test_a_young_job_has_a_few_iterations_to_go_and_falls_back_if_it_never_reports():
    young = forecast([0.0, 4.0, 6.0, 10.0], status=FitStatus.TOO_FEW_REPORTS)
    assert left(young, done=1.0) < left(young, done=5.0) < math.inf
    assert left(young, target=3.0) == pytest.approx(0.5)
    # Of one that said its length of 19, after nine reports, less is left with each.
    none, ten = np.full(1, math.nan), np.array([10.0])
    assert iterations_to_target(young, none, np.zeros(1), most=ten)[0] == 1.0
    first = replace(young, n_reports=np.array([1]))
    expected = FIRST_PART * 11.0 - 1.0
    assert iterations_to_target(first, none, np.zeros(1), most=ten)[0] == pytest.approx(expected)


@pytest.mark.parametrize(
    ("most", "reduction", "remaining"),
    [
        (math.inf, [0.0, 4.0, 6.0, 10.0], 12.0),
        (10.0, [0.0, 4.0, 6.0, 10.0], 10.0),
        (4.0, [0.0, 4.0, 6.0, 7.0], 7.0),
        (1.0, [0.0, 4.0, 4.0, 4.0], 4.0),
    ],
)
def test_nothing_falls_after_the_last_iteration(most, reduction, remaining):
    found = ending(forecast([0.0, 4.0, 6.0, 10.0], remaining=12.0), np.array([most]))
    assert found.reduction[0].tolist() == pytest.approx(reduction)
    assert found.remaining[0] == pytest.approx(remaining)
    none = np.full(1, math.nan)
    assert iterations_to_target(found, none, none, most=np.array([most]))[0] <= most  # or infinite


@given(
    st.lists(st.floats(0, 10), min_size=3, max_size=3),
    st.floats(0, 100),
    st.floats(-100, 100) | st.just(math.nan),
)
def test_a_nearer_target_needs_no_more_work(falls, fallen, target):
    table = forecast([0.0, *np.cumsum(falls)], fallen=fallen)
    far = left(table, target)
    assert far >= 0
    if not math.isnan(target):
        assert left(table, target + 1.0) <= far


@pytest.mark.parametrize("pause", [0.0, 0.4])
@pytest.mark.parametrize("silent", [0, 10])
def test_gains_of_some_jobs_are_theirs(silent, pause):
    rng = np.random.default_rng(silent)
    n = 30
    reporting = np.sort(rng.permutation(n)[silent:])
    falls = np.cumsum(rng.random((len(reporting), 5)), axis=1)
    work, useful = rng.choice([0.0, 1.0, 3.0], n), rng.uniform(1, 9, n)
    scaled, law = np.sort(rng.permutation(n)[:8]), rng.uniform(0.1, 1, (8, 4))
    buy = Gains(
        Interpolation(np.array([0.0, 1.0, 2.0, 5.0, 10.0]), falls),
        rng.uniform(1, 2, len(reporting)),
        reporting,
        Speeds(work, np.full(n, 4.0), useful, scaled, law),
        held=rng.uniform(0, 5, n),
        left=rng.uniform(0, 9, n),
        per_second=np.where(rng.random(n) < 0.3, 0.1, 0.0),
        epoch=2.0,
        pause=pause,
    )
    threads = rng.uniform(0, 9, n)
    for rows in (np.arange(n), np.array([3, 7, 28]), np.arange(0, n, 2), np.zeros(0, int)):
        some = buy.of(rows)
        assert some(threads[rows]).tolist() == buy(threads)[rows].tolist()
        fewer = np.arange(0, len(rows), 2)
        again = some.of(fewer)(threads[rows[fewer]])
        assert again.tolist() == buy(threads)[rows[fewer]].tolist()
