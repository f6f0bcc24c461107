"""Schedule of dispatches: soon after what frees a slot or makes a task ready, and later."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any

from dask_slaq.core.dispatch import MOST_REST, REST, TOGETHER
from dask_slaq.scheduler.event_loop import Alarm, Soon


class Wakeups:
    """Schedule of calls of `dispatch`, made only if any task is `wanted` to get a slot.

    `slot_in` returns the seconds until a worker may be sent any of them, infinite if it may not.
    """

    def __init__(
        self,
        dispatch: Callable[[], object],
        wanted: Callable[[], bool],
        slot_in: Callable[[str], float],
        enter: Callable[..., Any],
    ) -> None:
        self.look_at: set[str] = set()  # workers that may have a free slot
        self._left: set[str] = set()  # those that the last dispatch left, which have none
        self._has_spare = False  # whether it left a free thread over
        self._dispatch, self._wanted, self._slot_in = dispatch, wanted, slot_in
        self._soon = Soon(partial(enter, self._now), REST, most=MOST_REST)
        self._later = Alarm(partial(enter, self._rang))

    @property
    def due(self) -> bool:
        """Whether a dispatch is scheduled."""
        return self._soon.is_due

    @property
    def may_be_free(self) -> bool:
        """Whether a worker may have a free thread."""
        return self._has_spare or self.look_at != self._left

    def looked(self, left: set[str], *, spare: bool) -> None:
        """Record that all were looked at, but for those `left`, and whether a thread is free."""
        self.look_at |= left
        self._left, self._has_spare = set(self.look_at), spare

    def soon(self, *, ahead: bool = False) -> None:
        """Schedule a dispatch after the pending events, if any task needs a slot.

        What is only sent `ahead`, to wait for a thread, is collected for a moment.
        """
        if self._wanted():
            self._soon.ask(patience=TOGETHER * ahead)

    def later(self, worker: str, seconds: float) -> None:
        """Schedule a dispatch that looks at a worker, or at none if it is "", after a delay.

        Nothing is scheduled if that is infinite.
        """
        if seconds < math.inf:
            self._later.set(monotonic() + seconds, worker)

    def forget(self, worker: str) -> None:
        """Forget a worker that left."""
        self.look_at.discard(worker)
        self._later.forget(worker)

    def cancel(self) -> None:
        """Cancel all that is scheduled for later."""
        self._later.cancel()

    def _rang(self, workers: list[str]) -> None:
        served = [worker for worker in workers if not worker or not self._slot_in(worker)]
        self.look_at.update(served)
        if served:
            self.soon(ahead=True)

    def _now(self) -> None:
        with self._soon.work():
            self._dispatch()
