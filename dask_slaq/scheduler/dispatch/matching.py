"""Matching of a pool's ready tasks to free slots.

The match is the first task in Dask's order that has a slot at home or may run anywhere. A slot
that no pool wants may also go to a task that would wait for its home longer than it takes to move
its inputs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.crowded_workers import goes_on_with_others
from dask_slaq.scheduler.dispatch.open_workers import LOOKED_AT, OpenWorkers
from dask_slaq.scheduler.dispatch.pool import Pool
from dask_slaq.scheduler.dispatch.ready import ANY, Entry, Kind, Ready
from dask_slaq.scheduler.dispatch.sent_tasks import OpenWorker, blocked
from dask_slaq.scheduler.dispatch.slots import MOST_AHEAD, Slots

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

__all__ = ["Matching"]


class Matching:
    """Finder of tasks for slots.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    slots : Slots
    lend : bool
        Whether a job may use slots outside its worker set.

    Attributes
    ----------
    bound : mapping of Pool to bool
        Pools with tasks that were sent to workers without a slot; see `bound_pools`.
    """

    def __init__(self, scheduler: Scheduler, slots: Slots, *, lend: bool) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.lend = lend
        self.bound: Mapping[Pool, bool] = {}

    def choose(
        self, pool: Pool, open_workers: OpenWorkers, move: bool, scarce: bool = False
    ) -> tuple[Entry, WorkerState] | None:
        """Return the pool's first task in Dask's order that fits a slot, and the slot's worker.

        Parameters
        ----------
        pool : Pool
        open_workers : OpenWorkers
            Workers that have slots.
        move : bool
            Whether a task may run away from its homes, so that its inputs must be moved.
        scarce : bool
            Whether to consider only tasks that need certain workers or a resource.

        Returns
        -------
        (Entry, WorkerState) or None
            None if no task fits.
        """
        best: tuple[Entry, WorkerState] | None = None
        for kind, ready in list(pool.kinds.items()):
            if scarce and kind is ANY:
                continue
            found = self._choose_of_kind(pool, kind, ready, open_workers, move)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def parked(self, pool: Pool, ws: WorkerState) -> Entry | None:
        """Return the pool's first task that may wait on a worker for its resource, or None.

        Parameters
        ----------
        pool : Pool
        ws : distributed.scheduler.WorkerState
            A worker with a free thread.
        """
        if len(ws.processing) - len(ws.long_running) >= ws.nthreads:
            return None
        if not self.lend and ws.address not in pool.workers:
            return None
        kinds = ((k, r) for k, r in pool.kinds.items() if k.resources and k.allows(ws))
        found = [e for _, r in kinds for e in (r.anywhere(), r.at(ws.address)) if e is not None]
        return min(found, default=None)

    def _choose_of_kind(
        self, pool: Pool, kind: Kind, ready: Ready, open_workers: OpenWorkers, move: bool
    ) -> tuple[Entry, WorkerState] | None:
        best: tuple[Entry, WorkerState] | None = None
        for address in self._at(ready, open_workers):
            entry, worker = ready.at(address), open_workers.by_address[address]
            if entry is None or not self._may_use(pool, kind, entry, worker):
                continue
            if best is None or entry < best[0]:
                best = entry, worker.ws
        first = ready.anywhere()
        if first is not None and (best is None or first < best[0]):
            best = self._anywhere(pool, kind, ready, first, open_workers, move) or best
        if best is None and move:
            return self._homeless(pool, kind, ready, open_workers)
        return best

    def _anywhere(
        self,
        pool: Pool,
        kind: Kind,
        ready: Ready,
        first: Entry,
        open_workers: OpenWorkers,
        move: bool,
    ) -> tuple[Entry, WorkerState] | None:
        """Return the first task without a home and a worker for it, or None.

        A task of the same group is preferred if its inputs are on the worker: every copy of an
        input is one more place where Dask may compute later, which may skew the load.
        """

        def suits(worker: OpenWorker) -> bool:
            return (move or self.evenly(pool, first, worker.ws)) and self._may_use(
                pool, kind, first, worker
            )

        picked = open_workers.pick(pool, suits)
        if picked is None:
            return None
        near = ready.near(picked.ws.address)
        if near is None or first.rootish or near.ts.group is not first.ts.group:
            return first, picked.ws
        return near if self._may_use(pool, kind, near, picked) else first, picked.ws

    def _at(self, ready: Ready, open_workers: OpenWorkers) -> Iterable[str]:
        """Return the first `LOOKED_AT` workers that have a slot and are home to ready tasks."""
        few, many = ready.homes, open_workers.by_address
        if not few:
            return ()
        fewer, more = (many, few) if len(few) > len(many) else (few, many)
        return list(islice((address for address in fewer if address in more), LOOKED_AT))

    def _may_use(self, pool: Pool, kind: Kind, entry: Entry, worker: OpenWorker) -> bool:
        """Return whether a task may take a slot."""
        ws = worker.ws
        if not self.lend and ws.address not in pool.workers:
            # Tasks whose ``workers=`` are all outside the worker set would never run in it.
            known = self.scheduler.workers
            if kind is ANY or any(kind.allows(known[a]) for a in pool.workers if a in known):
                return False
        if self.bound and goes_on_with_others(self.slots, ws, pool, self.bound):
            return False
        if entry.rootish:
            in_time = worker.rootish or worker.takes_at_once(entry.like)
            if not (in_time and self.keeps_up(pool, ws)):
                return False
        if kind is ANY:
            return True
        if not kind.allows(ws):
            return False
        if kind.suits(ws):
            return True
        # One task may wait on the worker until the resource is free, which hides a round trip.
        return not blocked(ws) and self.slots.resource_free_in(ws) < self.slots.ahead

    def evenly(self, pool: Pool, entry: Entry, ws: WorkerState) -> bool:
        """Return whether a worker may be sent a task without piling up the pool's data there.

        While many jobs compete, only a few workers have a slot at a time. Short root tasks would
        all run there, and so would the tasks that need their data. Trivial ones are sent in runs,
        so a worker may be a run ahead of the others.

        Parameters
        ----------
        pool : Pool
        entry : Entry
            One of its ready tasks.
        ws : distributed.scheduler.WorkerState
        """
        if entry.kind is not ANY or entry.ts.dependencies or not pool.made_at:
            return True
        ahead = MOST_AHEAD if entry.like.is_trivial else 1
        most = pool.made / self.scheduler.total_nthreads + ahead
        return pool.made_at.get(ws.address, 0.0) <= most * ws.nthreads

    def keeps_up(self, pool: Pool, ws: WorkerState) -> bool:
        """Return whether a worker may be sent root tasks beside tasks that need a resource.

        Under plain Dask, tasks that need a resource wait on workers, where they keep further
        root tasks away: no more are sent than ``worker-saturation`` allows.

        Parameters
        ----------
        pool : Pool
        ws : distributed.scheduler.WorkerState
        """
        waits = 0
        for kind, ready in pool.kinds.items():
            if kind.resources and kind.allows(ws):
                share = ready.count_at[""] / len(self.scheduler.running)
                waits += ready.count_at[ws.address] + math.ceil(share)
        if not waits and not (ws.used_resources and _needs_resources(ws, pool)):
            return True
        most = self.scheduler.WORKER_SATURATION * ws.nthreads
        return len(ws.processing) - len(ws.long_running) + waits < max(most, 1)

    def _homeless(
        self, pool: Pool, kind: Kind, ready: Ready, open_workers: OpenWorkers
    ) -> tuple[Entry, WorkerState] | None:
        """Return a task that is better moved than left to wait for its homes, and a free worker."""
        free = [
            worker for worker in islice(open_workers.by_address.values(), LOOKED_AT) if worker.free
        ]
        if not free:
            return None
        work = {home: ready.seconds_at(home) for home in ready.homes}
        for home in sorted(work, key=lambda home: -work[home])[:LOOKED_AT]:
            entry = ready.at(home)
            if entry is None:
                continue
            for worker in free:
                ws = worker.ws
                if self._may_use(pool, kind, entry, worker) and self._waits(pool, entry, ws, work):
                    return entry, ws
        return None

    def _waits(self, pool: Pool, entry: Entry, ws: WorkerState, work: dict[str, float]) -> bool:
        """Return whether a task would wait for its homes longer than moving its inputs takes.

        It would wait forever if its homes left, are paused, or are outside a strict worker set.
        """
        known, running = self.scheduler.workers, self.scheduler.running
        homes = [known[a] for a in entry.homes if a in known and known[a] in running]
        if not self.lend:
            homes = [home for home in homes if home.address in pool.workers]
        if not homes:
            return True
        if math.isinf(entry.moving):
            return False
        moving, at_once = self.slots.transfers.arrive_in(entry.ts, ws)
        if not (at_once or entry.like.count):
            return False  # other inputs are on their way, and the task may turn out to be short
        expected = entry.like.mean if entry.like.count else entry.expected
        for home in homes:
            before = work.get(home.address, 0.0) - expected
            free_in = self.slots.next_end(home) + before / home.nthreads
            if max(free_in, self.slots.transfers.arrive_in(entry.ts, home)[0]) <= moving:
                return False
        return True


def _needs_resources(ws: WorkerState, pool: Pool) -> bool:
    """Return whether tasks that wait on a worker for a resource may be those of a pool."""
    return blocked(ws) > 0 and any(
        ts.resource_restrictions and ts in pool.tasks for ts in ws.processing
    )
