"""When a decision is made: once per epoch, and soon after jobs or workers come and go."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from tornado.ioloop import PeriodicCallback

__all__ = ["DecisionTimer"]

#: Minimum pause in seconds after a decision, and in seconds per second that the decision took.
#: After a rest, decisions worth `BURST` seconds of pauses may follow each other at once. So a few
#: jobs are decided on as they come, and a crowd together.
PAUSE, PAUSE_PER_SECOND, BURST = 0.020, 4.0, 0.200


class DecisionTimer:
    """Calls `once_per_epoch` every `epoch` seconds, and `decide` soon after something changed."""

    def __init__(
        self, once_per_epoch: Callable[[], None], decide: Callable[[], object], epoch: float
    ) -> None:
        self._periodic = PeriodicCallback(once_per_epoch, epoch * 1000)
        self._decide = decide
        self._next: asyncio.Handle | None = None
        self._rested = 0.0

    @property
    def is_running(self) -> bool:
        """Whether it calls for a decision once per epoch."""
        return self._periodic.is_running()

    def start(self) -> None:
        """Begin to call once per epoch."""
        if not self.is_running:
            self._periodic.start()

    def stop(self) -> None:
        """Stop calling once per epoch, and cancel the decision that is due."""
        self._periodic.stop()
        self.cancel()

    def soon(self) -> None:
        """Decide once for all changes, as soon as the pause after the last decisions allows."""
        if self._next is None:
            delay = max(self._rested - BURST - monotonic(), 0.0)
            self._next = asyncio.get_running_loop().call_later(delay, self._decide)

    def cancel(self) -> None:
        """Cancel the decision that is due, if any."""
        if self._next is not None:
            self._next.cancel()
            self._next = None

    def decided(self, begin: float) -> None:
        """Record that a decision has been made that began at `begin` (monotonic seconds)."""
        end = monotonic()
        pause = max(PAUSE, PAUSE_PER_SECOND * (end - begin))
        self._rested = max(self._rested, end) + pause
