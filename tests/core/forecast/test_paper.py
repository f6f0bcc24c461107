"""The paper's fits find its families, prefer the better one, and weigh new reports more."""

import numpy as np
import pytest
from scipy.optimize import curve_fit

from dask_slaq.core.forecast.paper import DECAY, PaperPredictor, fit_losses
from dask_slaq.testing import check_predictor

K = np.arange(1.0, 41.0)
FAMILIES = {
    "sublinear": lambda k: 1.0 / (0.02 * k**2 + 0.3 * k + 0.5) + 0.2,
    "1/k": lambda k: 2.0 / k - 3.0,
    "1/k^2": lambda k: 7.0 / k**2,
    "superlinear": lambda k: 0.8 ** (k - 9.0) + 40.0,
    "slow": lambda k: 0.99 ** (k + 200.0) - 1e3,
}
AHEAD = np.array([1.0, 5.0, 10.0, 50.0])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_curve_of_a_family_is_found_whole(name):
    loss = FAMILIES[name]
    fit = fit_losses([loss(K).tolist()], AHEAD)
    np.testing.assert_allclose(fit.level, loss(K[-1]), rtol=1e-6, atol=1e-6)
    expected = loss(K[-1]) - loss(K[-1] + AHEAD)
    np.testing.assert_allclose(fit.fall[0], expected, rtol=0.02, atol=1e-6)


def test_all_jobs_are_fitted_as_if_alone():
    losses = [loss(K[: 6 + 7 * i]).tolist() for i, loss in enumerate(FAMILIES.values())]
    together = fit_losses(losses, AHEAD)
    for i, each in enumerate(losses):
        alone = fit_losses([each], AHEAD)
        np.testing.assert_allclose(alone.fall[0], together.fall[i], rtol=1e-6, atol=1e-9)


def by_curve_fit(loss, ahead):
    """Fit both families one after the other, and predict by the better one."""
    weight, fall = DECAY ** (K[-1] - K), loss[0] - loss[-1]
    found = []
    for family, start in (
        (lambda k, a, b, c, d: 1.0 / (a * k**2 + b * k + c) + d, [1e-4, 0.1, 1 / fall, loss[-1]]),
        (lambda k, mu, size, c: size * mu**k + c, [0.9, fall, loss[-1]]),
    ):
        most = [1.0 if len(start) == 3 else np.inf, *[np.inf] * (len(start) - 1)]
        bounds = [0.0] * (len(start) - 1) + [-np.inf], most
        how = {"sigma": weight**-0.5, "bounds": bounds, "xtol": 1e-14, "ftol": 1e-14}
        p, _ = curve_fit(family, K, loss, start, max_nfev=20_000, **how)
        found.append((weight @ (family(K, *p) - loss) ** 2, family(K[-1] + ahead, *p)))
    return min(found, key=lambda each: each[0])[1]


@pytest.mark.parametrize("seed", range(6))
def test_noisy_curves_are_fitted_as_by_curve_fit(seed):
    rng = np.random.default_rng(seed)
    loss = 1.0 / (0.05 * K + 0.4) + 0.3 + 0.003 * rng.standard_normal(len(K))
    fit = fit_losses([loss.tolist()], AHEAD[:3])
    np.testing.assert_allclose(fit.level - fit.fall[0], by_curve_fit(loss, AHEAD[:3]), rtol=2e-3)


@pytest.mark.parametrize("losses", [[1.0] * 9, list(range(9)), [3.0, 1.0, 3.0, 1.0, 3.0, 5.0]])
def test_a_loss_that_does_not_fall_is_not_predicted_to(losses):
    fit = fit_losses([losses], AHEAD)
    assert fit.rest[0] >= 0 and np.isfinite(fit.fall).all()
    assert fit.fall[0, -1] <= 1e-6 * max(map(abs, losses))


def test_old_reports_matter_less():
    steep, flat = 10.0 * 0.5 ** K[:20], np.full(20, 0.0)
    fit = fit_losses([np.concatenate([steep + 1, flat + 1]).tolist()], AHEAD)
    assert fit.fall[0, -1] < 1e-3


def test_the_predictor_keeps_the_rules():
    check_predictor(PaperPredictor)


def test_it_says_the_largest_change_and_ignores_the_target():
    predictor = PaperPredictor()
    predictor.add("a", target=0.0)
    for loss in (5.0, 4.0, 1.0, 0.9, 0.8, 0.75):
        predictor.report("a", loss)
    assert predictor.fit() == 1 and predictor.fit() == 0
    forecast = predictor.forecast(["a"])
    assert forecast.largest_change.tolist() == [3.0] and forecast.start.tolist() == [5.0]
