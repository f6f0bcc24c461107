"""Runtime model: how many iterations a job completes in an epoch on N threads.

One iteration of a job costs ``W = c.S`` core-seconds (§4.1 of the paper), learned from the
compute seconds charged between two reports, and runs as ``P`` parallel tasks. On N threads these
run in ``ceil(P / N)`` waves, so the job computes at the speed of ``P / ceil(P / N)`` threads.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]

# Weight of the newest iteration in the running means: the last few iterations decide.
_NEWEST = 0.3


@dataclass
class JobRuntime:
    """What has been seen of one job's iterations.

    Attributes
    ----------
    work : float
        Core-seconds of one iteration, 0 until one iteration was seen from report to report.
    width : float
        Tasks of one iteration that run in parallel; at least 1.
    attained : float
        Core-seconds charged to the job so far.
    """

    work: float = 0.0
    width: float = 1.0
    attained: float = 0.0
    _since_report: float = 0.0
    _most_at_once: int = 0
    _reports: int = 0

    def observe_task(self, seconds: float, tasks_at_once: int = 1) -> None:
        """Charge one task: its compute ``seconds``, and how many of the job's tasks that are
        worth a slot were ready or running with it."""
        self.attained += seconds
        self._since_report += seconds
        self._most_at_once = max(self._most_at_once, tasks_at_once)

    def observe_iteration(self) -> None:
        """End one iteration: what was charged since the last report is its work.

        The first interval also holds start-up (imports, compilation, data loading), so it only
        counts until a second one is known.
        """
        self._reports += 1
        if self._since_report > 0.0:
            if self.work == 0.0 or self._reports <= 2:
                self.work = self._since_report
            else:
                self.work += _NEWEST * (self._since_report - self.work)
        if self._most_at_once:
            # Wide at once, narrow slowly: a barrier's last task must not shrink the estimate.
            narrowed = self.width + _NEWEST * (self._most_at_once - self.width)
            self.width = max(float(self._most_at_once), narrowed, 1.0)
        self._since_report = 0.0
        self._most_at_once = 0


def speed(width: npt.ArrayLike, threads: npt.ArrayLike) -> FloatArray:
    """Threads' worth of compute that jobs attain on their threads.

    Parameters
    ----------
    width : array_like, shape (n_jobs,)
        Parallel tasks of one iteration, at least 1.
    threads : array_like, shape (n_jobs,)
        Threads granted, possibly fractional (time-shared).

    Returns
    -------
    ndarray, shape (n_jobs,)
        Nondecreasing and concave in `threads`; `width` at most. Slots are filled task by task
        and lent at barriers, so a fraction of a wave is not lost: the upper hull of the wave
        counts, which is the straight line up to `width`.

    Examples
    --------
    >>> speed([8, 8, 3], [4, 16, 2.5]).tolist()
    [4.0, 8.0, 2.5]
    """
    value: FloatArray = np.minimum(np.asarray(threads, float), np.asarray(width, float))
    return value


def waves(width: npt.ArrayLike, threads: npt.ArrayLike) -> FloatArray:
    """Waves in which one iteration runs on whole threads: ``ceil(P / N)``.

    Examples
    --------
    >>> waves([8, 8, 8], [8, 7, 3]).tolist()
    [1.0, 2.0, 3.0]
    """
    value: FloatArray = np.ceil(
        np.asarray(width, float) / np.maximum(np.asarray(threads, float), 1.0)
    )
    return value


def iterations(
    work: npt.ArrayLike, width: npt.ArrayLike, threads: npt.ArrayLike, seconds: float
) -> FloatArray:
    """Iterations completed in `seconds` on `threads`; 0 where the work is not yet known.

    Examples
    --------
    >>> iterations([2.0, 0.0], [4, 4], [4, 4], seconds=3.0).tolist()
    [6.0, 0.0]
    """
    cost = np.asarray(work, float)
    done = seconds * speed(width, threads)
    value: FloatArray = np.divide(done, cost, out=np.zeros_like(done), where=cost > 0)
    return value
