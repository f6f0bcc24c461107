"""dask-ml's linear models report every iteration of dask-glm's solvers."""

import numpy as np
import pytest
from adapters.libraries import reported
from dask_ml.linear_model import LinearRegression, LogisticRegression, PoissonRegression

from dask_slaq.adapters import instrument

pytestmark = pytest.mark.usefixtures("in_this_thread")

ESTIMATORS = {
    "logistic": (LogisticRegression, lambda z, y: np.sum(np.logaddexp(0, z) - y * z)),
    "normal": (LinearRegression, lambda z, y: np.sum((y - z) ** 2)),
    "poisson": (PoissonRegression, lambda z, y: np.sum(np.exp(z) - y * z)),
}
PENALTIES = {
    "l1": lambda b: np.abs(b).sum(),
    "l2": lambda b: (b**2).sum() / 2,
    "elastic_net": lambda b: np.abs(b).sum() / 2 + (b**2).sum() / 4,
}
SOLVERS = ["gradient_descent", "proximal_grad", "lbfgs"]


def objective(fitted, rows, family, penalty=None, C=1.0):
    """What the solver minimizes, from the final coefficients.

    The penalty is on the coefficients of the normalized columns: each divided by its standard
    deviation, and centred where there is an intercept.
    """
    coef, intercept = fitted.coef_, fitted.intercept_
    loss = ESTIMATORS[family][1](rows.x @ coef + intercept, getattr(rows, family))
    if penalty is None:
        return loss
    scaled = coef * rows.x.std(axis=0)
    if fitted.fit_intercept:
        scaled = np.append(scaled, intercept + coef @ rows.x.mean(axis=0))
    return loss + PENALTIES[penalty](scaled) / C


def fit(rows, family, **settings):
    return ESTIMATORS[family][0](**settings).fit(rows.chunked("x"), rows.chunked(family))


@pytest.mark.parametrize(
    ("family", "solver"), [*zip(ESTIMATORS, SOLVERS, strict=True), ("poisson", "gradient_descent")]
)
def test_every_iteration_reports_the_objective(rows, family, solver):
    settings = {"solver": solver, "max_iter": 3, "tol": 0.0}
    with reported() as losses:
        observed = fit(rows, family, **settings)
    plain = fit(rows, family, **settings)

    assert len(losses) == 1 + 3  # the starting point, and three iterations
    assert all(type(loss) is float for loss in losses)
    assert np.all(np.diff(losses) < 0)
    at_zero = ESTIMATORS[family][1](np.zeros(len(rows.x)), getattr(rows, family))
    assert losses[0] == pytest.approx(at_zero)
    penalty = None if solver == "gradient_descent" else "l2"
    assert losses[-1] == pytest.approx(objective(observed, rows, family, penalty))
    np.testing.assert_allclose(observed._coef, plain._coef, rtol=0, atol=1e-8)


@pytest.mark.parametrize(
    ("penalty", "fit_intercept"), [("l1", True), ("l2", False), ("elastic_net", True)]
)
def test_proximal_grad_reports_the_penalty_too(rows, penalty, fit_intercept):
    with reported() as losses:
        fitted = fit(
            rows,
            "logistic",
            solver="proximal_grad",
            penalty=penalty,
            C=0.05,
            max_iter=3,
            fit_intercept=fit_intercept,
        )
    expected = objective(fitted, rows, "logistic", penalty, C=0.05)
    assert losses[-1] == pytest.approx(expected)
    assert losses[-1] != pytest.approx(objective(fitted, rows, "logistic"))


def test_proximal_grad_reports_its_recalculating_iterations_once(rows):
    """Every tenth iteration computes the loss anew before it goes on."""
    rows.x[:, 1:] = rows.x[:, :1] + rows.x[:, 1:] / 10  # nearly collinear: far from done by then
    with reported() as losses:
        fit(rows, "logistic", solver="proximal_grad", max_iter=12, tol=0, C=100.0)
    assert len(losses) == 1 + 12
    assert np.all(np.diff(losses) < 0)


def test_lbfgs_reports_accepted_iterations_not_evaluations(rows):
    """Far from the optimum a line search needs more than one evaluation."""
    from dask_glm import algorithms, families

    evaluations = []

    class Counting(families.Poisson):
        @staticmethod
        def pointwise_loss(beta, X, y):
            evaluations.append(1)
            return families.Poisson.pointwise_loss(beta, X, y)

    with reported() as losses:
        algorithms.lbfgs(
            rows.chunked("x"), 100 * rows.chunked("poisson"), family=Counting, max_iter=4, tol=0
        )
    assert len(losses) == 1 + 4
    assert len(evaluations) > 1 + 4
    assert np.all(np.diff(losses) < 0)


EXACT = {"penalty": "l2", "C": 0.1, "solver_kwargs": {"abstol": 0.0, "reltol": 0.0}}


@pytest.mark.parametrize(
    ("solver", "family", "more"),
    [
        ("newton", "logistic", {"fit_intercept": True}),
        ("newton", "normal", {"fit_intercept": False}),
        ("newton", "poisson", {"fit_intercept": True}),
        ("admm", "logistic", {**EXACT, "penalty": "l1"}),
        ("admm", "normal", EXACT),
        ("admm", "poisson", {**EXACT, "penalty": "elastic_net"}),
    ],
)
def test_newton_and_admm_report_each_iterate_but_the_last(rows, solver, family, more):
    settings = {"solver": solver, "tol": 0.0, **more}
    most = 3 - (solver == "newton")  # dask-glm's newton makes one more than it is allowed
    with reported() as losses:
        observed = fit(rows, family, max_iter=most, **settings)
    plain = fit(rows, family, max_iter=most, **settings)
    before = fit(rows, family, max_iter=most - 1, **settings)

    assert len(losses) == 3
    at_zero = ESTIMATORS[family][1](np.zeros(len(rows.x)), getattr(rows, family))
    assert losses[0] == pytest.approx(at_zero)
    penalty = more.get("penalty")
    assert losses[-1] == pytest.approx(objective(before, rows, family, penalty, C=0.1))
    np.testing.assert_array_equal(observed._coef, plain._coef)


def test_a_family_without_a_likelihood_is_fitted_unobserved(rows):
    from dask_glm import algorithms, families

    class Silent:
        gradient = families.Normal.gradient
        hessian = families.Normal.hessian

    losses = []
    with pytest.warns(RuntimeWarning, match="AttributeError") as warned, instrument(losses.append):
        found = algorithms.newton(rows.x, rows.normal, family=Silent, normalize=False)
    assert len(warned) == 1 and losses == []
    np.testing.assert_allclose(found, np.linalg.lstsq(rows.x, rows.normal)[0])


def test_names_imported_before_the_block_are_observed(rows):
    from dask_glm.algorithms import gradient_descent

    with reported() as losses:
        gradient_descent(rows.chunked("x"), rows.chunked("logistic"), max_iter=2)
        assert len(losses) == 1 + 2
        gradient_descent(rows.x, rows.logistic, max_iter=2, normalize=False)  # NumPy arrays
    assert len(losses) == 2 * (1 + 2)
