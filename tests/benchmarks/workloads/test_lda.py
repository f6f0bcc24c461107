"""LDA gives scikit-learn's result, however the documents are partitioned."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.decomposition import LatentDirichletAllocation as Reference

import dask_slaq as slaq
from benchmarks.workloads.lda import LatentDirichletAllocation

K, DOCUMENTS, WORDS = 4, 120, 60
SETTINGS = {"n_components": K, "max_iter": 5, "random_state": 3}


def corpus():
    rng = np.random.default_rng(0)
    topics = rng.dirichlet(np.full(WORDS, 0.1), K)
    mixed = rng.dirichlet(np.full(K, 0.3), DOCUMENTS) @ topics
    return np.array([rng.multinomial(rng.integers(20, 60), row) for row in mixed])


COUNTS = corpus()
SPLIT = da.from_array(COUNTS, chunks=(50, WORDS))


class FromConstant(Reference):
    """scikit-learn's, whose documents' topics start from a constant, as ours do."""

    def _e_step(self, X, cal_sstats, random_init, parallel=None):
        return super()._e_step(X, cal_sstats, random_init=False, parallel=parallel)


@pytest.fixture(scope="module")
def ours():
    return LatentDirichletAllocation(**SETTINGS).fit(SPLIT)


def test_batch_is_scikit_learn_on_the_same_documents(ours):
    reference = FromConstant(**SETTINGS).fit(COUNTS)
    np.testing.assert_allclose(ours.components_, reference.components_, rtol=1e-9)
    assert ours.bound_ == pytest.approx(reference.bound_, rel=1e-11)
    assert ours.score(SPLIT) == pytest.approx(reference.score(COUNTS), rel=1e-11)
    assert ours.perplexity(SPLIT) == pytest.approx(reference.perplexity(COUNTS), rel=1e-11)


def test_batch_is_plain_scikit_learn_where_documents_converge():
    """Nothing is replaced in the reference: with E-steps to the end, their start is forgotten."""
    tight = {**SETTINGS, "max_iter": 2, "mean_change_tol": 1e-12, "max_doc_update_iter": 3000}
    tight |= {"doc_topic_prior": 1.0}
    ours = LatentDirichletAllocation(**tight).fit(SPLIT)
    reference = Reference(**tight).fit(COUNTS)
    np.testing.assert_allclose(ours.components_, reference.components_, rtol=1e-6)
    assert ours.bound_ == pytest.approx(reference.bound_, rel=1e-8)


def test_online_is_scikit_learn_batch_by_batch():
    ours = LatentDirichletAllocation(**SETTINGS, learning_method="online").fit(SPLIT)
    reference = FromConstant(**SETTINGS, learning_method="online", total_samples=DOCUMENTS)
    random = np.random.RandomState(SETTINGS["random_state"])
    random.gamma(100.0, 0.01, (K, WORDS))
    order = np.concatenate([random.permutation(3), random.permutation(3)])[:5]
    for block in order:
        documents = COUNTS[50 * block : 50 * block + 50]
        reference.batch_size = len(documents)
        reference.partial_fit(documents)
    np.testing.assert_allclose(ours.components_, reference.components_, rtol=1e-9)
    assert ours.bound_ == pytest.approx(reference.perplexity(COUNTS), rel=1e-11)


@pytest.mark.parametrize("method", ["batch", "online"])
def test_the_loss_is_minus_the_bound_per_word_of_each_iterate(method):
    reports = []
    with slaq.instrument(reports.append):
        model = LatentDirichletAllocation(**SETTINGS, learning_method=method).fit(SPLIT)
    assert reports == model.loss_curve_
    assert len(reports) == 5 + 1
    assert model.loss_curve_[-1] == pytest.approx(-model.score(SPLIT) / COUNTS.sum())
    assert model.loss_curve_[-1] < model.loss_curve_[0]
    if method == "batch":
        assert all(np.diff(reports) < 0)
        shorter = LatentDirichletAllocation(**{**SETTINGS, "max_iter": 2}).fit(SPLIT)
        assert shorter.loss_curve_ == reports[:3]


def test_an_online_report_is_an_estimate_for_all_documents():
    """Three partitions with the same documents: each says what all three would."""
    same = da.concatenate([da.from_array(COUNTS, chunks=-1)] * 3)
    online = LatentDirichletAllocation(**SETTINGS, learning_method="online").fit(same)
    batch = LatentDirichletAllocation(**SETTINGS).fit(same)
    assert online.loss_curve_[0] == pytest.approx(batch.loss_curve_[0], rel=1e-11)


@pytest.mark.parametrize("form", [sp.csr_matrix, sp.csr_array, sp.coo_matrix])
def test_sparse_blocks_are_as_dense(form, ours):
    model = LatentDirichletAllocation(**SETTINGS).fit(SPLIT.map_blocks(form))
    np.testing.assert_allclose(model.components_, ours.components_, rtol=1e-12)


def test_sparse_and_dense_arrays_in_one_piece(ours):
    for X in (COUNTS, sp.csr_matrix(COUNTS)):
        model = LatentDirichletAllocation(**SETTINGS).fit(X)
        np.testing.assert_allclose(model.components_, ours.components_, rtol=1e-9)


def test_transform_is_lazy_and_scikit_learns(ours):
    topics = ours.transform(SPLIT.rechunk((50, 20)))
    assert topics.shape == (DOCUMENTS, K) and topics.chunks == ((50, 50, 20), (K,))
    reference = FromConstant(**SETTINGS).fit(COUNTS)
    np.testing.assert_allclose(topics.compute(), reference.transform(COUNTS), rtol=1e-8)
    np.testing.assert_allclose(ours.transform(sp.csr_matrix(COUNTS)), topics.compute())
    assert ours.transform(SPLIT, normalize=False).sum().compute() > COUNTS.sum()


def test_it_is_an_estimator_of_scikit_learn(ours):
    copy = clone(ours.set_params(max_doc_update_iter=50))
    assert copy.get_params() == ours.get_params() and not hasattr(copy, "components_")
    ours.set_params(max_doc_update_iter=100)
    assert copy.set_params(max_iter=1).fit_transform(SPLIT).shape == (DOCUMENTS, K)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (-1.0, "partition 1 of 3 has a negative count, -1"),
        (np.nan, "partition 1 of 3 has a value that is not finite"),
    ],
)
def test_bad_counts_are_named(spoil, words, ours):
    bad = COUNTS.astype(float)
    bad[70, 8] = spoil
    X = da.from_array(bad, chunks=(50, WORDS))
    with pytest.raises(ValueError, match=words):
        LatentDirichletAllocation(**SETTINGS).fit(X)
    with pytest.raises(ValueError, match=words):
        ours.score(X)
    with pytest.raises(ValueError, match="negative or not finite"):
        ours.transform(X).compute()


def test_other_bad_data_is_refused(ours):
    with pytest.raises(ValueError, match="no word"):
        LatentDirichletAllocation().fit(np.zeros((3, 3)))
    with pytest.raises(ValueError, match="is empty"):
        LatentDirichletAllocation().fit(da.from_array(COUNTS, chunks=((120, 0), WORDS)))
    with pytest.raises(ValueError, match="59 columns, the model was fitted with 60"):
        ours.score(COUNTS[:, 1:])
    with pytest.raises(ValueError, match="59 columns, the model was fitted with 60"):
        ours.transform(SPLIT[:, 1:])


@pytest.mark.parametrize(
    "setting",
    [
        {"n_components": 0},
        {"max_iter": 0},
        {"max_iter": 2.5},
        {"learning_method": "offline"},
        {"learning_decay": 1.5},
        {"learning_offset": -1},
        {"doc_topic_prior": 0},
        {"batch_partitions": 0},
    ],
)
def test_a_bad_setting_is_named(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        LatentDirichletAllocation(**setting).fit(COUNTS)


def test_other_internals_of_scikit_learn_are_one_sentence(monkeypatch):
    monkeypatch.setattr(Reference, "_e_step", lambda self, X: None)
    with pytest.raises(RuntimeError, match=r"lacks .*: _e_step\(X, cal_sstats, random_init\); "):
        LatentDirichletAllocation().fit(COUNTS)
