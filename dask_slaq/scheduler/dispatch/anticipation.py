"""Anticipatory scheduling: slots kept for a job that is about to have ready tasks again.

An iterative job has no ready task for a moment between two iterations. If its slots are lent to
long tasks of other jobs meanwhile, it waits until these tasks end (Iyer and Druschel,
"Anticipatory scheduling", SOSP 2001).
"""

from __future__ import annotations

import math
from collections.abc import Collection
from time import monotonic
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.pool import Pool

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.scheduler.dispatch.slots import Slots

__all__ = ["BACK_WITHIN", "Anticipation"]

#: Seconds within which a job must be likely to have ready tasks again for slots to be kept.
BACK_WITHIN = 0.020
#: Seconds of its fair share by which the job must be behind. A job that is less far behind gets its
#: turn soon enough and catches up, unless it falls further behind each time.
BEHIND_BY = 0.125
#: Budget for keeping slots for jobs of higher index, because it costs makespan: a fraction of all
#: core-seconds, and the seconds for which it can be saved up.
PART, SAVED = 0.010, 10.0
#: Factor by which the index of the job must be higher.
WORTH = 4.0


class Anticipation:
    """Calculator of the slots to keep from long tasks, with a budget of idle core-seconds.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    slots : Slots
    fair : bool
        Whether jobs are served by their service alone. The budget applies only if they are not.
    """

    def __init__(self, scheduler: Scheduler, slots: Slots, *, fair: bool) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.fair = fair
        self._coming: Collection[Pool] = ()
        self._idle = 0  # threads left idle by the last dispatch
        self._budget = 0.0  # core-seconds that may be kept
        self._last = monotonic()

    def begin(self, pools: Collection[Pool]) -> None:
        """Begin a dispatch: update the budget, and find the jobs with short gaps between tasks.

        A job with short gaps is likely to have a ready task in a moment, or soon after its running
        tasks have ended. Slots kept for a job whose gaps are longer than what it runs between them
        would idle most of the time.
        """
        now = monotonic()
        if not self.fair:
            seconds, self._last = now - self._last, now
            threads = self.scheduler.total_nthreads
            self._budget -= min(seconds, BACK_WITHIN) * self._idle
            self._budget = min(self._budget + PART * threads * seconds, PART * threads * SAVED)
        self._idle = 0
        self._coming = [
            pool
            for pool in pools
            if pool.gap < min(BACK_WITHIN, pool.spell)
            and (pool.ready or pool.running or now - pool.left_at < BACK_WITHIN)
        ]

    def end(self, idle: int) -> None:
        """Record the number of free threads that were kept."""
        self._idle = idle

    def kept_from(self, pool: Pool, expected: float, ws: WorkerState) -> int:
        """Return the number of slots to keep from a task, for jobs that are about to come back.

        A job counts if its tasks are expected to end soon after a thread of the worker is free.

        Parameters
        ----------
        pool : Pool
            Pool of the task.
        expected : float
            Expected compute time of the task, in seconds.
        ws : distributed.scheduler.WorkerState
            Worker to which the task would be sent.

        Returns
        -------
        int
            0 if no slot is kept, as from a short task.
        """
        if not self._coming or expected <= BACK_WITHIN or (not self.fair and self._budget <= 0):
            return 0
        until = self.slots.next_end(ws) + 2 * BACK_WITHIN
        threads = self.scheduler.total_nthreads
        owed = [
            other
            for other in self._coming
            if not other.ready
            and self._goes_before(other, pool, threads)
            and self.slots.all_end_in(other) < until
        ]
        if not owed:
            return 0
        weight = pool.weight + sum(other.weight for other in owed)
        kept = 0.0
        for other in owed:
            running = len(other.running)
            # With `fair`, a job that is behind is given more than its due to catch up.
            due = threads * other.weight / weight if self.fair else other.share - running
            can_use = max(other.widest, other.was_widest) - running
            kept += max(min(due, can_use), 0.0)
        return math.ceil(kept)

    def _goes_before(self, one: Pool, other: Pool, threads: int) -> bool:
        """Return whether slots are kept for `one` from `other`.

        They are if `one` has a much higher index and a share of at least one thread or, with
        `fair`, if `one` is too far behind.
        """
        if not self.fair:
            return one.index > WORTH * max(other.index, 0.0) and one.share >= 1
        return one.service + BEHIND_BY * threads / (one.weight + other.weight) < other.service
