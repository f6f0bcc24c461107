"""Whose turn it is for which free slot. Decides only; `Pools` enacts.

Jobs behind on their floor come first, then all by their order, those over their cap last.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch.filing import Filing
from dask_slaq.scheduler.dispatch.keeping import Keeping
from dask_slaq.scheduler.dispatch.matching import Matching
from dask_slaq.scheduler.dispatch.overtaking import Overtaking
from dask_slaq.scheduler.dispatch.places import Places
from dask_slaq.scheduler.dispatch.pool import ANY, Choice, Entry, Pool
from dask_slaq.scheduler.dispatch.slots import Slots, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

# Turns, in this order: of jobs behind on their floor, of those within their cap, of the others.
BEHIND, WITHIN_CAP, OVER_CAP = range(3)


class Dispatcher:
    """Chooses tasks for slots.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    slots : Slots
    lend : bool
        A job may use slots outside its worker set.
    short : float
        Seconds; a task known to be shorter goes before what waits on a worker, while its job has
        not used more than its share.
    fair : bool
        Whether jobs are served by their service alone, without floors.
    """

    def __init__(
        self, scheduler: Scheduler, slots: Slots, *, lend: bool, short: float, fair: bool
    ) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.lend = lend
        self.fair = fair
        self.filing = Filing(scheduler)
        self.matching = Matching(scheduler, slots, lend=lend)
        self.keeping = Keeping(scheduler, slots, fair=fair)
        self.overtaking = Overtaking(scheduler, slots, lend=lend, short=short, fair=fair)
        self.left: set[str] = set()  # workers that had slots left at the end
        self.kept = False  # whether slots were kept for jobs that are about to come back

    def choices(
        self, pools: Collection[Pool], addresses: Iterable[str], served: float
    ) -> Iterator[Choice]:
        """Yield tasks for the slots of these workers, one by one, until slots or tasks run out.

        The caller binds each before it asks for the next.

        Parameters
        ----------
        served : float
            Service of the pool that was served last: see `FairQueueing`.
        """
        workers = self.scheduler.workers
        self.kept = False
        places = Places(
            self.slots, (workers[address] for address in addresses if address in workers)
        )
        self.matching.bound = bound = [pool for pool in pools if pool.passed]
        if places:
            self.keeping.begin(pools)
            yield from self._serve(pools, places)
            if places and any(r.homes for pool in pools for r in pool.kinds.values()):
                yield from self._serve(pools, places, move=True)
        yield from self.overtaking.choices(pools, bound, served)
        if self.kept:
            self.keeping.end(places.free)
        self.left = set(places.by_address)

    def _turn(self, pool: Pool) -> tuple[Any, ...] | None:
        """By what pools are ordered, the first first; None for one that may not be served."""
        order = -pool.index, pool.service, bool(pool.running), pool.name
        if pool.is_short_of_floor() if self.fair else pool.is_behind():
            # Of those behind on their floor, who has nothing at all comes first.
            return (BEHIND, bool(pool.running), *order)
        if pool.is_within_cap():
            return (WITHIN_CAP, False, *order)
        return (OVER_CAP, False, *order) if self.lend else None

    def _serve(
        self, pools: Collection[Pool], places: Places, *, move: bool = False
    ) -> Iterator[Choice]:
        """Serve pools by their turns, one task at a time, until slots or tasks run out."""
        turns = ((self._turn(pool), pool) for pool in pools if pool.ready or pool.passed)
        queue = [(turn, pool) for turn, pool in turns if turn is not None]
        heapq.heapify(queue)
        while queue and places:
            turn, pool = heapq.heappop(queue)
            if pool.passed and not move:
                places.leave_to(pool)
            if not pool.ready:
                continue
            if pool.gang:
                if not self._together(pool):
                    return  # slots are kept until there are enough of them
                places.keep_free()
            found = self.matching.choose(pool, places, move)
            if found is None:
                if _has_rootish(pool):
                    # It takes its turn when a thread is free: nobody is sent ahead in its place.
                    places.keep_free()
                continue
            entry, ws = found
            expected = self.filing.expected(entry.ts, entry.like)
            if self.keeping.kept_from(pool, expected, ws) >= len(places):
                self.kept = True
                continue
            reason = "granted" if ws.address in pool.workers else "lent"
            if turn[0] == BEHIND:
                reason = "floor"
            yield Choice(pool, entry, ws, reason, self._rank(pool, entry, ws))
            while (more := self._next_trivial(pool, entry, ws, places)) is not None:
                yield Choice(pool, more, ws, reason, monotonic())
            next_turn = self._turn(pool) if pool.ready else None
            if next_turn is not None:
                heapq.heappush(queue, (next_turn, pool))

    def _next_trivial(
        self, pool: Pool, before: Entry, ws: WorkerState, places: Places
    ) -> Entry | None:
        """The next task of a pool if it may follow another one, which this worker was sent, without
        a turn of its own: they take next to no time, and nobody has a free thread for it."""
        place = places.refresh(ws)
        if place is None or not place.takes_at_once(before.like):
            return None
        if places.free and not place.free:
            return None
        if len(pool.kinds) > 1 or before.homes or self.matching.bound or not pool.is_within_cap():
            return None
        ready = pool.kinds.get(ANY)
        entry = None if ready is None or ready.homes else ready.anywhere()
        return entry if entry is not None and entry.like is before.like else None

    def _rank(self, pool: Pool, entry: Entry, ws: WorkerState) -> float:
        """By when it was sent; but a task takes the place of one of its own job that comes after it
        in Dask's order."""
        now = monotonic()
        if not self.slots.waiting(ws.address):
            return now
        waiting = self.slots.waiting_tasks(ws.address, pool)
        later = [sent.rank for ts, sent in waiting if ts.priority > entry.priority]
        return min(later, default=now)

    def _together(self, pool: Pool) -> bool:
        """Whether all ready tasks of a gang find a slot now, or as many as there can be."""
        running = self.scheduler.running
        fits = [ws for ws in running if any(kind.allows(ws) for kind in pool.kinds)]
        threads = sum(ws.nthreads for ws in fits)
        free = sum(max(ws.nthreads - load(ws), 0) for ws in fits)
        return bool(pool.running) or free >= min(len(pool.ready), threads)


def _has_rootish(pool: Pool) -> bool:
    ready = pool.kinds.get(ANY)
    entry = ready.anywhere() if ready is not None else None
    return entry is not None and entry.rootish
