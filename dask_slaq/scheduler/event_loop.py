"""Calls on the scheduler's event loop: soon and with rests, later, and in steps."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Callable, Iterator
from time import monotonic, perf_counter
from typing import Any


class Soon:
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


class Alarm:
    """Calls `ring` with each value when it is due.

    It has one entry per value: whoever looks when it rings asks again for what is due later.
    """

    def __init__(self, ring: Callable[[Any], object]) -> None:
        self._ring = ring
        self._due: dict[Any, tuple[float, asyncio.TimerHandle]] = {}

    def __len__(self) -> int:
        return len(self._due)

    def set(self, when: float, value: Any) -> None:
        """Ring at a time in monotonic seconds, unless it rings for that value before."""
        known = self._due.get(value)
        if known is None or when < known[0]:
            self.move(when, value)

    def move(self, when: float, value: Any) -> None:
        """Ring for a value at a time in monotonic seconds, and not before."""
        if (known := self._due.get(value)) is not None:
            if known[0] == when:
                return
            known[1].cancel()
        delay = max(when - monotonic(), 0.0) + 1e-6
        timer = asyncio.get_running_loop().call_later(delay, self._rang, value)
        self._due[value] = when, timer

    def forget(self, value: Any) -> None:
        """Do not ring for a value."""
        if (known := self._due.pop(value, None)) is not None:
            known[1].cancel()

    def cancel(self) -> None:
        """Ring for nothing that was set."""
        for value in list(self._due):
            self.forget(value)

    def _rang(self, value: Any) -> None:
        del self._due[value]
        self._ring(value)


class Steps:
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
