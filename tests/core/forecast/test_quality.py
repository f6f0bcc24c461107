"""Normalized losses are well formed and independent of the unit of the loss."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.forecast import Forecast, LossPredictor
from dask_slaq.core.forecast.corrections import normalized, predicted_range, scale
from dask_slaq.core.settings import NORMALIZERS

CURVE = 0.5 + np.exp(-0.1 * np.arange(100))


def forecasts(*histories: np.ndarray | list[float]) -> Forecast:
    predictor, jobs = LossPredictor(), [str(i) for i in range(len(histories))]
    for job in jobs:
        predictor.add(job)
    for k in range(max(map(len, histories), default=0)):
        for job, losses in zip(jobs, histories, strict=True):
            if k < len(losses):
                predictor.report(job, losses[k])
        predictor.fit()
    return predictor.forecast(jobs)


@given(st.lists(st.lists(st.floats(-1e300, 1e300), max_size=20), max_size=4))
def test_any_reports_are_normalized(histories: list[list[float]]) -> None:
    forecast = forecasts(*histories)
    for normalizer in NORMALIZERS:
        fraction, size = normalized(forecast, normalizer), scale(forecast, normalizer)
        assert fraction.shape == size.shape == (len(histories),)
        assert ((fraction >= 0) & (fraction <= (1 if normalizer == "range" else np.inf))).all()
        assert np.isfinite(fraction).all()
        assert (np.isfinite(size) & (size > 0)).all()
    whole = predicted_range(forecast)
    assert (np.isfinite(whole) & (whole >= 0)).all()


@given(st.integers(5, 60), st.integers(-900, 900), st.sampled_from([0.0, 0.02]), st.integers(0, 99))
def test_units_of_the_loss_do_not_matter(n: int, exponent: int, noise: float, seed: int) -> None:
    curve = CURVE[:n] - 9.0 + noise * np.random.default_rng(seed).standard_normal(n)
    forecast = forecasts(curve, curve * 2.0**exponent, curve - 3.0)
    for normalizer in NORMALIZERS:
        np.testing.assert_allclose(np.ptp(normalized(forecast, normalizer)), 0, atol=1e-6)
        gain = forecast.reduction / scale(forecast, normalizer)[:, None]
        np.testing.assert_allclose(np.ptp(gain, axis=0), 0, atol=1e-5 * gain.max())


def test_normalized_loss_falls_from_one_to_zero() -> None:
    done = np.array([float(normalized(forecasts(CURVE[:n]))[0]) for n in (0, 1, 8, 20, 40, 90)])
    assert list(done[:2]) == [1, 1]
    assert (np.diff(done[1:]) < 0).all()
    assert done[-1] < 0.005
    # The truth is e^-2 of the range after 20 iterations.
    assert done[3] == pytest.approx(np.exp(-0.1 * 19), abs=0.05)


def test_range_is_what_has_fallen_and_what_will() -> None:
    forecast = forecasts(CURVE[:25])
    fallen = forecast.start - forecast.level
    assert predicted_range(forecast) == pytest.approx(fallen + forecast.remaining)
    assert predicted_range(forecast) == pytest.approx(1.0, rel=0.1)
    assert scale(forecast) == predicted_range(forecast)


def test_largest_change_is_the_papers_normalizer() -> None:
    forecast = forecasts([5.0, 3.0, 2.0, 1.5, 1.25])
    assert scale(forecast, "largest-change") == 2


def test_a_job_that_rose_has_fallen_by_nothing() -> None:
    forecast = forecasts(np.linspace(1, 2, 20))
    assert predicted_range(forecast) == pytest.approx(forecast.remaining)
    assert normalized(forecast) == 1


@pytest.mark.parametrize("normalizer", NORMALIZERS)
def test_unknown_is_one(normalizer: str) -> None:
    forecast = forecasts([], [4.0], [4.0] * 30)
    assert list(normalized(forecast, normalizer)) == [1, 1, 1]
    assert list(scale(forecast, normalizer)[[0, 2]]) == [1, 1]


def test_a_job_that_only_fluctuates_has_little_to_gain() -> None:
    noise = np.random.default_rng(0).standard_normal(200)
    forecast = forecasts(noise, CURVE[:20])
    assert scale(forecast)[0] >= 2 * forecast.noise[0]
    gain = forecast.reduction[:, 8] / scale(forecast)
    assert 0 < gain[0] < 0.2 * gain[1]
