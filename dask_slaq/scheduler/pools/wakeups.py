"""Schedule of dispatches: soon after what frees a slot or makes a task ready, and later."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic

from dask_slaq.scheduler.pools.constants import MOST_REST, REST
from dask_slaq.scheduler.timers import Alarm, Soon


class Wakeups:
    """Schedule of calls of `dispatch`, made only if any task is `wanted` to get a slot."""

    def __init__(
        self,
        dispatch: Callable[[], object],
        wanted: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self.look_at: set[str] = set()  # workers that may have a free slot
        self._dispatch, self._wanted, self._fail = dispatch, wanted, fail
        self._soon = Soon(self._now, REST, most=MOST_REST)
        self._later = Alarm(self._rang)

    @property
    def due(self) -> bool:
        """Whether a dispatch is scheduled."""
        return self._soon.is_due

    def soon(self) -> None:
        """Schedule a dispatch after the pending events, if any task needs a slot."""
        if not self.due and self._wanted():
            self._soon.ask()

    def later(self, worker: str, seconds: float) -> None:
        """Schedule a dispatch that looks at a worker, or at none if it is "", after a delay."""
        self._later.set(monotonic() + seconds, worker)

    def forget(self, worker: str) -> None:
        """Forget a worker that left."""
        self.look_at.discard(worker)
        self._later.forget(worker)

    def cancel(self) -> None:
        """Cancel all that is scheduled for later."""
        self._later.cancel()

    def _rang(self, workers: list[str]) -> None:
        self.look_at.update(workers)
        self.soon()

    def _now(self) -> None:
        with self._soon.work():
            try:
                self._dispatch()
            except Exception as error:
                self._fail(error)
