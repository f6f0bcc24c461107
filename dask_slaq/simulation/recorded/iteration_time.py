"""How long an iteration of a solver takes on N threads, from trials of it.

Its tasks run in waves, or are smooth enough to be spread over all threads, beside a time that does
not depend on threads; that is the model unless Ernest's law (`core.scaling`) is clearly better.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dask_slaq.core.runtime import SPREAD, clearly_better, waves
from dask_slaq.core.runtime import ernest as scaling
from dask_slaq.simulation.recorded.runs import Trial

__all__ = ["RunningTime", "running_time"]

FloatArray = npt.NDArray[np.float64]
#: Threads to time, per second of work of an iteration on one thread.
Form = Callable[[FloatArray], FloatArray]

#: Factor beyond the fewest and the most threads tried up to which a time is told.
BEYOND = 2.0


@dataclass(frozen=True)
class RunningTime:
    """Running time of one solver.

    Attributes
    ----------
    form : {"waves", "linear", "ernest"}
    law : (4,) array
        Of `ernest`, by the terms of `core.scaling`.
    fixed, work : float
        Of the others: seconds of an iteration that no thread shortens, and thread-seconds of the
        rest.
    width : float
        Tasks of an iteration at once.
    start_up : float
        Seconds before the first iteration.
    tried : tuple of int
        Threads of the trials.
    """

    form: str
    law: FloatArray
    fixed: float
    work: float
    width: float
    start_up: float
    tried: tuple[int, ...]

    def iteration(self, threads: float) -> float:
        """Seconds of an iteration; threads beyond twice the most tried are not said to help."""
        n = np.array([min(float(threads), BEYOND * self.tried[-1])])
        if self.form == "ernest":
            return float(scaling.fitted_seconds(self.law[None, :], n)[0])
        return self.fixed + self.work * float(FORMS[self.form](self.width)(n)[0])

    def extrapolated(self, threads: float) -> bool:
        """Whether so few or so many threads were not tried."""
        return not self.tried[0] <= threads <= self.tried[-1]


def in_waves(width: float) -> Form:
    """Tasks of one length: ``ceil(P / N) / P``."""
    return lambda n: 1.0 / n if math.isinf(width) else waves(width, n) / width


def spread(width: float) -> Form:
    """Tasks of many lengths: ``1 / N`` up to P threads."""
    return lambda n: 1.0 / np.minimum(n, width)


FORMS: dict[str, Callable[[float], Form]] = {"waves": in_waves, "linear": spread}


def running_time(trials: Sequence[Trial]) -> RunningTime | None:
    """Fit the running time of a solver to trials of it.

    Parameters
    ----------
    trials : sequence of Trial
        At least one.

    Returns
    -------
    RunningTime or None
        None if no iteration but the first ones was seen on a thread or more.

    Notes
    -----
    The first interval of a run holds start-up and is not fitted. The others count by their mean on
    each number of threads, and errors in relation to the time, as in Ernest.
    """
    threads, seconds, count = _observed(trials)
    if not len(threads):
        return None
    width = float(np.median([trial.width for trial in trials]))
    idle = float(np.mean(np.concatenate([trial.idle[1:] for trial in trials])))
    fits = {name: _fit(of(width), threads, seconds, count, idle) for name, of in FORMS.items()}
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
    return RunningTime(form, law[0], fixed, work, width, _start_up(trials, found), tried)


def _observed(trials: Sequence[Trial]) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Threads, mean seconds of an iteration, and iterations: one row a trial and thread count."""
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
    """Whether thread counts differ enough to tell how times depend on them."""
    return bool(np.ptp(np.log(threads)) > 2 * SPREAD)


def _fit(
    form: Form, threads: FloatArray, seconds: FloatArray, count: FloatArray, idle: float
) -> tuple[float, float, float]:
    """Fixed seconds, work, and the sum of squared relative errors that they leave."""
    terms = np.stack([np.ones_like(threads), form(threads)], axis=1) / seconds[:, None]
    weighted = terms * count[:, None]
    if _tell(threads):
        fixed, work = scaling.nnls((weighted.T @ terms)[None], weighted.sum(axis=0)[None])[0]
    else:  # what the driver does alone is known, and the rest is taken to be shared
        mean = float(np.average(seconds, weights=count))
        fixed = min(idle, mean)
        work = (mean - fixed) / float(np.average(form(threads), weights=count))
    error = float((count * (terms @ np.array([fixed, work]) - 1.0) ** 2).sum())
    return float(fixed), float(work), error


def _start_up(trials: Sequence[Trial], known: RunningTime) -> float:
    """Median seconds that the first report took longer than an iteration does."""
    extra = [
        float(trial.seconds[0]) - known.iteration(max(float(trial.threads[0]), 1.0))
        for trial in trials
    ]
    return max(float(np.median(extra)), 0.0)
