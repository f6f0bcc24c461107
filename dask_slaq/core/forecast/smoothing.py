"""What the experts see of the reports: scaled, without spikes, and with its noise measured."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.history import Histories

__all__ = ["MOST", "NormalizedWindow", "normalize_window", "report_noise", "without_spikes"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Values are kept within so many spans of the window, so that nothing overflows.
MOST = 1e6
#: Losses count as at least so many spans when logs are taken.
LEAST = 1e-12
#: Newest reports that show the usual size of a change.
USUAL_REPORTS = 17
#: Newest reports that noise is estimated from.
NOISE_REPORTS = 27


class NormalizedWindow(NamedTuple):
    """Losses of some jobs, in units in which the window spans 1 and the newest report is 0."""

    losses: FloatArray  # (n_jobs, window), newest first
    known: IntArray  # (n_jobs,) how many of the columns are reports
    total: IntArray  # (n_jobs,) reports so far
    means: FloatArray  # (n_jobs, n_means) of the whole run, newest first
    means_known: IntArray  # (n_jobs,)
    stride: FloatArray  # (n_jobs,) reports in one mean
    age: FloatArray  # (n_jobs,) iterations from the newest mean to the newest report
    noise: FloatArray  # (n_jobs,) standard deviation
    newest: FloatArray  # (n_jobs,) raw loss that is 0 here
    unit: FloatArray  # (n_jobs,) raw loss units that are 1 here
    zero: FloatArray  # (n_jobs,) the raw loss 0, far down where a loss was negative
    logs: FloatArray  # (n_jobs, window) of the losses over the newest; 0 where one was negative
    log_noise: FloatArray  # (n_jobs,) standard deviation of these

    def of(self, which: IntArray | slice) -> NormalizedWindow:
        """Return the view of some of the jobs."""
        return NormalizedWindow._make(array[which] for array in self)


def normalize_window(history: Histories, rows: IntArray, back: IntArray) -> NormalizedWindow:
    """View jobs as they were `back` reports ago.

    Parameters
    ----------
    history : Histories
    rows : (n_jobs,) array
    back : (n_jobs,) array
        Fewer than the reports so far and than the window.
    """
    losses, known = history.recent(rows, back)
    losses = without_spikes(losses, known)
    means, means_known, stride, age = history.whole(rows, back)
    means = without_spikes(means, means_known)
    newest = losses[:, 0].copy()
    span = losses.max(axis=1) - losses.min(axis=1)
    unit = np.where(span > 0, span, 1.0)
    losses = (losses - newest[:, None]) / unit[:, None]
    with np.errstate(over="ignore"):  # a run may have fallen by any number of such spans
        means = np.clip((means - newest[:, None]) / unit[:, None], -MOST, MOST)
    total = history.column["count"][rows] - back
    noise = report_noise(losses, known)
    # Losses that were never negative are taken to be of a kind that cannot be.
    zero = np.where(history.column["lowest"][rows] >= 0, np.maximum(-newest / unit, -MOST), -MOST)
    logs = _logs(losses, zero)
    log_noise = report_noise(logs, known)
    return NormalizedWindow(
        losses, known, total, means, means_known, stride, age, noise, newest, unit, zero, logs,
        log_noise,
    )  # fmt: skip


def _logs(losses: FloatArray, zero: FloatArray) -> FloatArray:
    """Logs of losses above zero over that of the newest."""
    bounded = zero > -MOST
    logs = np.log(np.maximum(losses - zero[:, None], LEAST))
    return np.where(bounded[:, None], logs - logs[:, :1], 0.0)


def without_spikes(losses: FloatArray, known: IntArray) -> FloatArray:
    """Cut reports that stick out of both neighbours down to the higher one.

    To stick out is to rise by more than ten usual changes: a smooth curve and plain noise pass
    unchanged, and so does a lasting rise, but for its first report.

    Parameters
    ----------
    losses : (n_jobs, window) array
        Newest first.
    known : (n_jobs,) array
        How many of the columns are reports.

    Returns
    -------
    (n_jobs, window) array
    """
    change = np.abs(np.diff(losses[:, :USUAL_REPORTS], axis=1))
    usual = _middle(change, np.maximum(known - 1, 1))
    older = losses[:, 1:]
    beside = older.copy()
    beside[:, 1:] = np.maximum(beside[:, 1:], losses[:, :-2])
    cut = losses.copy()
    cut[:, :-1] = np.where(losses[:, :-1] - beside > 10.0 * usual, beside, losses[:, :-1])
    return cut


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
    most = 4.0 * _middle(np.abs(third), n)  # a spike is no noise
    usable = np.arange(third.shape[1]) < n[:, None]
    third = np.where(usable, np.clip(third, -most, most), 0.0)
    product = (third[:, 1:] * third[:, :-1]).sum(axis=1) / np.maximum(n - 1, 1)
    noise: FloatArray = np.sqrt(np.maximum(-product, 0.0) / 15.0)
    return noise


def _middle(values: FloatArray, n: IntArray) -> FloatArray:
    """Median of the first `n` of each row of `values` >= 0, (n_rows, 1); 0 where n is 0."""
    n = np.minimum(n, values.shape[1])[:, None]
    ranked = np.sort(np.where(np.arange(values.shape[1]) < n, values, np.inf), axis=1)
    middle = np.take_along_axis(ranked, np.maximum(n - 1, 0) // 2, axis=1)
    return np.where(n > 0, middle, 0.0)
