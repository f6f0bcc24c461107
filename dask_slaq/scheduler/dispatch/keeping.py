"""Keeps slots from long tasks for a job that is about to come back (anticipatory scheduling).

A job that iterates has no ready task for a moment after each iteration, and is about to have some
while the last ones of an iteration end. Lent meanwhile, its slots are gone for as long as the
tasks of others take (Iyer and Druschel, "Anticipatory scheduling", SOSP 2001).
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

__all__ = ["BACK_WITHIN", "Keeping"]

#: A slot is kept from long tasks for a job that is likely to be back within these seconds.
BACK_WITHIN = 0.020
#: Seconds of a fair share by which it is behind then: who comes back finds its turn soon enough,
#: and catches up, unless it falls behind further each time.
BEHIND_BY = 0.125
#: A job of higher index is not behind, and slots are kept for it only within a budget, for it costs
#: makespan: this part of all core-seconds, saved up for at most so many seconds.
PART, SAVED = 0.010, 10.0
#: How many times as high its index has to be.
WORTH = 4.0


class Keeping:
    """Decides how many slots are kept for whom.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    slots : Slots
    fair : bool
        Whether jobs are served by their service alone.
    """

    def __init__(self, scheduler: Scheduler, slots: Slots, *, fair: bool) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.fair = fair
        self._coming: Collection[Pool] = ()
        self._idle = 0  # threads that were left idle
        self._budget = 0.0  # core-seconds that may be kept
        self._last = monotonic()

    def begin(self, pools: Collection[Pool]) -> None:
        """Look at the jobs that iterate: when they have no ready task they are likely to have some
        in a moment, or in a moment after what they run has ended."""
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
            if pool.gap < BACK_WITHIN
            and (pool.ready or pool.running or now - pool.left_at < BACK_WITHIN)
        ]

    def end(self, idle: int) -> None:
        """Note how many free threads were kept."""
        self._idle = idle

    def kept_from(self, pool: Pool, expected: float, ws: WorkerState) -> int:
        """Return the slots that a task of `expected` seconds may not have, for there are jobs that
        will be back within a moment after this worker's thread is free."""
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
        if not self.fair:
            return math.ceil(sum(max(other.share - len(other.running), 0.0) for other in owed))
        weight = sum(other.weight for other in owed)
        return math.ceil(threads * weight / (weight + pool.weight))

    def _goes_before(self, one: Pool, other: Pool, threads: int) -> bool:
        """Whether slots of one job are kept for another one: that has the higher index, or, by
        fairness, is behind for too long."""
        if not self.fair:
            return one.index > WORTH * max(other.index, 0.0) and one.share >= 1
        return one.service + BEHIND_BY * threads / (one.weight + other.weight) < other.service
