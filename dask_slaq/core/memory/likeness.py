"""Distance between kinds of jobs, and the weights of past runs by it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.memory.runs import Kind

__all__ = ["distance", "kernel"]

FloatArray = NDArray[np.float64]

#: Orders of magnitude that count for a feature which only one of two kinds has.
LACKING = 1.0
#: Width of the kernel for runs of one and the same kind, in orders of magnitude: parameters that
#: differ by a factor of three change a curve visibly, but rarely its character.
NARROWEST = 0.5


def distance(one: Kind, other: Kind) -> float:
    """Return the distance between two kinds: Euclidean, in orders of magnitude.

    Every feature counts alike, since each is a logarithm. It is inf between kinds of different
    names, and a feature that only one of them has counts as one order of magnitude.

    Parameters
    ----------
    one, other : Kind

    Examples
    --------
    >>> distance(Kind("a", (("rows", 6.0), ("C", 1.0))), Kind("a", (("rows", 3.0), ("C", -3.0))))
    5.0
    """
    if one.name != other.name:
        return math.inf
    if one.features == other.features:
        return 0.0
    mine, theirs = dict(one.features), dict(other.features)
    squares = 0.0
    for name in sorted({*mine, *theirs}):
        apart = LACKING
        if name in mine and name in theirs:
            apart = mine[name] - theirs[name]
        squares += apart * apart
    return math.sqrt(squares)


def kernel(distances: Sequence[float]) -> FloatArray:
    """Return the weights of past runs at these distances, which sum to 1.

    Parameters
    ----------
    distances : sequence of float
        Orders of magnitude, finite.

    Returns
    -------
    (n,) array
        A Gaussian in the distance. Its width is the mean distance of these runs, but at least
        `NARROWEST`: where a user tries parameters over many orders of magnitude, farther runs
        have to do, and where all runs are alike, small differences do not matter.
    """
    apart = np.asarray(distances, dtype=np.float64)
    if not len(apart):
        return apart
    width = max(NARROWEST, float(apart.mean()))
    nearest: FloatArray = apart.min() / width
    weight = np.exp(-0.5 * ((apart / width) ** 2 - nearest**2))
    total: FloatArray = weight / weight.sum()
    return total
