"""The paper's fits find its families, prefer the better one, and weigh new reports more."""

import numpy as np
import pytest

from dask_slaq.core.forecast.paper import PaperPredictor, fit_losses
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


@pytest.mark.parametrize("a, b, c, reports", [(0.043, 0.043, 0.74, 9), (0.0023, 0.058, 1.0, 19)])
def test_a_start_far_from_the_curve_is_no_trap(a, b, c, reports):
    loss = lambda k: 1.0 / (a * k**2 + b * k + c)  # noqa: E731
    fit = fit_losses([loss(K[:reports]).tolist()], AHEAD)
    np.testing.assert_allclose(fit.level - fit.fall[0], loss(reports + AHEAD), atol=1e-6)


def test_all_jobs_are_fitted_as_if_alone():
    losses = [loss(K[: 6 + 7 * i]).tolist() for i, loss in enumerate(FAMILIES.values())]
    together = fit_losses(losses, AHEAD)
    for i, each in enumerate(losses):
        alone = fit_losses([each], AHEAD)
        np.testing.assert_allclose(alone.fall[0], together.fall[i], rtol=1e-6, atol=1e-9)


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
