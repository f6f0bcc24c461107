"""Latent Dirichlet allocation: variational EM with one task per partition and iteration.

The workers run the E-step and the bound of scikit-learn, by its private methods. The M-step is a
sum in a fixed order and a line of arithmetic in the process that called `fit`. The topics of a
document start from a constant instead of at random, so the result depends only on the data, its
partitions and the initial topics.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
from sklearn import decomposition
from sklearn.decomposition import _lda
from sklearn.utils import check_random_state

from benchmarks.workloads.partitions import Elastic

#: Online learning, iteration t: the topics move by the weight ``(OFFSET + t) ** -DECAY``.
DECAY, OFFSET = 0.7, 10.0


class LatentDirichletAllocation(Elastic):
    """Latent Dirichlet allocation with variational Bayes [1]_, [2]_, and scikit-learn's defaults.

    Each iteration reports the negative variational bound per word, in nats. Its exponential is the
    perplexity. ``max_iter`` iterations take ``max_iter + 1`` passes, because the final bound needs
    one more.

    With ``learning_method="online"`` instead of ``"batch"``, each pass shuffles the partitions, and
    an iteration uses the next of them. The reported bounds are scaled up from it and therefore
    noisy; the last bound is that of all data. `components_`, (n_components, n_words), are the
    pseudo-counts of the words in each topic.

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
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.max_iter = max_iter
        self.learning_method = learning_method
        self.random_state = random_state

    def fit(self, X: Any) -> LatentDirichletAllocation:
        """Learn the topics of documents, a persisted dask array of word counts."""
        parts = self._begin(X)
        random = check_random_state(self.random_state)
        # Drawn first and as in scikit-learn, so that the same `random_state` gives the same topics.
        topics = random.gamma(100.0, 0.01, (self.n_components, X.shape[1]))
        for iteration, chosen in enumerate(self._subsets(len(parts.rows), random)):
            stats, bound, words, documents = parts.sum(_expect, topics, chosen=chosen)
            # The bound has one term for the topics. The documents that were used get their share.
            share = documents / len(X)
            loss = -(bound + share * _topic_term(_model(topics))) / words
            if not self._record(loss):
                break
            if iteration < self.max_iter:
                topics = self._update(topics, stats * (len(X) / documents), iteration + 1)
        self.components_, self.n_iter_ = topics, iteration
        return self

    def _update(self, topics: np.ndarray, stats: np.ndarray, iteration: int) -> np.ndarray:
        """Run the M-step on `stats` that are scaled to all documents. Returns the new topics."""
        best = 1.0 / self.n_components + stats
        if self.learning_method == "batch":
            return best
        weight = (OFFSET + iteration) ** -DECAY
        return (1 - weight) * topics + weight * best

    def _subsets(self, n: int, random: np.random.RandomState) -> Iterator[Sequence[int]]:
        """Yield the partitions of each iteration, and finally all partitions."""
        each = (
            _shuffled(n, random)
            if self.learning_method == "online"
            else iter(lambda: range(n), None)
        )
        yield from islice(each, self.max_iter)
        yield range(n)


def _shuffled(n: int, random: np.random.RandomState) -> Iterator[Sequence[int]]:
    """Yield one of `n` partitions at a time, forever, in a new random order per pass."""
    while True:
        yield from ([number] for number in random.permutation(n).tolist())


def _expect(X: np.ndarray, topics: np.ndarray) -> tuple[np.ndarray, float, float, int]:
    """Run the E-step on one partition.

    Returns the sufficient statistics, (n_components, n_words), the variational bound in nats
    without the term of the topics, and the numbers of words and documents. The statistics are
    already multiplied by the exponential of the expected logarithms of the topics.
    """
    model = _model(topics)
    of_documents, stats = model._e_step(X, cal_sstats=True, random_init=False)
    bound = model._approx_bound(X, of_documents, sub_sampling=False) - _topic_term(model)
    return stats, float(bound), float(X.sum()), len(X)


def _topic_term(model: decomposition.LatentDirichletAllocation) -> float:
    """Return the term of the bound that depends only on the topics: the bound of no documents."""
    topics, words = model.components_.shape
    return float(model._approx_bound(np.zeros((0, words)), np.zeros((0, topics)), False))


def _model(topics: np.ndarray) -> decomposition.LatentDirichletAllocation:
    """Return a scikit-learn estimator that holds `topics`."""
    model = decomposition.LatentDirichletAllocation(len(topics), n_jobs=1)
    model.doc_topic_prior_ = model.topic_word_prior_ = 1.0 / len(topics)
    # Arrays from the network are read-only, and compiled code may require a writable one.
    model.components_ = np.array(topics)
    model.exp_dirichlet_component_ = np.exp(_lda._dirichlet_expectation_2d(model.components_))
    return model
