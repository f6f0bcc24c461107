"""The paper's method, as a rival: `curve_fit` for every job (§4.1) and Algorithm 1 with a heap."""

from __future__ import annotations

import heapq
import math
import warnings
from collections.abc import Callable, Sequence

import numpy as np
from scipy.optimize import curve_fit

__all__ = ["algorithm_1", "fit_curve"]

#: Weight of a report relative to the next report, as in the authors' code.
DECAY = 0.8
#: Maximum number of reports in a fit.
HISTORY = 64


def algorithm_1(
    gains: Sequence[Callable[[int], float]], most: Sequence[int], capacity: int
) -> list[int]:
    """Allocate threads one by one, each to the job with the largest marginal gain.

    A gain is a concave function of a whole number of threads. Returns the threads of each job.
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
    """Fit the better of the paper's two families to the newest of at least 5 reports.

    Newer reports have larger weights. Returns a function from iterations ahead of the last report
    to the loss, which is constant at the last report if no fit converged.
    """
    newest = np.asarray(losses[-HISTORY:], float)
    k = np.arange(1.0, len(newest) + 1)
    sigma = DECAY ** (-0.5 * (k[-1] - k))  # divides the residuals
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
    """Return the sublinear and the superlinear family of §4.1 with the starts of their fits."""
    first, last = float(losses[0]), float(losses[-1])
    fall = max(first - last, 1e-9)
    return [(_sublinear, [0.0, 1.0 / fall, 1.0 / fall, last]), (_superlinear, [0.9, 0.0, last])]


def _sublinear(k: float, a: float, b: float, c: float, d: float) -> float:
    return 1.0 / (a * k * k + b * k + c) + d


def _superlinear(k: float, mu: float, b: float, c: float) -> float:
    return abs(mu) ** (k - b) + c
