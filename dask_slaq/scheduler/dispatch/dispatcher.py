"""Order in which jobs are served with free slots. Decides only; `Pools` enacts.

Jobs behind on their floor come first, then jobs within their cap, then jobs over their cap. Within
each class, jobs are ordered by index, then by service.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch.anticipation import Anticipation
from dask_slaq.scheduler.dispatch.crowded_workers import CrowdedWorkers, bound_pools
from dask_slaq.scheduler.dispatch.matching import Matching
from dask_slaq.scheduler.dispatch.open_workers import OpenWorkers
from dask_slaq.scheduler.dispatch.overtaking import Overtaking
from dask_slaq.scheduler.dispatch.pool import Choice, Group, Pool
from dask_slaq.scheduler.dispatch.ready import ANY, Entry
from dask_slaq.scheduler.dispatch.sent_tasks import load
from dask_slaq.scheduler.dispatch.slots import Slots
from dask_slaq.scheduler.dispatch.task_homes import TaskHomes

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.scheduler.dispatch.sent_tasks import OpenWorker

# Classes of turns, in the order in which they are served.
BEHIND, OWNER_BEHIND, WITHIN_CAP, OVER_CAP = range(4)


class Dispatcher:
    """Chooser of tasks for free slots.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    slots : Slots
    lend : bool
        Whether a job may use slots outside its worker set.
    short : float
        Seconds. A task known to be shorter may overtake tasks that wait on a worker, while its job
        has not used more than its share.
    fair : bool
        Whether to serve jobs by their service alone, except for floors that were set explicitly.

    Attributes
    ----------
    left : set of str
        Addresses of the workers whose slots were left over by the last dispatch.
    kept : bool
        Whether the last dispatch kept slots for jobs that are about to come back.
    """

    def __init__(
        self, scheduler: Scheduler, slots: Slots, *, lend: bool, short: float, fair: bool
    ) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.lend = lend
        self.fair = fair
        self.homes = TaskHomes(scheduler)
        self.matching = Matching(scheduler, slots, lend=lend)
        self.anticipation = Anticipation(scheduler, slots, fair=fair)
        self.crowded = CrowdedWorkers(scheduler, slots)
        self.overtaking = Overtaking(
            scheduler, slots, self.crowded, self.matching, lend=lend, short=short, fair=fair
        )
        self.left: set[str] = set()
        self.kept = False

    def set_fair(self, fair: bool) -> None:
        """Serve jobs by their service alone from now on, or no longer."""
        self.fair = self.anticipation.fair = self.overtaking.fair = fair

    def choices(
        self, pools: Collection[Pool], addresses: Iterable[str], served: float
    ) -> Iterator[Choice]:
        """Yield choices of tasks for the slots of some workers, until slots or tasks run out.

        The caller must bind each choice before it takes the next one.

        Parameters
        ----------
        pools : collection of Pool
        addresses : iterable of str
            Workers whose slots are filled; unknown addresses are ignored.
        served : float
            Service of the pool that was served last; see `FairQueueing`.

        Yields
        ------
        Choice
        """
        workers = self.scheduler.workers
        self.kept = False
        open_workers = OpenWorkers(
            self.slots, (workers[address] for address in addresses if address in workers)
        )
        self.matching.bound = bound = bound_pools(self.scheduler, pools)
        if open_workers:
            self.anticipation.begin(pools)
            yield from self._serve_scarce(pools, open_workers)
            yield from self._serve(pools, open_workers)
            if open_workers and any(pool.ready for pool in pools):
                yield from self._serve(pools, open_workers, move=True)
            parked = False
            for choice in self._park(pools, open_workers):
                parked = True
                yield choice
            if parked and open_workers:
                # Root tasks that had to wait for the parked ones may run on the other workers.
                yield from self._serve(pools, open_workers, move=True)
        yield from self.overtaking.choices(pools, bound, served)
        if self.kept:
            self.anticipation.end(open_workers.free)
        self.left = set(open_workers.by_address)

    def turn(self, pool: Pool) -> tuple[Any, ...] | None:
        """Return the sort key of a pool, lowest first; None if the pool may not be served."""
        group, running = pool.group, len(pool.running)
        if pool.paused or not (group is None or self._has_room(group)):
            return None
        order = -pool.index, pool.service, running > 0, pool.name
        if pool.is_short_of_floor() if self.fair else pool.is_behind():
            # Among jobs behind on their floor, those that run nothing come first.
            return (BEHIND, running > 0, *order)
        if running >= pool.most:
            return (OVER_CAP, False, *order) if self.lend else None
        owner_behind = group is not None and group.is_behind()
        return (OWNER_BEHIND if owner_behind else WITHIN_CAP, False, *order)

    def _has_room(self, group: Group) -> bool:
        """Return whether the owner may start another task, or may when one ends in a moment."""
        if group.has_room():
            return True
        if group.running + 1 > 2 * group.most:
            return False
        ending = (self.slots.ends_within(pool, self.slots.ahead) for pool in group.pools)
        return group.running + 1 - sum(ending) <= group.most

    def _serve(
        self, pools: Collection[Pool], open_workers: OpenWorkers, *, move: bool = False
    ) -> Iterator[Choice]:
        """Yield choices for the pools in turn, one task per turn, until slots or tasks run out."""
        turns = ((self.turn(pool), pool) for pool in pools if pool.ready or pool.passed)
        queue = [(turn, pool) for turn, pool in turns if turn is not None]
        heapq.heapify(queue)
        while queue and open_workers:
            turn, pool = heapq.heappop(queue)
            if pool.passed and not move:
                open_workers.leave_to(pool)
            if not pool.ready:
                continue
            if pool.gang:
                if not self._together(pool):
                    return  # keep all slots until there are enough for the gang
                open_workers.keep_free()
            # A job below its share rather moves inputs than leaves a slot to jobs of lower index.
            below = not self.fair and pool.is_below_share()
            found = self.matching.choose(pool, open_workers, move or below)
            if found is None:
                if _has_rootish(pool):
                    # The job waits for a free thread: no other job's task is sent ahead instead.
                    open_workers.keep_free()
                continue
            entry, ws = found
            expected = self.homes.expected(entry.ts, entry.like)
            kept = self.anticipation.kept_from(pool, expected, ws)
            if kept and kept >= open_workers.slots():
                self.kept = True
                continue
            reason = "granted" if ws.address in pool.workers else "lent"
            if turn[0] == BEHIND:
                reason = "floor"
            yield Choice(pool, entry, ws, reason, self._rank(pool, entry, ws))
            while (more := self._next_trivial(pool, entry, ws, open_workers)) is not None:
                yield Choice(pool, more, ws, reason, self.slots.next_rank())
            next_turn = self.turn(pool) if pool.ready else None
            if next_turn is not None:
                heapq.heappush(queue, (next_turn, pool))

    def _serve_scarce(self, pools: Collection[Pool], open_workers: OpenWorkers) -> Iterator[Choice]:
        """Yield choices of tasks that need certain workers or a resource, up to each job's share.

        Other tasks may run elsewhere. Served by turns alone, these workers would be shared by all
        jobs, although they are all that the tasks that need them can use.
        """
        queue = []
        for pool in pools:
            if pool.is_restricted and not pool.gang:
                turn = self.turn(pool)
                if turn is not None and turn[0] != OVER_CAP:
                    queue.append((turn, pool, self.slots.restricted(pool)))
        heapq.heapify(queue)
        while queue and open_workers:
            _, pool, using = heapq.heappop(queue)
            if using >= max(pool.share, 1.0):
                continue
            found = self.matching.choose(pool, open_workers, False, scarce=True)
            if found is None:
                continue
            entry, ws = found
            reason = "granted" if ws.address in pool.workers else "lent"
            yield Choice(pool, entry, ws, reason, self._rank(pool, entry, ws))
            open_workers.refresh(ws)
            turn = self.turn(pool)
            if turn is not None and turn[0] != OVER_CAP:
                heapq.heappush(queue, (turn, pool, using + 1))

    def _park(self, pools: Collection[Pool], open_workers: OpenWorkers) -> Iterator[Choice]:
        """Yield choices of tasks that will wait on a worker for its resource.

        Root tasks of a job that wait so that memory does not fill up leave threads free. Under
        plain Dask the tasks that they wait for occupy these threads.
        """
        for pool in pools:
            if not (open_workers.free and _has_rootish(pool)) or self.turn(pool) is None:
                continue
            for free in [worker for worker in open_workers.by_address.values() if worker.free]:
                worker: OpenWorker | None = free
                while worker is not None and worker.free:
                    entry = self.matching.parked(pool, worker.ws)
                    if entry is None:
                        break
                    yield Choice(
                        pool, entry, worker.ws, "granted", self._rank(pool, entry, worker.ws)
                    )
                    worker = open_workers.refresh(worker.ws)

    def _next_trivial(
        self, pool: Pool, before: Entry, ws: WorkerState, open_workers: OpenWorkers
    ) -> Entry | None:
        """Return the next task of a pool if it may follow `before` to a worker in the same turn.

        Both must be trivial and alike, and no other worker may have a free thread for the task.
        """
        worker = open_workers.refresh(ws)
        if worker is None or not worker.takes_at_once(before.like):
            return None
        if open_workers.free and not worker.free:
            return None
        if (
            len(pool.kinds) > 1
            or before.homes
            or self.matching.bound
            or not (pool.is_within_cap() and pool.may_start())
        ):
            return None
        ready = pool.kinds.get(ANY)
        entry = None if ready is None or ready.homes else ready.anywhere()
        if entry is None or entry.like is not before.like:
            return None
        return entry if self.matching.evenly(pool, entry, ws) else None

    def _rank(self, pool: Pool, entry: Entry, ws: WorkerState) -> float:
        """Return the rank of a task on a worker: the time now, or the rank of an earlier task.

        A task takes the rank of a waiting task of its own job that it precedes in Dask's order.
        """
        now = self.slots.next_rank()
        if not self.slots.waiting(ws.address):
            return now
        waiting = self.slots.waiting_tasks(ws.address, pool)
        priority = entry.ts.priority or ()
        later = [sent.rank for ts, sent in waiting if (ts.priority or ()) > priority]
        return min(later, default=now)

    def _together(self, pool: Pool) -> bool:
        """Return whether all ready tasks of a gang, or as many as can ever run, can start now."""
        running = self.scheduler.running
        fits = [ws for ws in running if any(kind.allows(ws) for kind in pool.kinds)]
        threads = sum(ws.nthreads for ws in fits)
        free = sum(max(ws.nthreads - load(ws), 0) for ws in fits)
        return bool(pool.running) or free >= min(len(pool.ready), threads)


def _has_rootish(pool: Pool) -> bool:
    ready = pool.kinds.get(ANY)
    entry = ready.anywhere() if ready is not None else None
    return entry is not None and entry.rootish
