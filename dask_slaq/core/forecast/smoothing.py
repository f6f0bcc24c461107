"""Input of the experts: normalized report windows without spikes, and their noise."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.job_arrays import BoolArray, FloatArray, IntArray

#: Bound on normalized values, in spans of the window, so that nothing overflows.
MOST = 1e6
#: Lower bound on normalized losses above zero before logs are taken.
LEAST = 1e-12
#: Number of newest reports that determine the usual size of a change.
USUAL_REPORTS = 17
#: Number of newest reports that noise is estimated from.
NOISE_REPORTS = 27


class NormalizedWindow(NamedTuple):
    """Recent losses of several jobs, scaled so that a window spans 1 and its newest report is 0."""

    losses: FloatArray  # (n_jobs, window), newest first
    known: IntArray  # (n_jobs,) number of columns that hold reports
    total: IntArray  # (n_jobs,) reports so far
    means: FloatArray  # (n_jobs, n_means) of the whole run, newest first
    means_known: IntArray  # (n_jobs,) number of columns that hold means
    stride: FloatArray  # (n_jobs,) reports per mean
    age: FloatArray  # (n_jobs,) iterations from the newest mean to the newest report
    noise: FloatArray  # (n_jobs,) standard deviation of the noise of one report
    newest: FloatArray  # (n_jobs,) raw loss that is normalized to 0
    unit: FloatArray  # (n_jobs,) raw difference that is normalized to 1
    zero: FloatArray  # (n_jobs,) the raw loss 0; -MOST if that is no bound
    logs: FloatArray  # (n_jobs, window) of loss / newest; 0 if zero is no bound
    log_noise: FloatArray  # (n_jobs,) standard deviation of the noise of `logs`
    in_logs: BoolArray  # (n_jobs,) rows in which losses stand for their logs

    def of(self, which: IntArray | slice) -> NormalizedWindow:
        """Return the windows of some of the jobs."""
        return NormalizedWindow._make(array[which] for array in self)


def normalize_window(history: Histories, rows: IntArray, back: IntArray) -> NormalizedWindow:
    """Return the normalized windows of some jobs as of `back` (n_jobs,) reports ago."""
    losses, known = history.recent(rows, back)
    means, means_known, stride, age = history.whole(rows, back)
    bounded, in_logs = history.bounds(rows)
    for values in (losses, means):
        np.log(values, out=values, where=in_logs[:, None])
    losses = without_spikes(losses, known)
    means = without_spikes(means, means_known)
    newest = losses[:, 0].copy()
    span = losses.max(axis=1) - losses.min(axis=1)
    unit = np.where(span > 0, span, 1.0)
    losses = (losses - newest[:, None]) / unit[:, None]
    with np.errstate(over="ignore"):  # means may be any number of spans away
        means = np.clip((means - newest[:, None]) / unit[:, None], -MOST, MOST)
    total = history.column["count"][rows] - back
    noise = report_noise(losses, known)
    zero = np.where(bounded & ~in_logs, np.maximum(-newest / unit, -MOST), -MOST)
    logs = _logs(losses, zero)
    log_noise = report_noise(logs, known)
    return NormalizedWindow(
        losses, known, total, means, means_known, stride, age, noise, newest, unit, zero, logs,
        log_noise, in_logs,
    )  # fmt: skip


def _logs(losses: FloatArray, zero: FloatArray) -> FloatArray:
    """Return the logs of losses relative to the newest one; 0 if not bounded by zero."""
    bounded = zero > -MOST
    logs = np.log(np.maximum(losses - zero[:, None], LEAST))
    return np.where(bounded[:, None], logs - logs[:, :1], 0.0)


def without_spikes(losses: FloatArray, known: IntArray) -> FloatArray:
    """Return losses (n_jobs, window), newest first, with spikes cut down to the higher neighbour.

    A spike exceeds both neighbours by more than ten times the usual change.
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
    """Estimate the standard deviation (n_jobs,) of independent noise on the reports.

    The third differences of a smooth curve have one sign, so products of neighbours are positive;
    those of noise are -15 variances on average.
    """
    third = np.diff(losses[:, :NOISE_REPORTS], n=3, axis=1)
    n = np.clip(known - 3, 0, third.shape[1])
    most = 4.0 * _middle(np.abs(third), n)  # a spike is not noise
    usable = np.arange(third.shape[1]) < n[:, None]
    third = np.where(usable, np.clip(third, -most, most), 0.0)
    product = (third[:, 1:] * third[:, :-1]).sum(axis=1) / np.maximum(n - 1, 1)
    noise: FloatArray = np.sqrt(np.maximum(-product, 0.0) / 15.0)
    return noise


def _middle(values: FloatArray, n: IntArray) -> FloatArray:
    """Return the median of the first `n` of each row of `values` >= 0, (n_rows, 1); 0 if n is 0."""
    n = np.minimum(n, values.shape[1])[:, None]
    ranked = np.sort(np.where(np.arange(values.shape[1]) < n, values, np.inf), axis=1)
    middle = np.take_along_axis(ranked, np.maximum(n - 1, 0) // 2, axis=1)
    return np.where(n > 0, middle, 0.0)
