"""How long jobs had tasks to run: what a recording tells beside the times of the tasks.

Where a job has none, its driver works alone. Where there are tasks, but threads do not compute,
tasks and results are on their way.
"""

from __future__ import annotations

from typing import Any

#: States of tasks that are ready, sent to a worker, or run there.
READY = frozenset({"no-worker", "queued", "processing"})


class Activity:
    """Follows the tasks of jobs from ready to done. Times are in seconds on the caller's clock."""

    def __init__(self, now: float) -> None:
        self._ready: dict[str, set[Any]] = {}
        self._none_since: dict[str, float] = {}
        self._idle: dict[str, float] = {}
        self._tasks = self._threads = 0
        self._last = now
        self._offered = 0.0

    def add(self, job: str, now: float) -> None:
        """A job comes, without tasks."""
        self._ready[job], self._none_since[job], self._idle[job] = set(), now, 0.0

    def remove(self, job: str, now: float) -> None:
        """A job goes."""
        self._pass(now)
        self._tasks -= len(self._ready.pop(job))
        del self._none_since[job], self._idle[job]

    def moved(self, job: str | None, key: Any, finish: str, now: float) -> None:
        """A task of a job comes into the state `finish`."""
        ready = self._ready.get(job) if job else None
        if ready is None or (finish in READY) == (key in ready):
            return
        self._pass(now)
        if finish not in READY:
            ready.remove(key)
            self._tasks -= 1
            if not ready:
                self._none_since[job] = now
            return
        if not ready:
            self._idle[job] += now - self._none_since[job]
        ready.add(key)
        self._tasks += 1

    def idle(self, job: str, now: float) -> float:
        """Seconds since it was last asked in which a job had no task ready or running."""
        if not self._ready[job]:
            self._idle[job] += now - self._none_since[job]
            self._none_since[job] = now
        idle, self._idle[job] = self._idle[job], 0.0
        return idle

    def offered(self, threads: int, now: float) -> float:
        """Thread-seconds since it was last asked for which there were tasks; from now on there
        are so many threads."""
        self._pass(now)
        self._threads = threads
        offered, self._offered = self._offered, 0.0
        return offered

    def _pass(self, now: float) -> None:
        self._offered += min(self._tasks, self._threads) * (now - self._last)
        self._last = now
