"""Gangs of pinned tasks, which wait for each other while they run, each on its worker.

xgboost and LightGBM train in one such task per worker. If some members of a gang start and others
do not, the threads of those that started are blocked. Tasks are only read here, never changed.
Tasks of a job with ``gang=True`` are started together by `core/dispatch/dispatcher.py`.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from distributed.scheduler import TaskState

from dask_slaq.core.dispatch import constants

#: Annotations: name of a gang, unique per run; its number of members; and threads of a member.
NAME, SIZE, THREADS = "slaq_gang", "slaq_gang_size", "slaq_threads"
#: States of a task that waits for nothing but a worker, or has been sent to one.
READY = ("queued", "no-worker", "processing")


@dataclass(eq=False)
class PinnedGang:
    """Tasks that must start together."""

    name: Hashable
    pool: Any  # its pool of tasks
    size: int | None  # None if unknown
    latest: float  # monotonic time at which the last member was added
    members: dict[TaskState, str] = field(default_factory=dict)  # with the worker of each
    threads: dict[TaskState, int | None] = field(default_factory=dict)  # None: all of its worker
    closed: bool = False  # whether they may start, together or else one by one
    _ready_since: float | None = None

    def complete(self, now: float) -> bool:
        """Return whether all members have arrived and are ready."""
        full = (
            len(self.members) >= self.size
            if self.size
            else now - self.latest >= constants.QUIET_SECONDS
        )
        return full and all(ts.state in READY for ts in self.members)

    def overdue(self, now: float) -> bool:
        """Return whether a ready member has waited too long for the gang to be complete."""
        if self._ready_since is None and any(ts.state in READY for ts in self.members):
            self._ready_since = now
        since = now if self._ready_since is None else max(self._ready_since, self.latest)
        return now - since >= constants.PATIENCE_SECONDS and not self.complete(now)


class PinnedGangs:
    """Gangs of all pinned tasks that have not ended."""

    def __init__(self) -> None:
        self.of_task: dict[TaskState, PinnedGang] = {}
        self._by_name: dict[Hashable, PinnedGang] = {}

    def __bool__(self) -> bool:
        return bool(self.of_task)

    def is_open(self, ts: TaskState) -> bool:
        """Return whether a task belongs to a gang that has not started."""
        gang = self.of_task.get(ts)
        return gang is not None and not gang.closed

    def waiting(self, pool: Hashable = None) -> list[PinnedGang]:
        """Return the gangs of a pool, or of all, that have not started, oldest first."""
        gangs = self._by_name.values()
        return [g for g in gangs if not g.closed and (pool is None or g.pool is pool)]

    def running(self) -> list[TaskState]:
        """Return the members of gangs that have started."""
        return [ts for ts, gang in self.of_task.items() if gang.closed]

    def add(self, pool: Hashable, ts: TaskState, worker: str, now: float) -> PinnedGang | None:
        """Add a new task, pinned to a worker, to its gang. Returns None if it has none."""
        found = None if ts.actor else _declaration(ts)
        if found is None or ts in self.of_task:  # known tasks may be submitted again
            return self.of_task.get(ts)
        name, size, threads = (pool, ts.prefix.name, found[0]), *found[1:]
        gang = self._by_name.setdefault(name, PinnedGang(name, pool, size, now))
        if gang.closed:
            return None
        gang.members[ts], gang.threads[ts], gang.latest = worker, threads, now
        self.of_task[ts] = gang
        return gang

    def remove(self, ts: TaskState) -> None:
        """Remove a task that has ended, or was released or cancelled."""
        if (gang := self.of_task.pop(ts, None)) is not None:
            del gang.members[ts], gang.threads[ts]
            if gang.size and not gang.closed:
                gang.size -= 1
            if not gang.members:
                del self._by_name[gang.name]


def _declaration(ts: TaskState) -> tuple[Hashable, int | None, int | None] | None:
    """Return the name, size and threads that a task states by its annotations or arguments."""
    notes, task = ts.annotations or {}, ts.run_spec
    found: Any = (None, None, 1)
    given = getattr(task, "kwargs", None) or {}
    if "machines" in given and "num_machines" in given:  # lightgbm.dask
        found = (given["machines"], given["num_machines"], None)
    for given in getattr(task, "args", None) or ():
        if isinstance(given, dict) and "dmlc_tracker_port" in given:  # xgboost.dask
            found = ((given.get("dmlc_tracker_uri"), given["dmlc_tracker_port"]), None, None)
    if isinstance(notes.get(NAME), str):
        found = (notes[NAME], notes.get(SIZE, found[1]), notes.get(THREADS, found[2]))
    name, *counts = found
    size, threads = (n if isinstance(n, int) else None for n in counts)
    return None if name is None else (name, size, threads)
