"""Weights of the experts: what each said before is compared with the reports that came since."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.experts import HORIZONS, Belief
from dask_slaq.core.history import Rows

__all__ = ["Backtest", "report_noise"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Horizons of a forecast that are kept for scoring.
N_KEPT = 13
#: A forecast is replaced when it has been scored over so many reports.
CYCLE = 5
#: Weight of the score so far against that of one more report.
MEMORY = 0.85
#: Weight of an expert is its score to the power of minus this.
SHARPNESS = 6.0
#: Newest reports that noise is estimated from.
NOISE_REPORTS = 27
#: Ahead of this many iterations nothing is scored.
FARTHEST = int(HORIZONS[N_KEPT - 1])
#: (N_KEPT, FARTHEST): linear interpolation from the kept horizons to 1, 2, …, FARTHEST.
TO_EVERY_LEAD: FloatArray = np.stack(
    [np.interp(np.arange(1, FARTHEST + 1), HORIZONS[:N_KEPT], unit) for unit in np.eye(N_KEPT)]
)


class Backtest(Rows):
    """Scores of the experts of each job; a row belongs to one job.

    Parameters
    ----------
    noise_cost : (n_experts,) array
        Error that noise of standard deviation 1 adds to the forecast of each expert.
    """

    def __init__(self, noise_cost: FloatArray) -> None:
        n = len(noise_cost)
        self._noise_cost = noise_cost
        super().__init__(
            {
                "said": ((n, N_KEPT), np.float64, 0.0),  # losses, raw units
                "said_at": ((), np.int64, 0),  # reports by then; 0: nothing said yet
                "seen_at": ((), np.int64, 0),  # reports scored already
                "score": ((n,), np.float64, 1.0),  # error by the mean expert's
            }
        )

    def weights(self, rows: IntArray) -> FloatArray:
        """Weights of the experts, (n_rows, n_experts), each row summing to 1."""
        weight: FloatArray = self.column["score"][rows] ** -SHARPNESS
        weight /= weight.sum(axis=1, keepdims=True)
        return weight

    def score(
        self,
        rows: IntArray,
        losses: FloatArray,
        total: IntArray,
        unit: FloatArray,
        noise: FloatArray,
    ) -> None:
        """Score what was said by the reports that came since.

        Parameters
        ----------
        rows : (n_rows,) array
        losses : (n_rows, window) array
            Newest reports, newest first, raw units.
        total : (n_rows,) array
            Reports so far.
        unit : (n_rows,) array
            Raw loss units in which errors of a job are of the order of 1.
        noise : (n_rows,) array
            Standard deviation of the noise, in those units.

        Notes
        -----
        The error at a lead is the mean of the signed errors up to it, so that noise of the
        reports averages out and an expert's bias does not.
        """
        column = self.column
        since = total - column["said_at"][rows]
        lead = np.arange(1, min(FARTHEST, max(1, int(since.max()))) + 1)
        age = since[:, None] - lead
        held = (age >= 0) & (age < np.minimum(losses.shape[1], total)[:, None])
        held &= (column["said_at"][rows] > 0)[:, None]
        came = np.take_along_axis(losses, np.where(held, age, 0), axis=1)
        told = column["said"][rows] @ TO_EVERY_LEAD[:, : len(lead)]
        with np.errstate(over="ignore"):  # the loss may have left the unit far behind
            error = np.clip((told - came[:, None, :]) / unit[:, None, None], -1e9, 1e9)
        error = np.where(held[:, None, :], error, 0.0)
        n = np.maximum(np.cumsum(held, axis=1), 1)[:, None, :]
        fresh = held & (age < (total - column["seen_at"][rows])[:, None])
        n_fresh = fresh.sum(axis=1)[:, None]
        bias = np.abs(np.cumsum(error, axis=2)) / n
        bias = np.where(fresh[:, None, :], bias, 0.0).sum(axis=2) / np.maximum(n_fresh, 1)
        bias += self._noise_cost * noise[:, None]
        relative = bias / (bias.mean(axis=1, keepdims=True) + 1e-12) + 1e-3
        keep = MEMORY**n_fresh
        column["score"][rows] = keep * column["score"][rows] + (1.0 - keep) * relative
        column["seen_at"][rows] = total

    def remember(
        self,
        rows: IntArray,
        beliefs: list[Belief],
        newest: FloatArray,
        total: IntArray,
        unit: FloatArray,
    ) -> None:
        """Keep what the experts say now, where the forecasts kept before have served."""
        column = self.column
        said_at = column["said_at"][rows]
        due = np.flatnonzero((said_at == 0) | (total - said_at >= CYCLE))
        said = np.stack([b.level[due, None] - b.fall[due, :N_KEPT] for b in beliefs], axis=1)
        column["said"][rows[due]] = newest[due, None, None] + unit[due, None, None] * said
        column["said_at"][rows[due]] = total[due]


def report_noise(losses: FloatArray, known: IntArray) -> FloatArray:
    """Estimate the standard deviation of independent noise on the reports.

    Third differences of a smooth curve are all of one sign, so products of neighbours are
    positive; those of independent noise are negative, -15 variances on average.

    Parameters
    ----------
    losses : (n_jobs, window) array
    known : (n_jobs,) array
        How many of the columns are reports.

    Returns
    -------
    (n_jobs,) array
        In the units of `losses`; 0 with fewer than 5 reports.
    """
    third = np.diff(losses[:, :NOISE_REPORTS], n=3, axis=1)
    n = np.clip(known - 3, 0, third.shape[1])
    usable = np.arange(third.shape[1]) < n[:, None]
    size = np.sort(np.where(usable, np.abs(third), np.inf), axis=1)
    middle = np.take_along_axis(size, (np.maximum(n - 1, 0) // 2)[:, None], axis=1)
    most = np.where(n[:, None] > 0, 4.0 * middle, 0.0)  # a spike is no noise
    third = np.where(usable, np.clip(third, -most, most), 0.0)
    product = (third[:, 1:] * third[:, :-1]).sum(axis=1) / np.maximum(n - 1, 1)
    noise: FloatArray = np.sqrt(np.maximum(-product, 0.0) / 15.0)
    return noise
