"""Calls on the scheduler's event loop: soon and with rests, later, and in steps."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
import math
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter
from typing import Any


class Throttle:
    """Calls `call` once for all who `ask`, after at least `delay` seconds, and rests after work.

    A rest takes `per_second` times as long as the work, and `least` seconds. Work whose rests add
    up to `burst` seconds may be done without a rest in between.
    """

    def __init__(
        self,
        call: Callable[[], object],
        per_second: float,
        *,
        least: float = 0.0,
        burst: float = 0.0,
        delay: float = 0.0,
    ) -> None:
        self._call, self._per_second, self._least = call, per_second, least
        self._burst, self._delay = burst, delay
        self._next: asyncio.Handle | None = None
        self._next_at = math.inf  # monotonic seconds of the scheduled call
        self._rested = -math.inf  # monotonic seconds before which it rests

    def ask(self, *, rest: bool = True) -> None:
        """Schedule a call, unless there is one by then; without a `rest`, after the delay."""
        now = monotonic()
        at = max(self._rested - self._burst if rest else now, now + self._delay)
        if self._next_at <= max(at, now):
            return
        if self._next is not None:
            self._next.cancel()
        loop, self._next_at = asyncio.get_running_loop(), at
        later = at > now
        self._next = loop.call_later(at - now, self._run) if later else loop.call_soon(self._run)

    def cancel(self) -> None:
        """Cancel the scheduled call, if any."""
        if self._next is not None:
            self._next.cancel()
            self._next, self._next_at = None, math.inf

    @contextlib.contextmanager
    def work(self) -> Iterator[None]:
        """Wrap the work, whoever calls for it: it serves all who have asked, and a rest follows.

        It also follows work that fails, which would else be tried again at once, for ever.
        """
        self.cancel()
        begin = monotonic()
        try:
            yield
        finally:
            end = monotonic()
            rest = max(self._per_second * (end - begin), self._least)
            self._rested = max(self._rested, end) + rest

    def _run(self) -> None:
        self._next, self._next_at = None, math.inf
        self._call()


class Timers:
    """Calls `ring` with the list of the values that are due.

    It has one time per value: whoever looks when it rings asks again for what is due later. One
    timer waits for the first of them, since most are moved before they are due.
    """

    def __init__(self, ring: Callable[[list[Any]], object]) -> None:
        self._ring = ring
        self._due: dict[Any, float] = {}
        self._heap: list[tuple[float, int, Any]] = []  # times, those of values that moved as well
        self._count = itertools.count()
        self._timer: asyncio.TimerHandle | None = None
        self._at = math.inf  # when the timer rings

    def __len__(self) -> int:
        return len(self._due)

    def set(self, when: float, value: Any) -> None:
        """Ring at a time in monotonic seconds, unless it rings for that value before."""
        if when < self._due.get(value, math.inf):
            self.move(when, value)

    def move(self, when: float, value: Any) -> None:
        """Ring for a value at a time in monotonic seconds, and not before."""
        if self._due.get(value) == when:
            return
        self._due[value] = when
        if len(self._heap) > 2 * len(self._due) + 32:  # most are of values that moved since
            self._heap = [each for each in self._heap if self._due.get(each[2]) == each[0]]
            heapq.heapify(self._heap)
        heapq.heappush(self._heap, (when, next(self._count), value))
        if when < self._at:
            self._wait(when)

    def forget(self, value: Any) -> None:
        """Do not ring for a value."""
        self._due.pop(value, None)

    def cancel(self) -> None:
        """Ring for nothing that was set."""
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._at = None, math.inf

    def _wait(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        delay = max(when - monotonic(), 0.0) + 1e-6
        self._timer, self._at = asyncio.get_running_loop().call_later(delay, self._rang), when

    def _rang(self) -> None:
        self._timer, self._at = None, math.inf
        now, heap, due = monotonic(), self._heap, []
        while heap and (heap[0][0] <= now or self._due.get(heap[0][2]) != heap[0][0]):
            when, _, value = heapq.heappop(heap)
            if self._due.get(value) == when:
                del self._due[value]
                due.append(value)
        if due:
            self._ring(due)
        if self._heap and self._heap[0][0] < self._at:
            self._wait(self._heap[0][0])


class ChunkedWork:
    """Work on many tasks in steps of the event loop, each of which ends after some seconds.

    Each is done by `enter`; see `SlaqPlugin.enter`.
    """

    TOGETHER = 50  # tasks per part
    PARTS = 10  # at most, per step: the clock may be virtual and stand still within one

    def __init__(self, enter: Callable[..., Any], seconds: float = 0.010) -> None:
        self._enter, self._seconds = enter, seconds
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
        """Leave the rest of the work, and what it refers to."""
        self._work = iter(())
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None

    def _step(self) -> None:
        self._handle = None
        if self._enter(self._go_on) and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._step)

    def _go_on(self) -> bool:
        """Do one step. Returns whether there is more to do."""
        begin = perf_counter()
        for _ in range(self.PARTS):
            if next(self._work, self) is self:
                return False
            if perf_counter() - begin > self._seconds:
                break
        return True
