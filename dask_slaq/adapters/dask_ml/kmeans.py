"""Reports of dask-ml's own loops: Lloyd's iterations of KMeans.

dask-ml's linear models are dask-glm's solvers; see `dask_slaq.adapters.dask_glm`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_slaq.adapters.observing import Loop, LoopObserver, Proxy


class Lloyd(LoopObserver):
    """Each iteration is one ``compute(new_centers)``. The loss is the sum over rows of the squared
    distance to the mean of the row's cluster, after that mean was updated.

    It needs no distances. With n_j rows in cluster j, their mean m_j, and S the sum of the squared
    norms of all rows, their squared distances to any points c_j sum up to
    S - 2 sum_j n_j m_j.c_j + sum_j n_j |c_j|^2. The counts n_j are part of the iteration's
    own graph; S is summed once, in the computation of the first iteration. All is taken relative to
    an origin amid the data, or the terms would cancel to noise for data far from zero.
    """

    stands_in = ("compute", "da", "pairwise_distances_argmin_min")
    needs = ("X",)

    counts: Any = None
    centers: Any = None
    origin: Any = None
    squares: Any = None

    @property
    def da(self) -> Any:
        """dask.array, with a look at what ``bincount`` returns."""
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
        # Rounding may leave a perfect clustering a hair below zero.
        return max(float(self.squares + counts @ per_cluster), 0.0)


LOOPS = (Loop("dask_ml.cluster.k_means", "_kmeans_single_lloyd", Lloyd),)
