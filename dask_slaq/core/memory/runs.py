"""Past runs: kind, loss curve and running time of a job that has ended."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["MOST_POINTS", "Kind", "Run", "thinned"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Maximum number of points kept of one loss curve.
MOST_POINTS = 64


@dataclass(frozen=True)
class Kind:
    """Kind of a job: jobs of like kind have curves of like shape.

    Attributes
    ----------
    name : str
        Library, estimator and solver, such as ``"dask_ml.LogisticRegression/admm"``, or what the
        user passed as ``slaq.job(kind=...)``. Runs of other names are never alike.
    features : tuple of (str, float)
        Parameters that shape the curve, and the size of the data, sorted by name. Each is on a
        scale on which a difference of 1 is one order of magnitude (log10 of a positive number).
    """

    name: str
    features: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Run:
    """A job that has ended.

    Attributes
    ----------
    job : str
        Its name.
    kind : Kind
    iteration : (n,) array of int
        Increasing, from 1: iterations of which the loss is kept; at most `MOST_POINTS`.
    loss : (n,) array
        Loss after each of these iterations, in raw units.
    iterations : int
        Iterations when it ended.
    outcome : {"done", "stopped", "failed"}
        Only a run that is done tells how many iterations a run of its kind takes.
    work : float
        Core-seconds per iteration, nan if unknown.
    tasks : float
        Tasks that an iteration runs in parallel, nan if unknown.
    law : (4,) tuple of float, optional
        Coefficients of Ernest's law in seconds, if the job clearly did not scale linearly.
    ended : float
        Seconds since 1970.
    """

    job: str
    kind: Kind
    iteration: IntArray
    loss: FloatArray
    iterations: int
    outcome: str = "done"
    work: float = float("nan")
    tasks: float = float("nan")
    law: tuple[float, ...] | None = None
    ended: float = 0.0


def thinned(iteration: IntArray, most: int = MOST_POINTS) -> IntArray:
    """Return which points of a loss curve to keep: the first, the last, and some evenly in log.

    Parameters
    ----------
    iteration : (n,) array of int
        Increasing, from 1.
    most : int
        Maximum number of points, at least 2.

    Returns
    -------
    (m,) array of int
        Increasing positions in the arrays, at most `most`.
    """
    n = len(iteration)
    if n <= most:
        return np.arange(n)
    wanted = np.geomspace(iteration[0], iteration[-1], most)
    return np.unique(np.searchsorted(iteration, wanted.round()).clip(0, n - 1))
