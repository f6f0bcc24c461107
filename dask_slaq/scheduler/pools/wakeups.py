"""Schedule of dispatches, and of conversions of tasks in steps that do not block the scheduler."""

from __future__ import annotations

import asyncio
import heapq
import math
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter

from dask_slaq.scheduler.pools.constants import MOST_REST, REST


class Wakeups:
    """Schedule of calls of `dispatch`, made only if any task is `wanted` to get a slot."""

    def __init__(
        self,
        dispatch: Callable[[], object],
        wanted: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.look_at: set[str] = set()  # workers that may have a free slot
        self.due = False  # whether a dispatch is scheduled
        self._dispatch, self._wanted, self._fail = dispatch, wanted, fail
        self._rested = -math.inf  # time before which no dispatch runs
        self._later: list[tuple[float, str]] = []
        self._timer: asyncio.TimerHandle | None = None

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

    def later(self, worker: str, seconds: float) -> None:
        """Schedule a dispatch that looks at a worker, or at none if it is "", after a delay."""
        heapq.heappush(self._later, (monotonic() + seconds, worker))
        self._set_timer()

    def cancel(self) -> None:
        """Cancel all that is scheduled for later."""
        self._later.clear()
        self._set_timer()

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._later:
            delay = max(self._later[0][0] - monotonic(), 0.0) + 1e-6
            self._timer = asyncio.get_running_loop().call_later(delay, self._rang)

    def _rang(self) -> None:
        self._timer, now = None, monotonic()
        while self._later and self._later[0][0] <= now:
            self.look_at.add(heapq.heappop(self._later)[1])
        self._set_timer()
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


class Steps:
    """Work on many tasks in steps of the event loop, each of which ends after some seconds."""

    TOGETHER = 50  # tasks per part
    PARTS = 10  # at most, per step: the clock may be virtual and stand still within one

    def __init__(self, fail: Callable[[BaseException], None], seconds: float = 0.010) -> None:
        self._fail, self._seconds = fail, seconds
        self._work: Iterator[object] = iter(())
        self._handle: asyncio.Handle | None = None

    @property
    def pending(self) -> bool:
        """Whether there is work left."""
        return self._handle is not None

    def begin(self, work: Iterator[object], *, now: bool = True) -> None:
        """Do `work`, an iterator whose parts take little time. The first step may run `now`."""
        self.cancel()
        self._work = work
        if now:
            self._step()
        else:
            self._handle = asyncio.get_running_loop().call_soon(self._step)

    def cancel(self) -> None:
        """Leave the rest of the work."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _step(self) -> None:
        self._handle, begin = None, perf_counter()
        try:
            for _ in range(self.PARTS):
                if next(self._work, self) is self:
                    return
                if perf_counter() - begin > self._seconds:
                    break
        except Exception as error:
            self._fail(error)
            return
        if self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._step)
