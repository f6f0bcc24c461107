"""Loss reports of dask-ml's ``KMeans``.

For dask-ml's linear models, which are fitted by dask-glm, see `dask_slaq.adapters.dask_glm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_slaq.adapters.observing import Loop, LoopObserver, Proxy, kind_of, sizes_of


class Lloyd(LoopObserver):
    """Observer of Lloyd's iterations, each of which is one ``compute(new_centers)``.

    The loss is the sum over rows of the squared distance to the mean of the row's cluster, after
    the means were updated. Computing it takes no distances: if cluster j has n_j rows with mean
    m_j, and S is the sum of the squared norms of all rows, then the squared distances of the rows
    to points c_j, one per cluster, sum to S - 2 sum_j n_j m_j.c_j + sum_j n_j |c_j|^2. The counts
    n_j are part of the iteration's own graph; S is summed once, in the computation of the first
    iteration. All terms are relative to an origin amid the data. Without it they would cancel to
    noise for data far from zero.
    """

    stands_in = ("compute", "da", "pairwise_distances_argmin_min")
    needs = ("X",)

    counts: Any = None
    centers: Any = None
    origin: Any = None
    squares: Any = None
    means: Any = None
    iterations = 0

    def kind(self, fit: str) -> dict[str, Any]:
        """Return the kind: how the centers begin, how many there are, and size of the data."""
        given = self.arguments
        clusters = {"n_clusters": given.get("n_clusters")}
        return kind_of(fit, (given.get("init"),), {**sizes_of(given["X"]), **clusters})

    def so_far(self) -> Any:
        X = self.arguments["X"]
        labels, distances = self.library["pairwise_distances_argmin_min"](X, self.means)
        centers = self.means.astype(X.dtype)
        return labels.astype(np.int32), distances.sum(), centers, self.iterations

    @property
    def da(self) -> Any:
        """Stand-in for ``dask.array`` that keeps the result of ``bincount``."""
        return Proxy(self.library["da"], bincount=self.bincount)

    def bincount(self, *args: Any, **kwargs: Any) -> Any:
        self.counts = self.library["da"].bincount(*args, **kwargs)
        return self.counts

    def pairwise_distances_argmin_min(self, X: Any, Y: Any, *args: Any, **kwargs: Any) -> Any:
        self.centers = Y
        return self.library["pairwise_distances_argmin_min"](X, Y, *args, **kwargs)

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        extra = self.safely(self._wanted, default=())
        out = self.library["compute"](*args, *extra, **kwargs)
        self.safely(self._iterated, out[0], *out[len(args) :])
        return out[: len(args)]

    def _wanted(self) -> tuple[Any, ...]:
        if self.squares is not None:
            return (self.counts,)
        X = self.arguments["X"]
        self.origin = np.asarray(self.centers).mean(axis=0).astype(X.dtype)
        return self.counts, ((X - self.origin) ** 2).sum(dtype="f8")

    def _iterated(self, means: Any, counts: Any, squares: Any = None) -> None:
        self.means = means
        self.iterations += 1
        first = self.squares is None
        if first:
            self.squares = squares
        origin = self.origin.astype("f8")
        means = means - origin
        if first:
            self.report(self._inertia(counts, means, self.centers - origin))
        self.report(self._inertia(counts, means, means))

    def _inertia(self, counts: Any, means: Any, centers: Any) -> float:
        per_cluster = (centers**2).sum(axis=1) - 2 * (means * centers).sum(axis=1)
        # Rounding can make the loss of a perfect clustering slightly negative.
        return max(float(self.squares + counts @ per_cluster), 0.0)


LOOPS = (Loop("dask_ml.cluster.k_means", "_kmeans_single_lloyd", Lloyd, fit="dask_ml.KMeans"),)
