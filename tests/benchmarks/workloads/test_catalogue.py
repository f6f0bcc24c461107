"""Every workload of Table 1 has matching data, and its estimator trains on them and reports."""

from __future__ import annotations

import dask
import dask.array as da
import numpy as np
import pytest
from sklearn.base import clone

from benchmarks.workloads.catalogue import CATALOGUE
from benchmarks.workloads.synthetic import KINDS, make
from dask_slaq import instrument

each = pytest.mark.parametrize("workload", CATALOGUE.values(), ids=lambda row: row.name)


def test_the_nine_rows_are_there():
    """Latent Dirichlet allocation counts twice: EM and online."""
    assert len(CATALOGUE) == 10
    assert {row.kind for row in CATALOGUE.values()} == set(KINDS)
    assert all(name == row.name for name, row in CATALOGUE.items())


@each
def test_it_trains_on_its_data_and_reports_every_iteration(workload):
    pytest.importorskip(workload.source.partition(":")[0])
    rows = 90 if workload.kind == "documents" else 600
    data = dask.persist(*workload.data(rows, 3, seed=1))
    reports = []
    with instrument(reports.append), dask.config.set(scheduler="sync"):
        model = workload.estimator(3).fit(*data)
    assert len(reports) == 4 and reports[-1] < reports[0]
    assert getattr(model, "n_iter_", 3) == 3


@each
def test_an_estimator_is_unfitted_and_can_be_cloned(workload):
    pytest.importorskip(workload.source.partition(":")[0])
    model = workload.estimator(7, random_state=5)
    settings = clone(model).get_params()
    assert settings["max_iter"] == 7 and settings.get("random_state") in (5, None)
    assert workload.estimator(7) is not workload.estimator(7)


@pytest.mark.parametrize("kind", KINDS)
def test_data_are_lazy_arrays_of_the_size_that_was_asked_for(kind):
    X, *y = make(kind, 100, 3, seed=2)
    assert X.numblocks == (3, 1) and X.chunks[0] == (34, 33, 33)
    assert not any(isinstance(value, np.ndarray) for value in dict(X.dask).values())
    computed, *targets = dask.compute(X, *y)
    assert computed.shape == X.shape and computed.dtype == X.dtype
    assert computed.flags.c_contiguous and np.isfinite(computed).all()
    for lazy, target in zip(y, targets, strict=True):
        assert lazy.chunks == X.chunks[:1] and isinstance(lazy, da.Array)
        assert target.shape == (100,) and target.dtype == lazy.dtype
        assert len(np.unique(target)) > 1


@pytest.mark.parametrize("kind", KINDS)
def test_data_depend_on_the_seed_alone(kind):
    one, same, other = (make(kind, 60, 2, seed)[0].compute() for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)
    assert not np.array_equal(one[:30], one[30:])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("pictures", 10, 2), "kind must be one of classes, .* not 'pictures'"),
        (("classes", 3, 4), "rows must be an integer >= 4, not 3"),
        (("classes", 3.5, 2), "rows must be an integer >= 2, not 3.5"),
        (("classes", 3, 0), "partitions must be an integer >= 1, not 0"),
        (("classes", 3, 1, -1), "seed must be an integer >= 0, not -1"),
    ],
)
def test_sizes_that_make_no_sense_are_refused(arguments, says):
    with pytest.raises(ValueError, match=says):
        make(*arguments)


def test_no_iterations_are_refused():
    with pytest.raises(ValueError, match="max_iter must be an integer >= 1, not 0"):
        CATALOGUE["linear-svm"].estimator(0)
