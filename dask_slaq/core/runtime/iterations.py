"""Work and parallel tasks of the jobs' iterations, measured from reports and task times.

Rule 1: a job that waits for threads is not slow. Only seconds in which it held threads count.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import DTypeLike, NDArray

from dask_slaq.core.job_arrays import JobArrays

__all__ = ["Iterations"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

#: Weight of the newest iteration in running means, which are thus dominated by the last few.
NEWEST = 0.3
#: Length of the list of ended iterations (three numbers each) at which it is taken in.
MOST_WAITING = 300_000
#: Columns that are reset when the second interval between reports replaces the first one.
_SEEN = ("iterations", "core_seconds", "held_seconds")


class Iterations(JobArrays):
    """Observed iterations of all jobs, one row per job.

    Columns that are always up to date: ``reports``; the last ``loss``; ``attained``, core-seconds
    charged so far. As of the last `observe_iterations`: ``work``, core-seconds of one iteration, 0
    if unknown; ``width``, parallel tasks of one iteration, at least 1.

    Parameters
    ----------
    learned : mapping of str to tuple
        Further columns, see `JobArrays`.
    reset : tuple of str
        Those of them that are reset when the second interval between reports replaces the first.
    """

    def __init__(
        self,
        learned: Mapping[str, tuple[tuple[int, ...], DTypeLike, float]],
        reset: tuple[str, ...],
    ) -> None:
        number = ((), np.float64, 0.0)
        super().__init__(
            {
                "work": number,
                "width": ((), np.float64, 1.0),
                "attained": number,
                "reports": ((), np.int64, 0),
                "loss": ((), np.float64, np.nan),  # of the last report, raw
                "taken_in": ((), np.int64, 0),  # reports processed by `observe_iterations`
                # Since the last report.
                "charged": number,
                "at_once": number,
                # Threads now, whether the job is served, and seconds so far in which it was.
                "share": number,
                "served": number,
                "held": number,
                "held_at_report": number,
                # Whole iterations since the last `learn`.
                "iterations": number,
                "core_seconds": number,
                "held_seconds": number,
                "most_share": number,
                **learned,
            }
        )
        self._reset = (*_SEEN, *reset)
        # Three numbers per iteration in one flat list: tuples would burden the garbage collector.
        self._ended: list[float] = []

    def observe_task(self, row: int, seconds: float, at_once: float = 1.0) -> None:
        """Charge one task of `seconds` compute time to the job in a `row`.

        `at_once` is the number of the job's tasks worth a slot that were ready or running with it.
        """
        column = self.column
        column["attained"][row] += seconds
        column["charged"][row] += seconds
        if at_once > column["at_once"][row]:
            column["at_once"][row] = at_once

    def end_iteration(self, row: int, elapsed: float = 0.0, loss: float = np.nan) -> None:
        """Record the end of an iteration of the job in a `row`. O(1).

        It ended `elapsed` seconds after the last `advance`; `loss` is what the job reported.
        """
        column = self.column
        self._ended += (row, elapsed, column["charged"].item(row))
        column["reports"][row] += 1
        column["loss"][row] = loss
        if len(self._ended) >= MOST_WAITING:
            self.observe_iterations()

    def observe_iterations(self) -> None:
        """Process the iterations that ended since the last call, all together.

        Notes
        -----
        The result depends on which iterations are processed together. So read-only methods must
        not call this: otherwise, inspecting a job would change decisions.
        The core-seconds charged since the last processed report are the work of the iterations
        that ended since then. The first interval includes start-up (imports, compilation, data
        loading), so it counts only until another one is known.
        """
        if not self._ended:
            return
        ended = np.fromiter(self._ended, np.float64, len(self._ended)).reshape(-1, 3)
        self._ended.clear()
        column = self.column
        ended = ended[np.argsort(ended[:, 0], kind="stable")]
        start = np.flatnonzero(np.diff(ended[:, 0], prepend=-1.0))
        n = np.diff(start, append=len(ended))
        rows, first, last = ended[start, 0], ended[start, 1:], ended[start + n - 1, 1:]
        rows = rows.astype(np.int64)
        served = column["served"][rows]
        held = column["held"][rows] + served * last[:, 0]
        lasted, charged = held - column["held_at_report"][rows], last[:, 1].copy()
        start_up = (column["taken_in"][rows] == 0) & (n > 1)
        lasted[start_up] = (served * (last - first)[:, 0])[start_up]
        charged[start_up] -= first[start_up, 1]
        column["held_at_report"][rows] = held
        column["charged"][rows] -= last[:, 1]
        self._observe_work(rows, np.where(start_up, n - 1, n), lasted, charged)
        column["taken_in"][rows] += n
        at_once, width = column["at_once"][rows], column["width"][rows]
        # Widen at once, narrow slowly: the last task before a barrier must not shrink the estimate.
        wider = np.maximum(np.maximum(at_once, width + NEWEST * (at_once - width)), 1.0)
        column["width"][rows] = np.where(at_once > 0, wider, width)
        column["at_once"][rows] = 0.0

    def _observe_work(
        self, rows: IntArray, n: IntArray, lasted: FloatArray, charged: FloatArray
    ) -> None:
        """Update the work per iteration from `n` iterations, which took `lasted` served seconds."""
        column = self.column
        some = charged > 0.0
        rows, n, lasted, charged = rows[some], n[some], lasted[some], charged[some]
        work = column["work"][rows]
        known = (work > 0.0) & (column["taken_in"][rows] >= 2)
        for name in self._reset:
            column[name][rows[~known]] = self._fill[name]
        one = charged / n
        later = work + (1.0 - (1.0 - NEWEST) ** n) * (one - work)
        column["work"][rows] = np.where(known, later, one)
        column["iterations"][rows] += n
        column["core_seconds"][rows] += charged
        column["held_seconds"][rows] += lasted

    def advance(self, rows: IntArray, elapsed: float) -> None:
        """Add `elapsed` seconds with the present grants to the served time of `rows`."""
        self.column["held"][rows] += self.column["served"][rows] * elapsed

    def grant(self, rows: IntArray, share: FloatArray, tokens: FloatArray) -> None:
        """Set `share` and `tokens` (n_jobs,) that the jobs in `rows` hold from now on."""
        column = self.column
        column["share"][rows] = share
        column["served"][rows] = (share > 0) | (tokens > 0)
        column["most_share"][rows] = np.maximum(column["most_share"][rows], share)
