"""Whether the scheduler is what tasks wait for, and which tasks are too short to be chosen then."""

from __future__ import annotations

import math
from typing import NamedTuple

from dask_slaq.core.dispatch.constants import (
    CALM,
    CHOOSING,
    DEARER,
    IDLE,
    LINGER,
    LOOKS,
    OVERLOADED,
    PATIENT,
    SHARES,
)


class Look(NamedTuple):
    """What a scheduler did since the last look."""

    seconds: float  # that have passed
    computed: float  # seconds for which its thread computed
    choosing: float  # of these, for dispatches
    ended: int  # tasks of jobs
    idle: float = 0.0  # share of all threads that had nothing to run, if enough tasks were ready


class Overload:
    """State of a scheduler that is, or is not, what tasks wait for.

    Where tasks take 1 ms, 16 threads end 16,000 a second, and a scheduler passes on a few thousand.
    Choosing each task costs as much again, and so it takes the jobs longer to end. That lasts until
    the scheduler would have time to choose: the state ends later than it began.

    Examples
    --------
    >>> overload = Overload()
    >>> for _ in range(2):
    ...     overload.look(Look(seconds=0.1, computed=0.1, choosing=0.04, ended=250))
    >>> overload.lasts, overload.is_short(0.001, threads=16), overload.is_short(0.1, threads=16)
    (True, True, False)
    """

    def __init__(self) -> None:
        self.lasts = False
        self.cost = 0.0  # seconds of the scheduler per task that it chooses
        self._busy: list[Look] = []  # one after the other
        self._idle: list[Look] = []  # the same
        self._calm, self._least = 0.0, CALM  # seconds, and the share of them that is calm

    def look(self, look: Look) -> None:
        """Take note of what the scheduler did since the last look."""
        if self.lasts:
            if look.ended:  # a graph that came at the beginning made them look expensive
                self.cost = min(self.cost, DEARER * look.computed / look.ended)
            calm = look.computed < self._least * look.seconds
            self._calm = self._calm + look.seconds if calm else 0.0
            self.lasts = self._calm < LINGER
            return
        busy = look.computed > OVERLOADED * look.seconds and look.ended > 0
        self._busy = [*self._busy, look] if busy and self._chooses(look) else []
        idle = look.idle > IDLE and look.computed > SHARES * look.seconds and look.ended > 0
        self._idle = [*self._idle, look] if idle else []
        if len(self._busy) >= LOOKS or len(self._idle) >= PATIENT:
            some = self._busy or self._idle
            self.cost = sum(e.computed for e in some) / sum(e.ended for e in some)
            self._least = CALM if self._busy else SHARES
            self.lasts, self._busy, self._idle, self._calm = True, [], [], 0.0

    def is_short(self, seconds: float, threads: int) -> bool:
        """Return whether tasks of some mean `seconds` are too short; if unknown (nan), they are.

        All threads together would end more of them than the scheduler can choose.
        """
        return self.lasts and (math.isnan(seconds) or seconds < threads * self.cost)

    @staticmethod
    def _chooses(look: Look) -> bool:
        return look.choosing > CHOOSING * look.computed
