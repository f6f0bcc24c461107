"""A loss predictor that knows the true curves: what better prediction could still gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_slaq.core.errors import DuplicateJob, UnknownJob
from dask_slaq.core.loss import Forecast, Status

__all__ = ["OraclePredictor"]

HORIZONS = np.unique(np.round(np.geomspace(1, 1000, 25))).astype(float)


class OraclePredictor:
    """Takes the place of `dask_slaq.core.loss.LossPredictor`.

    Parameters
    ----------
    curves : mapping of str to array
        True loss of each job by name, one value an iteration.
    """

    def __init__(self, curves: Mapping[str, np.ndarray]) -> None:
        self._best = {
            name: np.minimum.accumulate(np.asarray(loss, float)) for name, loss in curves.items()
        }
        self._count: dict[str, int] = {}
        self._dirty: set[str] = set()

    def add(self, job: str, *, target: float | None = None) -> None:
        """Follow `job`; a target tells nothing new."""
        if job in self._count:
            raise DuplicateJob(f"job {job!r} is followed already")
        if job not in self._best:
            raise UnknownJob(f"the oracle has no curve of job {job!r}")
        self._count[job] = 0

    def remove(self, job: str) -> None:
        """Forget `job`."""
        self._find(job)
        del self._count[job]
        self._dirty.discard(job)

    def report(self, job: str, loss: float) -> None:
        """Count one iteration."""
        self._count[job] = self._find(job) + 1
        self._dirty.add(job)

    def fit(self) -> int:
        """Nothing to fit; how many jobs reported since the last call."""
        changed = len(self._dirty)
        self._dirty.clear()
        return changed

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Forecasts of `jobs`, in that order."""
        counts = np.array([self._find(job) for job in jobs], dtype=np.int64)
        best = [self._best[job] for job in jobs]
        horizons = np.append(0.0, HORIZONS)
        tables = [self._fall(b, n, horizons) for b, n in zip(best, counts, strict=True)]
        level = np.array([b[_last(b, n)] for b, n in zip(best, counts, strict=True)])
        return Forecast(
            horizons=horizons,
            reduction=np.array(tables).reshape(len(tables), len(horizons)),
            start=np.array([b[0] for b in best]),
            level=level,
            remaining=level - np.array([b[-1] for b in best]),
            largest_change=np.array(
                [np.max(-np.diff(b[: max(n, 2)])) for b, n in zip(best, counts, strict=True)]
            ),
            noise=np.zeros(len(tables)),
            n_reports=counts,
            status=np.full(len(tables), int(Status.OK)),
        )

    def _fall(self, best: np.ndarray, count: int, horizons: np.ndarray) -> np.ndarray:
        """True fall at each horizon, on its concave hull."""
        at = np.clip(count - 1 + horizons.astype(int), 0, len(best) - 1)
        return _hull(horizons, best[_last(best, count)] - best[at])

    def _find(self, job: str) -> int:
        if job not in self._count:
            raise UnknownJob(f"job {job!r} is not followed")
        return self._count[job]


def _last(best: np.ndarray, count: int) -> int:
    """Index of the last report; the first before any, as training starts from there."""
    return min(max(count - 1, 0), len(best) - 1)


def _hull(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The least concave function that is nowhere below `y`."""
    corners: list[int] = []
    for i in range(len(x)):
        while len(corners) > 1:
            a, b = corners[-2:]
            if (y[b] - y[a]) * (x[i] - x[a]) > (y[i] - y[a]) * (x[b] - x[a]):
                break
            corners.pop()
        corners.append(i)
    return np.interp(x, x[corners], y[corners])
