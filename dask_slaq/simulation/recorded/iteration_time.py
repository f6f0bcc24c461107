"""Seconds per iteration of a solver on N threads, fitted to trials.

The model is a fixed time plus tasks that run in waves or are spread evenly over all threads. If
Ernest's law (`core.runtime.ernest`) is clearly better, it is the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from dask_slaq.core.runtime import SPREAD, clearly_better, nnls, waves
from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.simulation.recorded.runs import Trial

FloatArray = npt.NDArray[np.float64]

#: Factor up to which times are extrapolated beyond the fewest and the most threads tried.
BEYOND = 2.0


@dataclass(frozen=True)
class RunningTime:
    """Fitted running time of one solver."""

    #: A key of `FORMS`, or "ernest".
    form: str
    #: Of "ernest": coefficients (4,) of the terms of `core.runtime.ernest`.
    law: FloatArray
    #: Of the others: seconds of an iteration that do not depend on threads, thread-seconds of the
    #: rest, and parallel tasks.
    fixed: float
    work: float
    width: float
    #: Seconds before the first iteration.
    start_up: float
    #: Thread counts of the trials, ascending.
    tried: tuple[int, ...]

    def iteration(self, threads: float) -> float:
        """Return the seconds of an iteration on some threads.

        Threads beyond twice the most tried are not predicted to help.
        """
        n = np.array([min(float(threads), BEYOND * self.tried[-1])])
        if self.form == "ernest":
            return float(scaling.fitted_seconds(self.law[None, :], n)[0])
        return self.fixed + self.work * float(FORMS[self.form](self.width, n)[0])

    def extrapolated(self, threads: float) -> bool:
        """Return whether `threads` is outside the range of thread counts tried."""
        return not self.tried[0] <= threads <= self.tried[-1]


#: Seconds of an iteration on threads (n,) whose P tasks take a second on one thread: of tasks of
#: equal length ``ceil(P / N) / P``, of tasks of many lengths ``1 / N`` up to P threads.
FORMS: dict[str, Callable[[float, FloatArray], FloatArray]] = {
    "waves": lambda width, n: 1.0 / n if math.isinf(width) else waves(width, n) / width,
    "linear": lambda width, n: 1.0 / np.minimum(n, width),
}


def running_time(trials: Sequence[Trial]) -> RunningTime | None:
    """Fit the running time of a solver to its `trials`; None if no iteration had a thread.

    The first interval of a trial includes start-up and is not fitted. The others enter as means per
    thread count, with relative errors as in Ernest.
    """
    threads, seconds, count = _observed(trials)
    if not len(threads):
        return None
    width = float(np.median([trial.width for trial in trials]))
    idle = float(np.mean(np.concatenate([trial.idle[1:] for trial in trials])))
    fits = {
        name: _fit(form(width, threads), threads, seconds, count, idle)
        for name, form in FORMS.items()
    }
    form = min(fits, key=lambda name: fits[name][2])
    fixed, work, error = fits[form]
    sums = (scaling.moments(threads, seconds) * count[:, None]).sum(axis=0)[None, :]
    law = scaling.fit(sums)
    least = np.array([threads.min()])
    law = scaling.bounded(law, least / BEYOND, least)
    left = scaling.residual(sums, law)
    if _tell(threads) and clearly_better(np.array([error]), left, np.array([count.sum()]))[0]:
        form = "ernest"
    tried = tuple(sorted({round(n) for n in threads.tolist()}))
    found = RunningTime(form, law[0], fixed, work, width, 0.0, tried)
    # The first report comes later than after an iteration, by the start-up.
    late = [
        float(trial.seconds[0]) - found.iteration(max(float(trial.threads[0]), 1.0))
        for trial in trials
    ]
    return replace(found, start_up=max(float(np.median(late)), 0.0))


def _observed(trials: Sequence[Trial]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return threads, mean seconds and number of iterations, per trial and thread count."""
    rows = []
    for trial in trials:
        near = np.round(trial.threads[1:])
        for n in np.unique(near[near >= 1]):
            here = near == n
            mean = trial.seconds[1:][here].mean()
            if mean > 0:
                rows.append((trial.threads[1:][here].mean(), mean, here.sum()))
    table = np.array(rows, dtype=float).reshape(-1, 3)
    return np.maximum(table[:, 0], 1.0), table[:, 1], table[:, 2]


def _tell(threads: FloatArray) -> bool:
    """Return whether thread counts differ enough to show how times depend on them."""
    return bool(np.ptp(np.log(threads)) > 2 * SPREAD)


def _fit(
    form: FloatArray, threads: FloatArray, seconds: FloatArray, count: FloatArray, idle: float
) -> tuple[float, float, float]:
    """Return the fixed seconds, the work, and the sum of squared relative errors of a fit."""
    terms = np.stack([np.ones_like(threads), form], axis=1) / seconds[:, None]
    weighted = terms * count[:, None]
    if _tell(threads):
        fixed, work = nnls((weighted.T @ terms)[None], weighted.sum(axis=0)[None])[0]
    else:  # take the time of the driver alone as fixed, and the rest as work
        mean = float(np.average(seconds, weights=count))
        fixed = min(idle, mean)
        work = (mean - fixed) / float(np.average(form, weights=count))
    error = float((count * (terms @ np.array([fixed, work]) - 1.0) ** 2).sum())
    return float(fixed), float(work), error
