"""Time during which jobs had tasks to run, recorded alongside the compute times of the tasks.

While a job has no tasks, its driver works alone. While there are tasks, but threads do not compute,
tasks and results are in transit.
"""

from __future__ import annotations

from typing import Any

#: States of tasks that are ready, sent to a worker, or run there.
READY = frozenset({"no-worker", "queued", "processing"})


class Activity:
    """Tracker of the tasks of jobs, from ready to done. `now` is in seconds on one clock."""

    def __init__(self, now: float) -> None:
        self._ready: dict[str, set[Any]] = {}
        self._none_since: dict[str, float] = {}
        self._idle: dict[str, float] = {}
        self._tasks = self._threads = 0
        self._last = now
        self._offered = 0.0

    def add(self, job: str, now: float) -> None:
        """Add a job without tasks."""
        self._ready[job], self._none_since[job], self._idle[job] = set(), now, 0.0

    def remove(self, job: str, now: float) -> None:
        """Remove a job and its tasks."""
        self._pass(now)
        self._tasks -= len(self._ready.pop(job))
        del self._none_since[job], self._idle[job]

    def moved(self, job: str | None, key: Any, finish: str, now: float) -> None:
        """Record that a task is in Dask's state `finish`, if its job was added."""
        ready = self._ready.get(job) if job else None
        if job is None or ready is None or (finish in READY) == (key in ready):
            return
        self._pass(now)
        if finish not in READY:
            ready.remove(key)
            self._tasks -= 1
            if not ready:
                self._none_since[job] = now
            return
        if not ready:
            self._idle[job] += max(now - self._none_since[job], 0.0)
        ready.add(key)
        self._tasks += 1

    def idle(self, job: str, now: float) -> float:
        """Return the seconds since the last call in which a job had no ready or running task."""
        if not self._ready[job]:
            # A report may have read the clock just before a task ended.
            self._idle[job] += max(now - self._none_since[job], 0.0)
            self._none_since[job] = max(now, self._none_since[job])
        idle, self._idle[job] = self._idle[job], 0.0
        return idle

    def offered(self, threads: int, now: float) -> float:
        """Return the thread-seconds since the last call for which there were tasks.

        From now on there are as many `threads`.
        """
        self._pass(now)
        self._threads = threads
        offered, self._offered = self._offered, 0.0
        return offered

    def _pass(self, now: float) -> None:
        self._offered += min(self._tasks, self._threads) * max(now - self._last, 0.0)
        self._last = max(now, self._last)
