"""Loss curves with as many points as a benchmark's job has iterations."""

from __future__ import annotations

import numpy as np

from dask_slaq.lab.simulation.workload import LossCurve

__all__ = ["resample"]


def resample(curve: LossCurve, iterations: int) -> np.ndarray:
    """Return the loss at `iterations` evenly spaced points, the first and the last included.

    Fewer points than the curve has are picked from it, which keeps its shape and its noise; more
    are interpolated.
    """
    points = np.linspace(0, len(curve.loss) - 1, iterations)
    if iterations <= len(curve.loss):
        return curve.loss[np.round(points).astype(int)]
    return np.interp(points, np.arange(len(curve.loss)), curve.loss)
