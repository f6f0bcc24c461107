"""Latent Dirichlet allocation: variational EM with one task a partition and iteration.

The E-step and the bound are scikit-learn's, called on the workers; the M-step is a sum in fixed
order, and a line of arithmetic where `fit` was called. The topics of a document start from a
constant and not at random, so that the result depends on nothing but the data, how it is split,
and the first topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from dask_slaq.adapters.observing import expect, publish
from dask_slaq.workloads import lda_e_step as expectation
from dask_slaq.workloads.elastic import Partitions, as_blocks, check_columns, map_rows

__all__ = ["LatentDirichletAllocation"]


class LatentDirichletAllocation(TransformerMixin, BaseEstimator):
    """Topics of documents, by variational Bayes [1]_, [2]_.

    Each iteration reports minus the variational bound per word, in nats: its exponential is the
    perplexity. ``max_iter`` iterations take ``max_iter + 1`` passes, as the last bound needs one.
    Persist `X` first if it is to be read once only.

    Parameters
    ----------
    n_components : int
        Topics.
    max_iter : int
        Iterations. Of online learning too: there an iteration is a few partitions, and not all.
    learning_method : {"batch", "online"}
        With "online", an iteration sees the next `batch_partitions` of an order of the partitions
        that is drawn anew for each pass, and moves the topics by the weight
        ``(learning_offset + iteration) ** -learning_decay``. The bounds that it reports are of
        those partitions, scaled, and so noisy; the last one is of all data.
    doc_topic_prior, topic_word_prior : float, optional
        ``1 / n_components`` by default.
    learning_decay, learning_offset : float
        Of online learning; decay in [0, 1], offset at least 0.
    batch_partitions : int
        Partitions that one iteration of online learning sees.
    max_doc_update_iter : int
        Most updates of a document's topics in an E-step.
    mean_change_tol : float
        Mean change of a document's topics below which its updates end.
    random_state : int, RandomState or None
        Draws the first topics (the same as scikit-learn's) and the order of online learning.

    Attributes
    ----------
    components_ : array, (n_components, n_features)
        Pseudo-counts of the words in each topic.
    loss_curve_ : list of float, (max_iter + 1,)
        What was reported.
    bound_ : float
        Perplexity of the training data.
    n_iter_ : int
        Iterations run.
    n_features_in_ : int
        Words of the vocabulary.

    References
    ----------
    .. [1] Blei, Ng, Jordan, "Latent Dirichlet Allocation", JMLR 3 (2003).
    .. [2] Hoffman, Blei, Bach, "Online Learning for Latent Dirichlet Allocation", NIPS 2010,
       eq. 5 to 8 and algorithm 2.
    """

    def __init__(
        self,
        n_components: int = 10,
        *,
        max_iter: int = 20,
        learning_method: str = "batch",
        doc_topic_prior: float | None = None,
        topic_word_prior: float | None = None,
        learning_decay: float = 0.7,
        learning_offset: float = 10.0,
        batch_partitions: int = 1,
        max_doc_update_iter: int = 100,
        mean_change_tol: float = 1e-3,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.learning_method = learning_method
        self.doc_topic_prior = doc_topic_prior
        self.topic_word_prior = topic_word_prior
        self.learning_decay = learning_decay
        self.learning_offset = learning_offset
        self.batch_partitions = batch_partitions
        self.max_doc_update_iter = max_doc_update_iter
        self.mean_change_tol = mean_change_tol
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None) -> LatentDirichletAllocation:
        """Find the topics of the documents in `X`.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_documents, n_features)
            Counts of words. Blocks may be dense or scipy.sparse.

        Raises
        ------
        ValueError
            A parameter is out of range; a partition is empty; a count is negative or not finite;
            there is no word at all.
        RuntimeError
            The installed scikit-learn lacks the internals that this class uses.
        """
        self._check()
        parts = Partitions(as_blocks(X))
        found = parts.survey()
        expectation.check_counts(parts)
        random = check_random_state(self.random_state)
        # As scikit-learn draws them, and first of all: the same `random_state`, the same topics.
        topics = random.gamma(100.0, 0.01, (self.n_components, found.columns))
        self.n_features_in_ = found.columns
        self.loss_curve_: list[float] = []
        expect(self.max_iter)
        for iteration, chosen in enumerate(self._subsets(len(parts), random)):
            stats, bound, words, documents = self._pass(parts, topics, chosen)
            self._report(topics, bound, words, documents / found.n)
            if iteration < self.max_iter:
                topics = self._update(topics, stats * (found.n / documents), iteration + 1)
        self.components_, self.n_iter_ = topics, self.max_iter
        self.bound_ = float(np.exp(self.loss_curve_[-1]))
        return self

    def transform(self, X: Any, *, normalize: bool = True) -> Any:
        """Topics of documents: lazy if `X` is a dask array.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_documents, n_features)
            Counts of words.
        normalize : bool
            Whether the topics of a document sum to 1.

        Returns
        -------
        dask array or array, (n_documents, n_components)
        """
        check_is_fitted(self)
        return map_rows(
            expectation.topics_of,
            X,
            self.components_,
            self._settings(),
            normalize,
            n_features=self.n_features_in_,
            columns=len(self.components_),
        )

    def score(self, X: Any, y: Any = None) -> float:
        """Variational bound of the log-likelihood of all documents in `X`, in nats."""
        return self._bound(X)[0]

    def perplexity(self, X: Any) -> float:
        """Exponential of minus the bound per word."""
        bound, words = self._bound(X)
        return float(np.exp(-bound / words))

    def _bound(self, X: Any) -> tuple[float, float]:
        check_is_fitted(self)
        parts = Partitions(as_blocks(X))
        check_columns(parts.survey().columns, self.n_features_in_)
        expectation.check_counts(parts)
        _, bound, words, _ = self._pass(parts, self.components_, range(len(parts)))
        return bound + expectation.topic_bound(self.components_, self._settings()), words

    def _pass(
        self, parts: Partitions, topics: np.ndarray, chosen: Sequence[int]
    ) -> tuple[np.ndarray, float, float, int]:
        """Sums over the `chosen` partitions: statistics, the documents' bound, words, documents."""
        sums = parts.of(chosen).sum(expectation.expect, topics, self._settings())
        stats, bound, words, documents = sums
        return stats, float(bound), float(words), int(documents)

    def _report(self, topics: np.ndarray, bound: float, words: float, share: float) -> None:
        """The bound has one term for the topics, of which `share` goes with these documents."""
        whole = bound + share * expectation.topic_bound(topics, self._settings())
        self.loss_curve_.append(-whole / words)
        publish(self.loss_curve_[-1])

    def _update(self, topics: np.ndarray, stats: np.ndarray, iteration: int) -> np.ndarray:
        """The M-step; `stats` are scaled to all documents."""
        best = self._settings()["topic_word_prior"] + stats
        if self.learning_method == "batch":
            return best
        weight = (self.learning_offset + iteration) ** -self.learning_decay
        return (1 - weight) * topics + weight * best

    def _subsets(self, n: int, random: np.random.RandomState) -> Iterator[Sequence[int]]:
        """The partitions that each iteration looks at, and all of them at the end."""
        size = n if self.learning_method == "batch" else self.batch_partitions
        yield from islice(_shuffled(n, size, random), self.max_iter)
        yield range(n)

    def _settings(self) -> dict[str, Any]:
        """Parameters of the E-step."""
        even = 1.0 / self.n_components
        return {
            "n_components": self.n_components,
            "doc_topic_prior": even if self.doc_topic_prior is None else self.doc_topic_prior,
            "topic_word_prior": even if self.topic_word_prior is None else self.topic_word_prior,
            "max_doc_update_iter": self.max_doc_update_iter,
            "mean_change_tol": self.mean_change_tol,
        }

    def _check(self) -> None:
        expectation.check_scikit_learn()
        if self.learning_method not in ("batch", "online"):
            raise ValueError(
                f'learning_method must be "batch" or "online", not {self.learning_method!r}'
            )
        for name in ("n_components", "max_iter", "batch_partitions", "max_doc_update_iter"):
            value = getattr(self, name)
            if not isinstance(value, Integral) or value < 1:
                raise ValueError(f"{name} must be a whole number of at least 1, not {value!r}")
        for name in ("doc_topic_prior", "topic_word_prior"):
            value = getattr(self, name)
            if value is not None and not (isinstance(value, Real) and value > 0):
                raise ValueError(f"{name} must be greater than 0, or None, not {value!r}")
        if not 0 <= self.learning_decay <= 1:
            raise ValueError(f"learning_decay must be in [0, 1], not {self.learning_decay!r}")
        if not self.learning_offset >= 0:
            raise ValueError(f"learning_offset must be at least 0, not {self.learning_offset!r}")


def _shuffled(n: int, size: int, random: np.random.RandomState) -> Iterator[Sequence[int]]:
    """`size` of `n` partitions at a time, for ever: all of them before one comes again."""
    while True:
        order = random.permutation(n).tolist()
        for start in range(0, n, size):
            yield sorted(order[start : start + size])
