"""Detection of tasks that wait without a reason: the last defense against a stall.

The dispatcher should never leave such a task. If a bug makes it do so, the task must still run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch import LOOKED_AT, Choice, has_thread

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.scheduler.dispatch import Entry, Pool

#: Seconds for which a task may wait while a thread that it may use is free.
PATIENCE = 2.0


class Watchdog:
    """Detector of stranded tasks, which must be called regularly.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    lend : bool
        Whether a job may use slots outside its worker set.
    """

    def __init__(self, scheduler: Scheduler, *, lend: bool) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self._since: dict[str, float] = {}  # when a pool was first seen stranded

    def stranded(self, pools: Collection[Pool]) -> Iterator[Choice]:
        """Yield tasks that may use a free thread, of pools stranded for more than `PATIENCE`.

        A pool is stranded while each call finds such a task in it. The caller must bind each
        choice before it takes the next one.
        """
        now, before, self._since = monotonic(), self._since, {}
        free = [ws for ws in self.scheduler.running if has_thread(ws)]
        if not free:
            return
        for pool in pools:
            found = self._first(pool, free)
            if found is None:
                continue
            since = self._since[pool.name] = before.get(pool.name, now)
            while found is not None and now - since > PATIENCE:
                entry, ws = found
                yield Choice(pool, entry, ws, "granted", now)
                found = self._first(pool, free)

    def _first(self, pool: Pool, free: Collection[WorkerState]) -> tuple[Entry, WorkerState] | None:
        if not pool.may_start():
            return None
        for entry in islice(pool.first_ready(), LOOKED_AT):
            if (ws := self._could_run_on(pool, entry, free)) is not None:
                return entry, ws
        return None

    def _could_run_on(
        self, pool: Pool, entry: Entry, free: Collection[WorkerState]
    ) -> WorkerState | None:
        """Return a worker of `free` for a task, or None if the task has a reason to wait."""
        workers = self.scheduler.workers
        if (pool.gang or entry.rootish) and any(ws.processing for ws in workers.values()):
            return None  # for the rest of the gang, or for tasks that consume root tasks
        homes = (workers[address] for address in entry.homes if address in workers)
        if any(not has_thread(ws) for ws in homes):
            return None
        for ws in free:
            inside = self.lend or ws.address in pool.workers
            if inside and has_thread(ws) and entry.kind.suits(ws):
                return ws
        return None
