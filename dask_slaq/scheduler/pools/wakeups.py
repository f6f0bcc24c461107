"""When pools look for free slots again, and on which workers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from time import monotonic

__all__ = ["Wakeups"]

#: Times as long as a dispatch took for which there is no other: with hundreds of jobs, what ends
#: meanwhile is served together. Threads may idle meanwhile, hence the most in seconds.
REST, MOST_REST = 3.0, 0.010


class Wakeups:
    """Calls for a dispatch when one may find a slot.

    Parameters
    ----------
    dispatch : callable
        Fills free slots.
    wanted : callable
        Whether there is anything for which a slot is wanted.
    fail : callable
        Called with the error when a dispatch failed.

    Attributes
    ----------
    look_at : set of str
        Workers that may have a slot.
    due : bool
        Whether a dispatch comes as soon as the events at hand are through.
    timers : dict of str to asyncio.TimerHandle
        By worker; that of none in particular is "".
    """

    def __init__(
        self,
        dispatch: Callable[[], object],
        *,
        wanted: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.look_at: set[str] = set()
        self.due = False
        self.timers: dict[str, asyncio.TimerHandle] = {}
        self._dispatch, self._wanted, self._fail = dispatch, wanted, fail
        self._rested = -math.inf  # when the next dispatch may be

    def soon(self) -> None:
        """Dispatch once the events at hand are through."""
        if self.due or not self._wanted():
            return
        self.due = True
        loop, delay = asyncio.get_running_loop(), self._rested - monotonic()
        if delay > 0:
            loop.call_later(delay, self._now)
        else:
            loop.call_soon(self._now)

    def look(self, worker: str) -> None:
        """Look at a worker soon."""
        self.look_at.add(worker)
        self.soon()

    def later(self, worker: str, seconds: float) -> None:
        """Look at a worker in some seconds, and not before; dispatch anyway if it is ""."""
        self.cancel(worker)
        self.timers[worker] = asyncio.get_running_loop().call_later(
            seconds + 1e-6, self._rang, worker
        )

    def cancel(self, worker: str) -> None:
        """Do not look at a worker later."""
        timer = self.timers.pop(worker, None)
        if timer is not None:
            timer.cancel()

    def forget(self, worker: str) -> None:
        """Forget a worker that is gone."""
        self.look_at.discard(worker)
        self.cancel(worker)

    def cancel_all(self) -> None:
        """Forget what was to be looked at later."""
        for worker in list(self.timers):
            self.cancel(worker)

    def _rang(self, worker: str) -> None:
        self.timers.pop(worker, None)
        if worker:
            self.look_at.add(worker)
        self.soon()

    def _now(self) -> None:
        self.due = False
        begin = monotonic()
        try:
            self._dispatch()
        except Exception as error:
            self._fail(error)
        end = monotonic()
        self._rested = end + min(REST * (end - begin), MOST_REST)
