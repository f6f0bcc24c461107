"""From forecasts to what a policy weighs: interpolation, and work to the target."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core import gains
from dask_slaq.core.experts import HORIZONS
from dask_slaq.core.gains import Gains, Interpolation, work_to_target
from dask_slaq.core.loss import Forecast, Status
from dask_slaq.core.speeds import Speeds

GRIDS = [HORIZONS, np.array([0.0, 1.0, 3.0]), np.array([0.0, 0.5, 1.25, 7.5]), HORIZONS * 100]


def test_examples():
    assert doctest.testmod(gains).failed == 0


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


def forecast(reduction, *, fallen=0.0, remaining=None, status=Status.OK, horizons=None) -> Forecast:
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


def work(forecast: Forecast, target: float = math.nan, cost: float = 2.0) -> float:
    return float(work_to_target(forecast, np.array([target]), np.array([cost]))[0])


def test_work_is_that_of_the_iterations_until_nine_tenths_of_the_range():
    assert work(forecast([0.0, 4.0, 6.0, 10.0])) == pytest.approx(2.0 * 8.0)
    assert work(forecast([0.0, 4.0, 6.0, 10.0], fallen=30.0)) == pytest.approx(2.0 * 2.0)


def test_a_target_of_ones_own_is_a_loss():
    assert work(forecast([0.0, 4.0, 6.0, 10.0]), target=3.0) == pytest.approx(2.0 * 0.5)


def test_nothing_is_left_where_the_target_is_reached():
    assert work(forecast([0.0, 0.1, 0.2, 1.0], fallen=9.0)) == 0.0
    assert work(forecast([0.0, 4.0, 6.0, 10.0]), target=5.0) == 0.0


def test_what_is_not_in_sight_or_not_known_is_infinite():
    assert work(forecast([0.0, 4.0, 6.0, 10.0]), target=-6.0) == math.inf
    assert work(forecast([0.0, 4.0, 6.0, 8.0], remaining=100.0)) == math.inf
    assert work(forecast([0.0, 4.0, 6.0, 10.0], status=Status.TOO_FEW_REPORTS)) == math.inf
    assert work(forecast([0.0, 4.0, 6.0, 10.0]), cost=0.0) == math.inf


@given(
    st.lists(st.floats(0, 10), min_size=3, max_size=3),
    st.floats(0, 100),
    st.floats(-100, 100) | st.just(math.nan),
)
def test_a_nearer_target_needs_no_more_work(falls, fallen, target):
    table = forecast([0.0, *np.cumsum(falls)], fallen=fallen)
    far = work(table, target)
    assert far >= 0
    if not math.isnan(target):
        assert work(table, target + 1.0) <= far


@given(st.floats(0.1, 10), st.floats(0, 12), st.floats(0, 12))
def test_threads_that_are_not_held_gain_less_by_the_pause(epoch, pause, held):
    n = 41
    threads = np.linspace(0.0, 10.0, n)
    one = np.ones(n)
    speeds = Speeds(2.0 * one, 8.0 * one, 8.0 * one, np.zeros(0, np.int64), np.zeros((0, 4)))
    fall = Interpolation(HORIZONS, np.tile(1 - 0.5**HORIZONS, (n, 1)))

    def gains(pause: float) -> np.ndarray:
        return Gains(fall, one, np.arange(n), speeds, held * one, epoch, pause)(threads)

    slow, free = gains(pause), gains(0.0)
    assert slow[0] == 0 and (np.diff(slow) >= 0).all()
    assert (np.diff(slow, n=2) <= 1e-9).all()
    assert (slow <= free + 1e-12).all()
    assert slow[threads <= held] == pytest.approx(free[threads <= held])
    if pause >= epoch:
        assert slow[threads >= held] == pytest.approx(slow.max())
