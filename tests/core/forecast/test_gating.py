"""The gating network is bounded for any coefficients, and ignores the units of losses."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dask_slaq.core.forecast.experts.ensemble import Ensemble
from dask_slaq.core.forecast.experts.gating import blend, features, gate, trained
from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.forecast.smoothing import NormalizedWindow, normalize_window


def seen(losses: np.ndarray) -> tuple[NormalizedWindow, np.ndarray]:
    """The view of a job that reported `losses`, and what the experts say."""
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
@settings(max_examples=30)
def test_a_mixture_lies_within_bounds_of_the_experts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    wild = {
        name: np.abs(array) if name == "deviation" else array * rng.normal(0, 10, array.shape)
        for name, array in trained().items()
    }
    view, said = seen(curve(seed))
    mix = gate(wild, view, said, rng.normal(0, 5, (1, len(said))))
    belief = blend(said, mix, view.zero)[0]
    assert mix.weight.sum() == pytest.approx(1) == mix.level_weight.sum()
    most = np.exp(1.5 * view.log_noise[0])
    assert (belief[1:] <= most * np.e * said[:, 0, 1:].max(axis=0) + 1e-9).all()
    assert (belief[1:] >= said[:, 0, 1:].min(axis=0) / np.e / most - 1e-9).all()
    levels, shift = said[:, 0, 0] - view.zero[0], 2 * view.noise[0]
    above = belief[0] - view.zero[0]
    assert (levels.min() - shift) / most - 1e-9 <= above <= (levels.max() + shift) * most + 1e-9


@pytest.mark.parametrize("factor", [1e-6, 1e9])
@pytest.mark.parametrize("seed", range(4))
def test_units_are_not_seen(seed: int, factor: float) -> None:
    weights = np.zeros((1, 7))
    plain, scaled = (features(*seen(by * curve(seed)), weights) for by in (1.0, factor))
    np.testing.assert_allclose(plain, scaled, atol=1e-6)
    assert np.isfinite(plain).all()


def test_an_expert_that_failed_is_not_believed() -> None:
    view, said = seen(np.exp(-0.1 * np.arange(30)))
    log_weight = np.zeros((1, len(said)))
    before = gate(trained(), view, said, log_weight).weight[0]
    log_weight[0, 0] = -30.0
    after = gate(trained(), view, said, log_weight).weight[0]
    assert after[0] < 1e-3 * before[0]
