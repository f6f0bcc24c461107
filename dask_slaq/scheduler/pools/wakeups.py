"""Schedule of dispatches: when to look for free slots, and on which workers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from time import monotonic

__all__ = ["Wakeups"]

#: Pause between two dispatches: a multiple of the duration of the first, and its maximum in
#: seconds. With hundreds of jobs, the slots that become free in a pause are filled together. The
#: maximum bounds the time for which threads may idle.
REST, MOST_REST = 3.0, 0.010


class Wakeups:
    """Scheduler of dispatches, run when a worker may have a free slot.

    Parameters
    ----------
    dispatch : callable
        Fills free slots.
    wanted : callable
        Returns whether any task needs a slot.
    fail : callable
        Called with the error if a dispatch fails.

    Attributes
    ----------
    look_at : set of str
        Addresses of workers that may have a free slot.
    due : bool
        Whether a dispatch is scheduled.
    timers : dict of str to asyncio.TimerHandle
        Timers by address of the worker. The key of the timer without a worker is "".
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
        self._rested = -math.inf  # time before which no dispatch runs

    def soon(self) -> None:
        """Schedule a dispatch after the pending events, if any task needs a slot."""
        if self.due or not self._wanted():
            return
        self.due = True
        loop, delay = asyncio.get_running_loop(), self._rested - monotonic()
        if delay > 0:
            loop.call_later(delay, self._now)
        else:
            loop.call_soon(self._now)

    def look(self, worker: str) -> None:
        """Schedule a dispatch that looks at a worker."""
        self.look_at.add(worker)
        self.soon()

    def later(self, worker: str, seconds: float) -> None:
        """Schedule a look at a worker, replacing an earlier timer for it.

        Parameters
        ----------
        worker : str
            Address. If it is "", only a dispatch is scheduled.
        seconds : float
            Delay.
        """
        self.cancel(worker)
        self.timers[worker] = asyncio.get_running_loop().call_later(
            seconds + 1e-6, self._rang, worker
        )

    def cancel(self, worker: str) -> None:
        """Cancel the timer of a worker, if any."""
        timer = self.timers.pop(worker, None)
        if timer is not None:
            timer.cancel()

    def forget(self, worker: str) -> None:
        """Forget a worker that has left."""
        self.look_at.discard(worker)
        self.cancel(worker)

    def cancel_all(self) -> None:
        """Cancel all timers."""
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
