"""Scores of loss forecasts: errors at each horizon, and coverage of the band.

Forecasts are made after k reports, k >= 5, until the curve has converged. All scores weight groups
equally, the curves of a group equally, and the iterations of a curve equally. Medians and quantiles
use the same weights.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_slaq.lab.simulation.workload.curves import LossCurve

Array = NDArray[np.float64]

#: Horizons of the forecasts, in iterations.
HORIZONS = (1, 5, 10)
#: Reports before the first forecast.
FIRST = 5
#: A curve has converged once its remaining range is at most this fraction of its whole range.
CONVERGED = 1e-12


@dataclass(frozen=True)
class Trial:
    """Curve up to its convergence, with the origins of its forecasts."""

    id: str  # unique
    curve: LossCurve
    origins: NDArray[np.int64]  # (n_origins,) reports before each forecast, increasing
    stands_for: Array  # (n_origins,) iterations that each origin represents

    @property
    def truth(self) -> Array:
        """True losses, (n_origins, n_horizons); nan beyond the end of the curve."""
        loss = self.curve.loss
        at = self.origins[:, None] - 1 + np.array(HORIZONS)
        return np.where(at < len(loss), loss[np.minimum(at, len(loss) - 1)], np.nan)

    @property
    def newest(self) -> Array:
        """Last report at each origin, (n_origins,)."""
        return self.curve.loss[self.origins - 1]


def converged(loss: Array) -> int:
    """Return the number of points up to convergence, the first converged point included."""
    back = loss[::-1]
    spread = np.maximum.accumulate(back) - np.minimum.accumulate(back)
    still = spread[::-1] <= CONVERGED * np.ptp(loss)
    return int(still.argmax()) + 1


def prepare(curves: Sequence[LossCurve], origins: int = 0) -> list[Trial]:
    """Make trials of the curves that are long enough, with at most `origins` origins; 0 for all."""
    trials, seen = [], Counter[str]()
    for curve in curves:
        seen[curve.id] += 1
        name = curve.id if seen[curve.id] == 1 else f"{curve.id} ({seen[curve.id]})"
        loss = curve.loss[: converged(curve.loss)]
        if len(loss) <= FIRST:
            continue
        kept = LossCurve(curve.id, curve.group, loss, curve.noisy)
        trials.append(Trial(name, kept, *_spread(len(loss) - FIRST, origins)))
    return trials


def _spread(count: int, most: int) -> tuple[NDArray[np.int64], Array]:
    """Choose at most `most` of `count` origins, and count the iterations that each represents.

    Forecasts change most early in a curve, so the spans grow linearly.
    """
    edges = np.arange(count + 1)
    if 0 < most < count:
        edges = np.unique(np.round(count * np.linspace(0, 1, most + 1) ** 2).astype(np.int64))
    return FIRST + (edges[:-1] + edges[1:] - 1) // 2, np.diff(edges).astype(float)


def by_kind(trials: Sequence[Trial]) -> dict[str, list[Trial]]:
    """Group trials into `smooth` and `noisy`, leaving out a kind without trials."""
    kinds = {"smooth": [], "noisy": []}  # type: dict[str, list[Trial]]
    for trial in trials:
        kinds["noisy" if trial.curve.noisy else "smooth"].append(trial)
    return {kind: members for kind, members in kinds.items() if members}


#: Function from a trial to one value per origin at a fixed horizon; nan values do not count.
Values = Callable[[Trial], Array]


@dataclass(frozen=True)
class _Pool:
    """Values of many forecasts with their weights (sum 1) and groups."""

    values: Array
    weights: Array
    groups: NDArray[np.str_]

    @classmethod
    def of(cls, trials: Sequence[Trial], values: Values) -> _Pool | None:
        parts = [(trial, values(trial)) for trial in trials]
        parts = [(trial, v) for trial, v in parts if not np.isnan(v).all()]
        if not parts:
            return None
        curves = Counter(trial.curve.group for trial, _ in parts)
        weights, names = [], []
        for trial, v in parts:
            known = np.where(np.isnan(v), 0.0, trial.stands_for)
            group = trial.curve.group
            weights.append(known / (known.sum() * curves[group] * len(curves)))
            names += [group] * len(v)
        every, weight = np.concatenate([v for _, v in parts]), np.concatenate(weights)
        counted = weight > 0
        return cls(every[counted], weight[counted], np.array(names)[counted])

    def mean(self) -> float:
        return float(self.weights @ self.values)

    def quantile(self, part: float) -> float:
        order = np.argsort(self.values)
        reached = np.cumsum(self.weights[order])
        at = min(int(np.searchsorted(reached, part * reached[-1])), len(order) - 1)
        return float(self.values[order[at]])

    def by_group(self) -> dict[str, float]:
        names, member = np.unique(self.groups, return_inverse=True)
        total = np.bincount(member, self.weights * self.values) / np.bincount(member, self.weights)
        return {str(name): float(value) for name, value in zip(names, total, strict=True)}


def _relative(error: Array, truth: Array) -> Array:
    """Divide errors by the truth. A truth of 0 gives nan, which does not count."""
    size = np.abs(truth)
    return np.divide(error, size, out=np.full(len(error), np.nan), where=size > 0)


def score(trials: Sequence[Trial], forecasts: Mapping[str, Array]) -> dict[str, Any]:
    """Score one predictor at each horizon that has forecasts.

    ``mean_rel``, ``median_rel`` and ``p95_rel`` are of |forecast - truth| / |truth| (truths of 0 do
    not count); ``mean_range`` is the mean error relative to the range of the curve; ``reduction``,
    the mean error divided by the mean true change since the last report, both relative to the
    range, so that "no change" scores 1; ``by_algorithm``, the mean relative error of each group;
    ``forecasts``, their number.
    """
    found: dict[str, Any] = {}
    for column, horizon in enumerate(HORIZONS):

        def error(trial: Trial, column: int = column) -> Array:
            return np.abs(forecasts[trial.id][:, column] - trial.truth[:, column])

        def relative(trial: Trial, column: int = column, error: Values = error) -> Array:
            return _relative(error(trial), trial.truth[:, column])

        def ranged(trial: Trial, error: Values = error) -> Array:
            return error(trial) / np.ptp(trial.curve.loss)

        def moved(trial: Trial, column: int = column) -> Array:
            change = np.abs(trial.newest - trial.truth[:, column])
            return change / np.ptp(trial.curve.loss)

        parts = [_Pool.of(trials, values) for values in (relative, ranged, moved)]
        if any(part is None for part in parts):
            continue
        rel, in_range, change = (part for part in parts if part is not None)
        found[str(horizon)] = {
            "mean_rel": rel.mean(),
            "median_rel": rel.quantile(0.5),
            "p95_rel": rel.quantile(0.95),
            "mean_range": in_range.mean(),
            "reduction": in_range.mean() / change.mean(),
            "by_algorithm": rel.by_group(),
            "forecasts": len(in_range.values),
        }
    return found


def mean_error(trial: Trial, forecasts: Array, horizon: int = HORIZONS[-1]) -> float | None:
    """Return the mean relative error of one curve's forecasts; None if none can be scored."""
    column = HORIZONS.index(horizon)
    truth = trial.truth[:, column]
    found = _relative(np.abs(forecasts[:, column] - truth), truth)
    known = ~np.isnan(found)
    if not known.any():
        return None
    return float(np.average(found[known], weights=trial.stands_for[known]))


def cover(
    trials: Sequence[Trial], lower: Mapping[str, Array], upper: Mapping[str, Array]
) -> dict[str, dict[str, float]]:
    """Return the coverage of the band and its mean width relative to the range, each by horizon."""
    found: dict[str, dict[str, float]] = {"coverage": {}, "width": {}}
    for column, horizon in enumerate(HORIZONS):

        def inside(trial: Trial, column: int = column) -> Array:
            truth = trial.truth[:, column]
            held = (lower[trial.id][:, column] <= truth) & (truth <= upper[trial.id][:, column])
            return np.where(np.isnan(truth), np.nan, held)

        def width(trial: Trial, column: int = column) -> Array:
            band = upper[trial.id][:, column] - lower[trial.id][:, column]
            return np.where(
                np.isnan(trial.truth[:, column]), np.nan, band / np.ptp(trial.curve.loss)
            )

        for key, values in (("coverage", inside), ("width", width)):
            if (pool := _Pool.of(trials, values)) is not None:
                found[key][str(horizon)] = pool.mean()
    return found
