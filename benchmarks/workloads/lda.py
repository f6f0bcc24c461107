"""Latent Dirichlet allocation: variational EM with one task per partition and iteration.

The workers run the E-step and the bound of scikit-learn. The M-step is a sum in a fixed order and
a line of arithmetic in the process that called `fit`. The topics of a document start from a
constant instead of at random, so the result depends only on the data, its partitions and the
initial topics.
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

from benchmarks.workloads import lda_e_step as expectation
from benchmarks.workloads.elastic import Partitions, as_blocks, check_columns, map_rows
from dask_slaq.adapters.observing import describe_estimator, expect, publish

__all__ = ["LatentDirichletAllocation"]


class LatentDirichletAllocation(TransformerMixin, BaseEstimator):
    """Latent Dirichlet allocation with variational Bayes [1]_, [2]_.

    Each iteration reports the negative variational bound per word, in nats. Its exponential is the
    perplexity. ``max_iter`` iterations take ``max_iter + 1`` passes, because the final bound needs
    one more. Persist `X` first to load it only once.

    Parameters
    ----------
    n_components : int
        Number of topics.
    max_iter : int
        Number of iterations. An iteration of online learning uses `batch_partitions` partitions,
        not all of them.
    learning_method : {"batch", "online"}
        With "online", each pass shuffles the partitions, and an iteration uses the next
        `batch_partitions` of them. It moves the topics by the weight
        ``(learning_offset + iteration) ** -learning_decay``. The reported bounds are scaled up from
        the partitions used and therefore noisy; the last bound is that of all data.
    doc_topic_prior, topic_word_prior : float, optional
        Priors, > 0. The default is ``1 / n_components``.
    learning_decay, learning_offset : float
        Parameters of online learning: decay in [0, 1], offset >= 0.
    batch_partitions : int
        Number of partitions per iteration of online learning.
    max_doc_update_iter : int
        Maximum number of updates of a document's topics in an E-step.
    mean_change_tol : float
        Mean change of a document's topics below which its updates stop.
    random_state : int, RandomState or None
        Seed for drawing the initial topics (the same as scikit-learn's) and the order of the
        partitions in online learning.

    Attributes
    ----------
    components_ : array, (n_components, n_features)
        Pseudo-counts of the words in each topic.
    loss_curve_ : list of float, (n_iter_ + 1,)
        Reported loss at the start and after each iteration.
    bound_ : float
        Perplexity of the training data.
    n_iter_ : int
        Number of iterations run.
    n_features_in_ : int
        Number of words in the vocabulary.

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
        """Learn the topics of the documents in `X`.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_documents, n_features)
            Word counts. Blocks may be dense or scipy.sparse.
        y : ignored

        Returns
        -------
        LatentDirichletAllocation
            The fitted estimator.

        Raises
        ------
        ValueError
            If a parameter is out of range, a partition is empty, a count is negative or not finite,
            or all counts are 0.
        RuntimeError
            If the installed scikit-learn lacks the internals that this class uses.
        """
        self._check()
        parts = Partitions(as_blocks(X))
        found = parts.survey()
        expectation.check_counts(parts)
        random = check_random_state(self.random_state)
        # Drawn first and as in scikit-learn, so that the same `random_state` gives the same topics.
        topics = random.gamma(100.0, 0.01, (self.n_components, found.columns))
        self.n_features_in_ = found.columns
        self.loss_curve_: list[float] = []
        expect(self.max_iter)
        describe_estimator("dask_slaq", self, X)
        for iteration, chosen in enumerate(self._subsets(len(parts), random)):
            stats, bound, words, documents = self._pass(parts, topics, chosen)
            goes_on = self._report(topics, bound, words, documents / found.n)
            if iteration and not goes_on:
                break
            if iteration < self.max_iter:
                topics = self._update(topics, stats * (found.n / documents), iteration + 1)
        self.components_, self.n_iter_ = topics, iteration
        self.bound_ = float(np.exp(self.loss_curve_[-1]))
        return self

    def transform(self, X: Any, *, normalize: bool = True) -> Any:
        """Infer the topics of documents.

        Parameters
        ----------
        X : dask array, array_like or scipy.sparse matrix, (n_documents, n_features)
            Word counts.
        normalize : bool
            Whether the topics of a document sum to 1.

        Returns
        -------
        dask array or array, (n_documents, n_components)
            Lazy if `X` is.
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
        """Return the variational bound of the log-likelihood of `X` in nats; `y` is ignored."""
        return self._bound(X)[0]

    def perplexity(self, X: Any) -> float:
        """Return the perplexity of `X`: the exponential of the negative bound per word."""
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
        """Run the E-step on the `chosen` partitions.

        Returns the statistics, the bound of the documents, and the numbers of words and documents.
        """
        sums = parts.of(chosen).sum(expectation.expect, topics, self._settings())
        stats, bound, words, documents = sums
        return stats, float(bound), float(words), int(documents)

    def _report(self, topics: np.ndarray, bound: float, words: float, share: float) -> bool:
        """Record and publish the loss. Returns False if the training was stopped.

        The bound has one term for the topics. `share` is the fraction of documents that were used,
        and the same fraction of the term is added to their `bound`.
        """
        whole = bound + share * expectation.topic_bound(topics, self._settings())
        self.loss_curve_.append(-whole / words)
        return publish(self.loss_curve_[-1])

    def _update(self, topics: np.ndarray, stats: np.ndarray, iteration: int) -> np.ndarray:
        """Run the M-step on `stats` that are scaled to all documents. Returns the new topics."""
        best = self._settings()["topic_word_prior"] + stats
        if self.learning_method == "batch":
            return best
        weight = (self.learning_offset + iteration) ** -self.learning_decay
        return (1 - weight) * topics + weight * best

    def _subsets(self, n: int, random: np.random.RandomState) -> Iterator[Sequence[int]]:
        """Yield the partitions of each iteration, and finally all partitions."""
        size = n if self.learning_method == "batch" else self.batch_partitions
        yield from islice(_shuffled(n, size, random), self.max_iter)
        yield range(n)

    def _settings(self) -> dict[str, Any]:
        """Return the parameters of the E-step."""
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
    """Yield up to `size` of `n` partitions at a time, forever, in a new random order per pass."""
    while True:
        order = random.permutation(n).tolist()
        for start in range(0, n, size):
            yield sorted(order[start : start + size])
