"""E-step of latent Dirichlet allocation for one partition, by private methods of scikit-learn.

The methods are called on a scikit-learn estimator that holds the current topics. If a release
changes these internals, the error of `check_scikit_learn` names what is missing. The statistics
that the E-step returns are already multiplied by the exponential of the expected logarithms of the
topics. `settings` are the parameters of the scikit-learn estimator, by name.
"""

from __future__ import annotations

import inspect
from typing import Any

import dask
import numpy as np
import sklearn
from sklearn.decomposition import LatentDirichletAllocation, _lda

from benchmarks.workloads.elastic import Partitions, is_sparse

__all__ = ["check_counts", "check_scikit_learn", "expect", "topic_bound", "topics_of"]

NEEDED = {
    "_e_step": ("X", "cal_sstats", "random_init"),
    "_approx_bound": ("X", "doc_topic_distr", "sub_sampling"),
}


def check_scikit_learn() -> None:
    """Raise RuntimeError if the installed scikit-learn lacks internals that this module calls."""
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
    """Raise ValueError if any count is negative or all counts are 0."""
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
    """Return the smallest count and the sum of all counts."""
    return float(X.min()) if min(X.shape) else 0.0, float(X.sum())


def expect(
    X: Any, topics: np.ndarray, settings: dict[str, Any]
) -> tuple[np.ndarray, float, float, int]:
    """Run the E-step on one partition.

    Parameters
    ----------
    X : array or sparse matrix, (n_documents, n_features)
        Word counts.
    topics : array, (n_components, n_features)
        Pseudo-counts of the words in each topic.
    settings : dict
        Parameters of the scikit-learn estimator.

    Returns
    -------
    stats : array, (n_components, n_features)
        Sufficient statistics.
    bound : float
        Variational bound in nats, without the term of the topics (see `topic_bound`).
    words, documents : float and int
        Sum of the counts, and number of rows.
    """
    model, X = _model(topics, settings), _counts(X)
    of_documents, stats = model._e_step(X, cal_sstats=True, random_init=False)
    bound = model._approx_bound(X, of_documents, sub_sampling=False) - _topic_term(model)
    return stats, float(bound), float(X.sum()), X.shape[0]


def topics_of(X: Any, topics: np.ndarray, settings: dict[str, Any], normalize: bool) -> np.ndarray:
    """Infer the topics of each document, (n_documents, n_components).

    Parameters
    ----------
    X, topics, settings
        See `expect`.
    normalize : bool
        Whether the topics of a document sum to 1.

    Raises
    ------
    ValueError
        If a count is negative or not finite.
    """
    X = _counts(X)
    least, words = _extent(X)
    if least < 0 or not np.isfinite(words):
        raise ValueError("X has a count that is negative or not finite")
    found, _ = _model(topics, settings)._e_step(X, cal_sstats=False, random_init=False)
    return found / found.sum(axis=1, keepdims=True) if normalize else found


def topic_bound(topics: np.ndarray, settings: dict[str, Any]) -> float:
    """Return the term of the variational bound that depends only on the topics, in nats.

    See `expect` for the parameters.
    """
    return _topic_term(_model(topics, settings))


def _topic_term(model: LatentDirichletAllocation) -> float:
    """Return the bound of zero documents."""
    topics, words = model.components_.shape
    return float(model._approx_bound(np.zeros((0, words)), np.zeros((0, topics)), False))


def _model(topics: np.ndarray, settings: dict[str, Any]) -> LatentDirichletAllocation:
    """Return a scikit-learn estimator that holds `topics`."""
    model = LatentDirichletAllocation(**settings, n_jobs=1)
    model.doc_topic_prior_ = model.doc_topic_prior
    model.topic_word_prior_ = model.topic_word_prior
    # Arrays from the network are read-only, and compiled code may require a writable one.
    model.components_ = np.array(topics)
    model.exp_dirichlet_component_ = np.exp(_lda._dirichlet_expectation_2d(model.components_))
    return model


def _counts(X: Any) -> Any:
    """Convert a block to a float64 csr matrix if it is sparse, else to a float64 array."""
    return (X.tocsr() if is_sparse(X) else np.asarray(X)).astype(float, copy=False)
