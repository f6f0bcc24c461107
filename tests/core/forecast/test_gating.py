"""The gating network is bounded for any coefficients."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.forecast.experts.basis import Ensemble
from dask_slaq.core.forecast.experts.gating import blend, gate, trained
from dask_slaq.core.forecast.history import Histories, NormalizedWindow, normalize_window


def seen(losses: np.ndarray) -> tuple[NormalizedWindow, np.ndarray]:
    """The view of a job that reported `losses`, and the forecasts of the experts."""
    history = Histories(32)
    rows = np.array([history.acquire()])
    for loss in losses:
        history.append(rows, np.array([loss]))
    view = normalize_window(history, rows, np.array([0]))
    return view, Ensemble(32, 32).ask(view)


def curve(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    n = int(rng.integers(3, 80))
    fall = np.exp(-rng.uniform(0.01, 0.5) * np.arange(n))
    return 2.0 + fall + rng.choice([0.0, 0.05]) * rng.standard_normal(n)


@given(st.integers(0, 2**32 - 1))
def test_a_mixture_lies_within_bounds_of_the_experts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wild = {
        name: np.abs(array) if name == "deviation" else array * rng.normal(0, 10, array.shape)
        for name, array in trained().items()
    }
    view, forecasts = seen(curve(seed))
    mix = gate(wild, view, forecasts, rng.normal(0, 5, (1, len(forecasts))))
    mixed = blend(forecasts, mix, view.zero)[0]
    assert mix.weight.sum() == pytest.approx(1) == mix.level_weight.sum()
    most = np.exp(1.5 * view.log_noise[0])
    assert (mixed[1:] <= most * np.e * forecasts[:, 0, 1:].max(axis=0) + 1e-9).all()
    assert (mixed[1:] >= forecasts[:, 0, 1:].min(axis=0) / np.e / most - 1e-9).all()
    levels, shift = forecasts[:, 0, 0] - view.zero[0], 2 * view.noise[0]
    above = mixed[0] - view.zero[0]
    assert (levels.min() - shift) / most - 1e-9 <= above <= (levels.max() + shift) * most + 1e-9
