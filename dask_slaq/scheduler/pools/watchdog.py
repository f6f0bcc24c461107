"""Finds tasks that wait although nothing keeps them: the last defence against a stall.

The dispatcher should never leave one. If it does, by a mistake of ours, the task must still run.
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

#: Seconds for which a task may wait beside a free thread.
PATIENCE = 2.0


class Watchdog:
    """Looks at what waits, each time it is asked.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    lend : bool
        A job may use slots outside its worker set.
    """

    def __init__(self, scheduler: Scheduler, *, lend: bool) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self._since: dict[str, float] = {}  # when a pool was first seen so

    def stranded(self, pools: Collection[Pool]) -> Iterator[Choice]:
        """Yield tasks of pools that have been seen waiting for long beside threads that were free
        and that they may use. The caller binds each before it asks for the next."""
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
        for entry in islice(pool.first_ready(), LOOKED_AT):
            if (ws := self._could_run_on(pool, entry, free)) is not None:
                return entry, ws
        return None

    def _could_run_on(
        self, pool: Pool, entry: Entry, free: Collection[WorkerState]
    ) -> WorkerState | None:
        """Return one of these workers for a task, None where it has a reason to wait."""
        workers = self.scheduler.workers
        if (pool.gang or entry.rootish) and any(ws.processing for ws in workers.values()):
            return None  # for the others of the gang, or for who will use what the root task makes
        homes = (workers[address] for address in entry.homes if address in workers)
        if any(not has_thread(ws) for ws in homes):
            return None
        for ws in free:
            inside = self.lend or ws.address in pool.workers
            if inside and has_thread(ws) and entry.kind.suits(ws):
                return ws
        return None
