"""The E-step of latent Dirichlet allocation for one partition: scikit-learn's, which is private.

It is called through a scikit-learn estimator that is given the topics so far. `check_scikit_learn`
says in one sentence what is missing if a release changes these internals. The statistics that the
E-step returns are already multiplied by the exponential of the expected logarithms of the topics.
"""

from __future__ import annotations

import inspect
from typing import Any

import dask
import numpy as np
import sklearn
from sklearn.decomposition import LatentDirichletAllocation, _lda

from dask_slaq.workloads.elastic import Partitions, is_sparse

__all__ = ["check_counts", "check_scikit_learn", "expect", "topic_bound", "topics_of"]

NEEDED = {
    "_e_step": ("X", "cal_sstats", "random_init"),
    "_approx_bound": ("X", "doc_topic_distr", "sub_sampling"),
}


def check_scikit_learn() -> None:
    """Raise RuntimeError if the installed scikit-learn lacks what this module calls."""
    missing = [
        f"{name}({', '.join(parameters)})"
        for name, parameters in NEEDED.items()
        if not _takes(getattr(LatentDirichletAllocation, name, None), parameters)
    ]
    if not hasattr(_lda, "_dirichlet_expectation_2d"):
        missing.append("_dirichlet_expectation_2d")
    if missing:
        raise RuntimeError(
            f"LatentDirichletAllocation of scikit-learn {sklearn.__version__} lacks internals "
            f"that are needed here: {', '.join(missing)}; releases 1.7 and 1.9 have them"
        )


def _takes(method: Any, parameters: tuple[str, ...]) -> bool:
    return callable(method) and set(parameters) <= set(inspect.signature(method).parameters)


def check_counts(parts: Partitions) -> None:
    """Raise ValueError if a partition has a negative count, or none has any word."""
    found = dask.compute(*parts.map(_extent))
    for number, (least, _) in enumerate(found):
        if least < 0:
            raise ValueError(
                f"partition {number} of {len(found)} has a negative count, {least:g}; "
                "counts of words are at least 0"
            )
    if not sum(words for _, words in found):
        raise ValueError("X has no word: all counts are 0")


def _extent(X: Any) -> tuple[float, float]:
    """The least count, and the sum of all."""
    return float(X.min()) if min(X.shape) else 0.0, float(X.sum())


def expect(
    X: Any, topics: np.ndarray, settings: dict[str, Any]
) -> tuple[np.ndarray, float, float, int]:
    """Statistics (n_components, n_features), the documents' bound, words and documents."""
    model, X = _model(topics, settings), _counts(X)
    of_documents, stats = model._e_step(X, cal_sstats=True, random_init=False)
    bound = model._approx_bound(X, of_documents, sub_sampling=False) - _topic_term(model)
    return stats, float(bound), float(X.sum()), X.shape[0]


def topics_of(X: Any, topics: np.ndarray, settings: dict[str, Any], normalize: bool) -> np.ndarray:
    """Topics of each document.

    Raises
    ------
    ValueError
        A count is negative or not finite.
    """
    X = _counts(X)
    least, words = _extent(X)
    if least < 0 or not np.isfinite(words):
        raise ValueError("X has a count that is negative or not finite")
    found, _ = _model(topics, settings)._e_step(X, cal_sstats=False, random_init=False)
    return found / found.sum(axis=1, keepdims=True) if normalize else found


def topic_bound(topics: np.ndarray, settings: dict[str, Any]) -> float:
    """The term of the variational bound that belongs to the topics and to no document."""
    return _topic_term(_model(topics, settings))


def _topic_term(model: LatentDirichletAllocation) -> float:
    """The bound for no documents at all."""
    topics, words = model.components_.shape
    return float(model._approx_bound(np.zeros((0, words)), np.zeros((0, topics)), False))


def _model(topics: np.ndarray, settings: dict[str, Any]) -> LatentDirichletAllocation:
    """A scikit-learn estimator with these topics."""
    model = LatentDirichletAllocation(**settings, n_jobs=1)
    model.doc_topic_prior_ = model.doc_topic_prior
    model.topic_word_prior_ = model.topic_word_prior
    # Copied: what comes over the network is read-only, and compiled code may want to write.
    model.components_ = np.array(topics)
    model.exp_dirichlet_component_ = np.exp(_lda._dirichlet_expectation_2d(model.components_))
    return model


def _counts(X: Any) -> Any:
    """A block as floats of one kind: csr, or dense."""
    return (X.tocsr() if is_sparse(X) else np.asarray(X)).astype(float, copy=False)
