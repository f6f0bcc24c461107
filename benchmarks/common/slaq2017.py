"""The paper's way, as the rival: `curve_fit` for every job (§4.1) and Algorithm 1 with a heap."""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import curve_fit

__all__ = ["algorithm_1", "fit_curve"]

#: Weight of a report in relation to the one after it, as in the authors' code.
DECAY = 0.8
#: Reports that a fit uses at most.
HISTORY = 64


def algorithm_1(
    gains: Sequence[Callable[[int], float]], most: Sequence[int], capacity: int
) -> list[int]:
    """Threads of each job: each next one goes to the greatest marginal gain.

    Parameters
    ----------
    gains : sequence of callable
        Of each job, whole threads to gain; concave.
    most : sequence of int
        Threads that each job may have.
    capacity : int
        Threads to hand out.

    Examples
    --------
    >>> algorithm_1([math.sqrt, lambda n: 3 * math.sqrt(n)], [9, 9], 4)
    [1, 3]
    """
    share = [0] * len(gains)
    reached = [gain(0) for gain in gains]
    ahead = [gain(1) for gain in gains]
    heap = [
        (now - after, job)
        for job, (now, after) in enumerate(zip(reached, ahead, strict=True))
        if most[job] > 0
    ]
    heapq.heapify(heap)
    for _ in range(capacity):
        if not heap or heap[0][0] >= 0:
            break
        job = heap[0][1]
        share[job] += 1
        reached[job] = ahead[job]
        if share[job] == most[job]:
            heapq.heappop(heap)
            continue
        ahead[job] = gains[job](share[job] + 1)
        heapq.heapreplace(heap, (reached[job] - ahead[job], job))
    return share


def fit_curve(losses: Sequence[float]) -> Callable[[float], float]:
    """The better of the paper's two families, fitted to the newest reports.

    Parameters
    ----------
    losses : sequence of float
        Reports, at least 5; the newest count most.

    Returns
    -------
    callable
        Iterations ahead of the last report to loss, which is the last one where no fit converged.
    """
    newest = np.asarray(losses[-HISTORY:], float)
    k = np.arange(1.0, len(newest) + 1)
    sigma = DECAY ** (-0.5 * (k[-1] - k))  # residuals are divided by it
    best, least = None, math.inf
    for family, start in _families(newest):
        try:
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                found, _ = curve_fit(family, k, newest, p0=start, sigma=sigma, maxfev=1000)
                error = float((((family(k, *found) - newest) / sigma) ** 2).sum())
        except (RuntimeError, ValueError):  # did not converge
            continue
        if error < least:
            best, least = (family, found.tolist()), error
    if best is None:
        return lambda ahead: float(newest[-1])
    family, parameters = best
    return lambda ahead: family(len(newest) + ahead, *parameters)


def _families(losses: np.ndarray) -> list[tuple[Callable[..., float], list[float]]]:
    """The sublinear and the superlinear family of §4.1, and where their fits start."""
    first, last = float(losses[0]), float(losses[-1])
    fall = max(first - last, 1e-9)
    return [(_sublinear, [0.0, 1.0 / fall, 1.0 / fall, last]), (_superlinear, [0.9, 0.0, last])]


def _sublinear(k: float, a: float, b: float, c: float, d: float) -> float:
    return 1.0 / (a * k * k + b * k + c) + d


def _superlinear(k: float, mu: float, b: float, c: float) -> float:
    return abs(mu) ** (k - b) + c
