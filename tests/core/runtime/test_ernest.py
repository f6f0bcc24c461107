"""Batched fits of Ernest's law agree with SciPy's fits of one problem at a time."""

import numpy as np
import pytest
import scipy.optimize
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.core.runtime.ernest import nnls

counts = st.lists(st.integers(1, 1000), min_size=1, max_size=12)
laws = st.tuples(*[st.floats(0, 5), st.floats(0.1, 50), st.floats(0, 2), st.floats(0, 1)])


def error(matrix, x):
    return float(np.sum((matrix @ x - 1.0) ** 2))


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(1, 12), st.integers(1, 6))
def test_nnls_is_as_good_as_that_of_scipy(seed, terms, observations, problems):
    draw = np.random.default_rng(seed)
    matrices = draw.normal(size=(problems, observations, terms))
    right = np.ones((problems, observations))
    gram = np.einsum("pij,pik->pjk", matrices, matrices)
    got = nnls(gram, np.einsum("pij,pi->pj", matrices, right))
    assert (got >= 0).all()
    for matrix, x in zip(matrices, got, strict=True):
        expected, _ = scipy.optimize.nnls(matrix, np.ones(observations))
        assert error(matrix, x) == pytest.approx(error(matrix, expected), abs=1e-7)


@given(counts, laws, st.integers(0, 10**6))
def test_laws_fit_as_well_as_those_of_scipy(threads, terms, seed):
    n = np.array(threads, float)
    noise = np.random.default_rng(seed).uniform(0.5, 2.0, len(n))
    seconds = scaling.fitted_seconds(np.array(terms), n) * noise
    sums = scaling.moments(n, seconds).sum(axis=0, keepdims=True)
    law = scaling.fit(sums)
    matrix = scaling.features(n) / seconds[:, None]
    expected, _ = scipy.optimize.nnls(matrix, np.ones(len(n)))
    assert sums[0, -1] == len(n)
    assert error(matrix, law[0]) == pytest.approx(error(matrix, expected), abs=1e-6)
    assert scaling.residual(sums, law)[0] == pytest.approx(error(matrix, law[0]), abs=1e-6)


def test_nothing_to_fit_and_nothing_seen():
    assert nnls(np.zeros((0, 4, 4)), np.zeros((0, 4))).shape == (0, 4)
    assert (nnls(np.zeros((3, 4, 4)), np.zeros((3, 4))) == 0).all()


@given(counts, laws, st.floats(1e-3, 1e3))
def test_another_unit_of_time_is_a_factor(threads, terms, unit):
    n = np.array(threads, float)
    seconds = scaling.fitted_seconds(np.array(terms), n)
    sums = scaling.moments(n, seconds)
    expected = scaling.moments(n, seconds / unit)
    units = np.full(len(n), unit)
    assert scaling.rescaled(sums, units) == pytest.approx(expected, rel=1e-9)
    assert scaling.pooled(sums, units) == pytest.approx(expected.sum(axis=0), rel=1e-9)


@given(laws, st.floats(0.01, 100))
def test_the_scale_of_a_known_shape_is_found(terms, factor):
    shape = np.array(terms)
    n = np.array([1.0, 3.0, 10.0])
    sums = scaling.moments(n, factor * scaling.fitted_seconds(shape, n)).sum(axis=0)
    assert scaling.scale_of(sums[None, :], shape)[0] == pytest.approx(factor, rel=1e-6)


@given(laws, st.sampled_from([0.05, 0.25, 0.9]))
def test_beyond_the_efficient_threads_a_further_one_adds_less_than_that_part(terms, part):
    law = np.array([terms])

    def adds(threads):
        """What a further thread adds, over what the mean one gives."""
        n = np.array([threads, threads * (1 + 1e-6)])
        log = np.log(scaling.fitted_seconds(law[0], n))
        return (log[0] - log[1]) / 1e-6

    best = float(scaling.efficient(law, part)[0])
    assert best >= 1.0
    if best > 1.01:
        assert adds(min(best, 1e9) / 1.02) >= part - 1e-4
    if best < 1e9:
        assert adds(best * 1.02) <= part + 1e-4


@given(laws)
def test_no_thread_count_beats_the_optimum(terms):
    law = np.array([terms])
    best = float(scaling.optimum(law)[0])
    grid = np.geomspace(1.0, 1e6, 200)
    least = scaling.fitted_seconds(law[0], np.array(min(max(best, 1.0), 1e6)))
    assert (scaling.fitted_seconds(law[0], grid) >= least * (1 - 1e-9)).all()
