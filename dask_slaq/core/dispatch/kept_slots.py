"""Slots that are kept for iterative jobs which are about to have a ready task again."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from dask_slaq.core.dispatch.constants import BACK_WITHIN, SLACK, WORTH

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.contender import Contender


class KeptSlots:
    """Slots that are kept for jobs that are `coming`, on a cluster of some `threads`.

    An iterative job has no ready task for a moment between two iterations. If its slots were taken
    by long tasks meanwhile, it would wait until these end (anticipatory scheduling: Iyer and
    Druschel, SOSP 2001).
    """

    def __init__(self, coming: Collection[Contender], threads: int, now: float) -> None:
        self._coming, self._threads, self._now = coming, threads, now

    def kept_from(self, pool: Contender, mean: float, address: str, end: float) -> int:
        """Return how many slots are kept from tasks of a job, of this `mean` duration.

        A thread of the worker at an `address` is free in `end` seconds.
        """
        if not self._coming or mean <= BACK_WITHIN:
            return 0
        kept = 0.0
        for other in self._coming:
            if other is pool or other.ready or not self._comes_before(other, pool):
                continue
            running = other.running.values()
            ends = max((sent.seconds_left(self._now) for sent in running), default=0.0)
            if ends <= end + 2 * BACK_WITHIN:
                due = other.gaps.width
                if (
                    other.granted.index != pool.granted.index
                ):  # else it is behind, and is to catch up
                    due = min(due, other.granted.share)
                kept += max(due - sum(sent.worker != address for sent in running), 0.0)
        return math.ceil(kept)

    def _comes_before(self, one: Contender, other: Contender) -> bool:
        if one.on_spare != other.on_spare:
            return other.on_spare
        if one.granted.index == other.granted.index:
            behind = SLACK * self._threads / 2 / (one.weight + other.weight)
            return one.service + behind < other.service
        return one.granted.index > WORTH * max(other.granted.index, 0.0) and one.granted.share >= 1
