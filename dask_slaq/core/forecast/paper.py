"""The paper's forecasts (§4.2.2): weighted fits of two families, the better one per job.

Sublinear algorithms follow f(k) = 1/(a k^2 + b k + c) + d, and linear or faster ones
f(k) = mu^(k - b) + c. The weights of reports decay exponentially with their age. All jobs are
fitted at once, by Levenberg and Marquardt's method.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import ClassVar, NamedTuple, Protocol

import numpy as np

from dask_slaq.core.errors import DuplicateJob, UnknownJob
from dask_slaq.core.forecast.corrections import as_usual
from dask_slaq.core.forecast.types import HORIZONS, FitStatus, Forecast, concave_hull
from dask_slaq.core.jobs.arrays import FloatArray

#: Factor on the weight of a report per iteration of age, as in the authors' code.
DECAY_FACTOR = 0.8
#: Reports that are kept and fitted: the weight of older ones is below 1e-6.
WINDOW_REPORTS = 64
#: Fewest reports that are fitted: a family has four parameters.
FEWEST_REPORTS = 5


class _Family(Protocol):
    """Family of curves, whose parameters but for the limit are logarithms and thus positive."""

    #: Where fits may start, for times k from 0 to 1.
    starts: ClassVar[FloatArray]
    #: What multiplies a curve by e, added to the parameters.
    of_size: ClassVar[FloatArray]

    @staticmethod
    def height(p: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return the curves (n_jobs, n_k) above their limits, and gradients (n_jobs, n_k, n)."""


class _Sublinear(_Family):
    """1/(a k^2 + b k + c) + d, with parameters log a, log b and log c, and the limit d."""

    starts = np.log(
        [(a, b, 1.0) for a in np.geomspace(1e-3, 1e5, 9) for b in np.geomspace(1e-2, 1e3, 6)]
    )
    of_size = -np.ones(3)

    @staticmethod
    def height(p: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        a, b, c = np.exp(p).T[:, :, None]
        parts = np.stack([a * k * k, b * k, c + 0.0 * k], axis=2)
        value = 1.0 / parts.sum(axis=2)
        return value, -parts * (value * value)[:, :, None]


class _Superlinear(_Family):
    """mu^(k - b) + c, with parameters log(-log mu) and log(mu^-b), and the limit c."""

    starts = np.stack([np.log(np.geomspace(1e-2, 1e2, 9)), np.zeros(9)], axis=1)
    of_size = np.array([0.0, 1.0])

    @staticmethod
    def height(p: FloatArray, k: FloatArray) -> tuple[FloatArray, FloatArray]:
        rate, size = np.exp(p[:, :1]), p[:, 1:]
        value = np.exp(size - rate * k)
        return value, np.stack([-rate * k * value, value], axis=2)


_FAMILIES: tuple[type[_Family], ...] = (_Sublinear, _Superlinear)


class Fits(NamedTuple):
    """Fitted curves of several jobs, in their raw units."""

    level: FloatArray  # (n_jobs,) fitted loss at the last report
    rest: FloatArray  # (n_jobs,) fall from there to the limit of the curve; 0 if it is constant
    fall: FloatArray  # (n_jobs, n_ahead) fall from there in some iterations


def fit_losses(
    histories: Sequence[Sequence[float]], ahead: FloatArray = HORIZONS, decay: float = DECAY_FACTOR
) -> Fits:
    """Fit the newest `WINDOW_REPORTS` losses of several jobs, by the better family for each.

    Each has at least `FEWEST_REPORTS` losses, oldest first. `ahead` (n_ahead,) are iterations after
    the last one, and `decay` is the factor on the weight of a report per iteration of age.
    """
    most = 256  # jobs fitted together, which bounds the memory
    starts = range(0, len(histories), most)
    parts = [_fit_some(histories[i : i + most], ahead, decay) for i in starts]
    return Fits(*map(np.concatenate, zip(*parts, strict=True)))


def _fit_some(histories: Sequence[Sequence[float]], ahead: FloatArray, decay: float) -> Fits:
    count = np.array([min(len(losses), WINDOW_REPORTS) for losses in histories])[:, None]
    back = count - 1 - np.arange(count.max())  # age of each report; negative where there is none
    weight = np.where(back >= 0, decay ** np.maximum(back, 0), 0.0)
    weight /= weight.sum(axis=1, keepdims=True)
    # Time and loss of order 1: both families stay what they are.
    y = np.zeros(back.shape)
    for losses, row in zip(histories, y, strict=True):
        newest = np.asarray(losses, float)[-WINDOW_REPORTS:]
        row[: len(newest)] = newest
        row[len(newest) :] = newest[-1]
    low, span = y.min(axis=1, keepdims=True), np.ptp(y, axis=1)[:, None]
    span = np.where(span > 0, span, 1.0)
    y = (y - low) / span
    k, then = np.arange(y.shape[1]) / count, (count - 1 + np.append(0.0, ahead)) / count
    level = (weight * y).sum(axis=1, keepdims=True)  # of a curve that no longer falls
    least = (weight * (y - level) ** 2).sum(axis=1, keepdims=True)
    left = np.zeros(then.shape)  # above the limit
    for family in _FAMILIES:
        p, limit, cost = _fit(family, k, y, weight)
        better, height = cost[:, None] < least, family.height(p, then)[0]
        least = np.where(better, cost[:, None], least)
        level = np.where(better, limit[:, None] + height[:, :1], level)
        left = np.where(better, height, left)
    rest = span * left[:, :1]
    fall = np.maximum(rest - span * left[:, 1:], 0.0)
    return Fits((low + span * level)[:, 0], rest[:, 0], fall)


def _fit(
    family: type[_Family], k: FloatArray, y: FloatArray, weight: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return parameters (n_jobs, n), limits and weighted squared errors (n_jobs,) of a family."""

    def centered(values: FloatArray) -> tuple[FloatArray, FloatArray]:
        mean = np.einsum("jk,jk...->j...", weight, values)
        return values - mean[:, None], mean

    def errors(p: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        height, slope = family.height(p, k)
        error, limit = centered(y - height)
        return error, slope, limit, (weight * error**2).sum(axis=1)

    p = _start(family, k, centered(y)[0], weight)
    error, slope, limit, cost = errors(p)
    damping = np.full(len(y), 1e-2)
    unit = np.eye(p.shape[1])
    # Largest logarithm of a parameter, by size, and largest step of it: farther away than that a
    # parameter of almost nothing has no slope that would lead back.
    most, most_step = 50.0, 3.0
    for _ in range(30):
        slope = centered(slope)[0]
        weighted = slope * weight[:, :, None]
        square = weighted.swapaxes(1, 2) @ slope
        size = np.einsum("jii->ji", square) + 1e-12
        square += (damping[:, None] * size)[:, :, None] * unit + 1e-15 * unit
        step = np.linalg.solve(square, np.einsum("jki,jk->ji", weighted, error)[:, :, None])
        there = np.clip(p + step[:, :, 0].clip(-most_step, most_step), -most, most)
        found = errors(there)
        better = found[-1] < cost
        damping = np.where(better, damping / 10, damping * 10).clip(1e-12, 1e12)
        p = np.where(better[:, None], there, p)
        error = np.where(better[:, None], found[0], error)
        slope = family.height(p, k)[1]
        limit, cost = np.where(better, found[2], limit), np.where(better, found[3], cost)
    return p, limit, cost


def _start(family: type[_Family], k: FloatArray, y: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the parameters (n_jobs, n) of the best curve on the grid of a family."""
    best, chosen = np.full(len(y), -1.0), np.zeros((len(y), len(family.starts[0])))
    for shape in family.starts:
        curve = family.height(np.broadcast_to(shape, chosen.shape), k)[0]
        curve = curve - (weight * curve).sum(axis=1, keepdims=True)
        cross, square = (weight * curve * y).sum(axis=1), (weight * curve**2).sum(axis=1)
        size = np.clip(cross / np.maximum(square, 1e-300), 1e-9, 1e9)
        gain = size * (2.0 * cross - size * square)  # by which it lowers the squared error
        better = gain > best
        best = np.where(better, gain, best)
        scaled = shape + np.log(size)[:, None] * family.of_size
        chosen = np.where(better[:, None], scaled, chosen)
    return chosen


class PaperPredictor:
    """`Predictor` of the paper. A job with few reports follows a typical curve, as by default."""

    def __init__(self) -> None:
        self._losses: dict[str, deque[float]] = {}
        # First loss, largest change, reports at the last fit, and level and remaining by it.
        self._facts: dict[str, list[float]] = {}
        self._fall: dict[str, FloatArray] = {}
        self._new: set[str] = set()

    def add(self, job: str, *, target: float | None = None) -> None:
        """Start to follow a job. The target is ignored."""
        if job in self._losses:
            raise DuplicateJob(f"job {job!r} is followed already")
        self._losses[job] = deque(maxlen=WINDOW_REPORTS)
        self._facts[job] = [np.nan, 0.0, 0.0, np.nan, 0.0]
        self._fall[job] = np.zeros(len(HORIZONS))

    def remove(self, job: str) -> None:
        """Forget a job."""
        self._of(job)
        del self._losses[job], self._facts[job], self._fall[job]
        self._new.discard(job)

    def report(self, job: str, loss: float) -> None:
        """Store the loss after the next iteration of a job."""
        losses, facts = self._of(job), self._facts[job]
        if losses:
            facts[1] = max(facts[1], abs(losses[-1] - loss))
        else:
            facts[0] = loss
        losses.append(float(loss))
        self._new.add(job)

    def fit(self) -> int:
        """Fit the jobs with new reports. Returns their number."""
        new, self._new = sorted(self._new), set()
        few = [job for job in new if len(self._losses[job]) < FEWEST_REPORTS]
        enough = [job for job in new if len(self._losses[job]) >= FEWEST_REPORTS]
        if few:
            first = np.array([self._facts[job][0] for job in few])
            level = np.array([self._losses[job][-1] for job in few])
            count = np.array([len(self._losses[job]) for job in few])
            fall = as_usual(first, level, count)
            self._keep(few, level, fall[:, -1], fall)
        if enough:
            level, rest, fall = fit_losses([self._losses[job] for job in enough])
            # 1/(a k^2 + c) falls ever faster at first.
            self._keep(enough, level, rest, concave_hull(HORIZONS, fall))
        return len(new)

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of some jobs as of the last fit."""
        for job in jobs:
            self._of(job)
        facts = np.array([self._facts[job] for job in jobs]).reshape(-1, 5)
        start, largest, count, level, rest = facts.T
        return Forecast(
            horizons=HORIZONS,
            reduction=np.array([self._fall[job] for job in jobs]).reshape(-1, len(HORIZONS)),
            start=start,
            level=level,
            remaining=rest,
            largest_change=largest,
            noise=np.zeros(len(facts)),
            n_reports=count.astype(np.int64),
            status=np.where(
                count < FEWEST_REPORTS, int(FitStatus.TOO_FEW_REPORTS), int(FitStatus.OK)
            ),
        )

    def _keep(self, jobs: list[str], level: FloatArray, rest: FloatArray, fall: FloatArray) -> None:
        for i, job in enumerate(jobs):
            self._facts[job][2:] = len(self._losses[job]), level[i], rest[i]
            self._fall[job] = fall[i]

    def _of(self, job: str) -> deque[float]:
        try:
            return self._losses[job]
        except KeyError:
            raise UnknownJob(f"job {job!r} is not running") from None
