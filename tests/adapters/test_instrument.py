"""Each `instrument` block receives the losses of its own fits, and leaves no patch behind."""

import contextvars
import sys
import threading

import dask
import numpy as np
import pytest
from adapters.libraries import reported
from commands import python
from dask.local import get_sync
from driving import until

import dask_slaq
from dask_slaq.adapters import instrument, loop_states, observe_fits
from dask_slaq.adapters.observing.session import expect
from dask_slaq.client import training


@pytest.fixture
def fit(in_this_thread, rows):
    """Fit a model that reports four losses; import what it needs first."""
    from dask_ml.linear_model import LogisticRegression

    def fit(rows=rows, solver="gradient_descent", max_iter=3):
        x, y = rows.chunked("x"), rows.chunked("logistic")
        return LogisticRegression(solver=solver, max_iter=max_iter, tol=0).fit(x, y)

    return fit


def library_objects():
    """Everything in the libraries that an adapter could have touched, by identity."""
    from dask_glm import algorithms
    from dask_ml.cluster import k_means

    found = {(m.__name__, n): v for m in (algorithms, k_means) for n, v in vars(m).items()}
    for name, solver in algorithms._solvers.items():
        found["solver", name] = solver
        found["cell", name] = solver.__closure__[0].cell_contents
    return found


def changed(before, after):
    return {key for key in {*before, *after} if before.get(key) is not after.get(key)}


def in_thread(function, *args):
    result = []
    thread = threading.Thread(target=lambda: result.append(function(*args)))
    thread.start()
    thread.join(60)
    assert result, "the thread failed"
    return result[0]


@pytest.mark.parametrize("solver", ["newton", "admm", "lbfgs", "proximal_grad", "gradient_descent"])
def test_losses_come_along_with_what_a_fit_computes(fit, solver):
    graphs, losses = [], []

    def get(*args, **kwargs):
        graphs.append(len(losses))
        return get_sync(*args, **kwargs)

    with dask.config.set(scheduler=get):
        fit(solver=solver)
        plain = len(graphs)
        with instrument(losses.append):
            fit(solver=solver)
    assert len(graphs) == 2 * plain and len(losses) >= 3


def test_nothing_stays_patched(fit):
    before, finders = library_objects(), list(sys.meta_path)
    with instrument(lambda loss: None):
        fit()
        during = library_objects()
    assert changed(before, during) == {
        ("cell", "gradient_descent"),
        ("cell", "proximal_grad"),
        ("cell", "lbfgs"),
        ("cell", "newton"),
        ("cell", "admm"),
        *(("dask_glm.algorithms", name) for name in ("compute", "persist", "fmin_l_bfgs_b")),
        *(("dask_glm.algorithms", name) for name in ("da", "dot", "delayed")),
        ("dask_ml.cluster.k_means", "_kmeans_single_lloyd"),
        *(("dask_ml.cluster.k_means", name) for name in ("compute", "da")),
        ("dask_ml.cluster.k_means", "pairwise_distances_argmin_min"),
        ("dask_ml.cluster.k_means", "_kmeans_plusplus"),  # a repair
    }
    assert not changed(before, library_objects())
    assert sys.meta_path == finders
    fit()


def test_an_exception_in_fit_is_the_users_and_undoes(fit, rows):
    before = library_objects()
    rows.logistic = rows.logistic[:40]
    with pytest.raises(Exception, match="") as plain:
        fit()
    with pytest.raises(plain.type), instrument(lambda loss: None):
        fit()
    assert not changed(before, library_objects())


def test_a_wrong_call_fails_as_without_the_block():
    from dask_glm.algorithms import lbfgs

    with (
        pytest.raises(TypeError, match="missing 1 required positional argument"),
        instrument(print),
    ):
        lbfgs(np.ones((2, 1)))


def test_the_innermost_block_gets_the_reports(fit):
    outer, inner = [], []
    with instrument(outer.append):
        with instrument(inner.append):
            fit()
        assert (len(outer), len(inner)) == (0, 4)
        fit()
    assert (len(outer), len(inner)) == (4, 4)


def test_another_thread_reports_nothing(fit):
    with reported() as losses:
        theirs = in_thread(fit)
        assert losses == []
        ours = fit()
    assert len(losses) == 4
    np.testing.assert_array_equal(theirs._coef, ours._coef)


def test_a_context_that_outlives_its_block_reports_nothing(fit):
    with reported() as losses:
        context = contextvars.copy_context()
        context.run(fit)
        assert len(losses) == 4
    with instrument(lambda loss: None):  # the patches are on, but not for that context
        context.run(fit)
    assert len(losses) == 4


def test_a_block_may_be_left_in_another_context(fit):
    before = library_objects()
    block = instrument(lambda loss: None)
    contextvars.copy_context().run(block.__enter__)
    contextvars.copy_context().run(block.__exit__, None, None, None)
    assert not changed(before, library_objects())


@pytest.mark.parametrize("solver", ["gradient_descent", "lbfgs", "admm"])
def test_a_failing_report_costs_one_warning(fit, solver):
    calls = []

    def report(loss):
        calls.append(loss)
        raise OSError("no network")

    plain = fit(solver=solver)
    with pytest.warns(RuntimeWarning, match="OSError: no network") as warned, instrument(report):
        observed = [fit(solver=solver), fit(solver=solver)]
    assert len([w for w in warned if w.category is RuntimeWarning]) == 1
    assert len(calls) == 2  # one try a fit
    for each in observed:
        np.testing.assert_array_equal(each._coef, plain._coef)


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_a_warning_made_an_error_does_not_end_the_fit(fit):
    def report(loss):
        raise OSError("no network")

    with instrument(report):
        fit()


def test_an_interrupt_in_the_report_is_not_swallowed(fit):
    before = library_objects()

    def report(loss):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), instrument(report):
        fit()
    assert not changed(before, library_objects())


def test_by_default_reports_go_to_the_open_job(fit, monkeypatch):
    losses = []
    monkeypatch.setattr(training, "report", losses.append)
    with instrument():
        fit()
    assert len(losses) == 4


def test_a_fit_tells_how_many_losses_it_will_report_at_most(fit):
    told, losses = [], []
    with observe_fits(losses.append, expect=told.append):
        fit()
    assert len(told) == 1 and told[0] >= len(losses)


@pytest.mark.parametrize("iterations", [None, 0, -1, 2.5, "9"])
def test_what_is_no_number_of_iterations_tells_nothing(iterations):
    told = []
    with observe_fits(print, expect=told.append):
        expect(iterations)
    assert told == []


@pytest.mark.parametrize("what", ["expect", "describe"])
def test_telling_that_fails_costs_one_warning(fit, what):
    def broken(told):
        raise RuntimeError("boom")

    losses = []
    with (
        pytest.warns(RuntimeWarning, match="boom") as warned,
        observe_fits(losses.append, **{what: broken}),
    ):
        fit()
        fit()
    assert len(warned) == 1 and len(losses) == 8


def test_the_scheduler_knows_the_length_of_a_job_of_one_fit(client):
    client.register_plugin(dask_slaq.SlaqPlugin(policy="fair", epoch="1h"))
    jobs = client.cluster.scheduler.plugins["slaq"].engine.jobs

    def told(**settings):
        found = []
        with dask_slaq.job("a", client=client, **settings) as job:
            for fit in (1, 2, 3):
                expect(3)
                job.report(1 / fit)
                client.sync(until, lambda fit=fit: jobs["a"].iteration == fit)
                found.append(jobs["a"].max_iter)
        return found

    assert told() == [4, None, None]  # a second fit may be followed by any number of further ones
    assert told(max_iter=50) == [50, 50, 50]


def test_report_must_be_callable():
    with pytest.raises(TypeError, match="report must be callable, not 3"), instrument(3):
        pass


SHOWN = """
import sys
import dask_slaq
from dask_slaq.adapters import loop_states
with dask_slaq.instrument(print):
    assert {*loop_states().values()} == {"library not imported"}
assert "xgboost" in dir(dask_slaq) and dask_slaq.xgboost.LOOPS
assert {"dask_glm", "dask_ml", "sklearn", "scipy", "torch", "xgboost"}.isdisjoint(sys.modules)
"""


def test_neither_states_nor_names_of_the_package_import_a_library():
    python(SHOWN)


def test_states_follow_blocks():
    import dask_glm.algorithms  # noqa: F401

    name = "dask_glm.algorithms.lbfgs"
    assert loop_states()[name] == "ready for a block"
    with dask_slaq.instrument(print):
        assert loop_states()[name] == "active"
