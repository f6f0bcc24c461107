"""Shapes of past runs: their curves in units of their own range."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.core.memory.runs import PastRun

#: Fraction of the largest absolute loss below which a fall counts as none.
FLAT = 1e-9


def shape_of(run: PastRun) -> tuple[FloatArray, FloatArray] | None:
    """Return the curve of a run in units of its own range: iterations, and fractions fallen.

    The fractions do not decrease, from 0 to 1: noise is removed by the nearest nonincreasing curve.
    None for a run that tells nothing: with fewer than two points, without a fall, or not finite.
    """
    iteration = np.asarray(run.iteration, dtype=np.float64)
    loss = np.asarray(run.loss, dtype=np.float64)
    if len(iteration) < 2 or len(iteration) != len(loss):
        return None
    if not (np.isfinite(loss).all() and (np.diff(iteration) > 0).all() and iteration[0] >= 1):
        return None
    largest = float(np.abs(loss).max())
    if not largest > 0:
        return None
    smooth = _nonincreasing(loss / largest)
    fall = smooth[0] - smooth[-1]
    if not fall > FLAT:
        return None
    return iteration, (smooth[0] - smooth) / fall


def _nonincreasing(values: FloatArray) -> FloatArray:
    """Return the nonincreasing values with the least squared distance, by pooling neighbours."""
    means: list[float] = []
    sizes: list[int] = []
    for value in values.tolist():
        mean, size = value, 1
        while means and means[-1] < mean:
            before, n = means.pop(), sizes.pop()
            mean, size = (before * n + mean * size) / (n + size), n + size
        means.append(mean)
        sizes.append(size)
    return np.repeat(np.array(means), sizes)
