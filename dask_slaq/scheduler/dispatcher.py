"""Which ready task goes to which free slot. Decides only; `Pools` enacts.

Jobs behind on their floor come first, then all by their order, those over their cap last. Of the
job served, the first task in Dask's order that has a slot at home or may go anywhere is chosen, and
at the very end one that would wait for its home for longer than moving its inputs takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.pool import ANY, Entry, Kind, Pool, Ready
from dask_slaq.scheduler.slots import Slots, blocked, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

# Inputs are cheap to move if it takes at most these seconds, or this part of the task's time.
CHEAP_SECONDS = 0.001
CHEAP_FRACTION = 0.1
# Homes that a task may have; with more than these, any worker will do.
MOST_HOMES = 16
# Places that are compared for one choice.
LOOKED_AT = 16
# A slot is kept from long tasks for a job that is likely to be back within these seconds.
BACK_WITHIN = 0.020
# Seconds of a fair share by which it is behind then: who comes back finds its turn soon enough, and
# catches up, unless it falls behind further each time.
KEPT_FOR = 0.125
# A rank before all that was sent at its time.
AT_ONCE = -1e9


class Choice(NamedTuple):
    """A task for a slot."""

    pool: Pool
    entry: Entry
    ws: WorkerState
    reason: str
    rank: float


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
        self.short = short
        self.fair = fair
        self.left: set[str] = set()  # workers that had slots left at the end
        self._bound: list[Pool] = []  # pools that have tasks on workers without a slot
        self.kept = False  # whether slots were kept for jobs that are about to come back

    def choices(
        self, pools: Collection[Pool], addresses: Iterable[str], served: float
    ) -> Iterator[Choice]:
        """Yield tasks for the slots of these workers, one by one, until slots or tasks run out.

        The caller binds each before it asks for the next.

        Parameters
        ----------
        served : float
            Service of the pool that was served last: see `Pools`.
        """
        workers = self.scheduler.workers
        self.kept = False
        self._bound = [pool for pool in pools if pool.passed]
        places = _Places(
            self.slots, (workers[address] for address in addresses if address in workers)
        )
        first: Callable[[Pool], bool] = _short_of_floor if self.fair else _behind
        last: Callable[[Pool], bool] = _anyone if self.lend else _within
        phases = [(first, False), (_within, False), (last, False), (last, True)]
        for may, move in phases:
            if not places:
                break
            yield from self._phase(pools, places, may, move)
        yield from self._overtake(pools, served)
        self.left = set(places.by_address)

    def _phase(
        self, pools: Collection[Pool], places: _Places, may: Callable[[Pool], bool], move: bool
    ) -> Iterator[Choice]:

        first = may in (_behind, _short_of_floor)

        def place(pool: Pool) -> tuple[Any, ...]:
            # Of those behind on their floor, who has nothing at all comes first.
            return (bool(pool.running), *pool.order()) if first else pool.order()

        queue = [(place(pool), pool) for pool in pools if (pool.ready or pool.passed) and may(pool)]
        heapq.heapify(queue)
        coming = self._coming(pools) if self.fair else []
        while queue and places:
            _, pool = heapq.heappop(queue)
            if pool.passed and not move:
                places.leave_to(pool)
            if not pool.ready:
                continue
            if pool.gang:
                if not self._together(pool):
                    return  # slots are kept until there are enough of them
                places.keep_free()
            choice = self._choose(pool, places, move)
            if choice is None:
                if _has_rootish(pool):
                    # It takes its turn when a thread is free: nobody is sent ahead in its place.
                    places.keep_free()
                continue
            entry, ws = choice
            kept = self._kept(coming, pool, entry, ws)
            if kept >= len(places):
                self.kept = True
                continue
            reason = "granted" if ws.address in pool.workers else "lent"
            reason = "floor" if first else reason
            yield Choice(pool, entry, ws, reason, self._rank(pool, entry, ws))
            places.refresh(ws)
            if pool.ready and may(pool):
                heapq.heappush(queue, (place(pool), pool))

    def _overtake(self, pools: Collection[Pool], served: float) -> Iterator[Choice]:
        """Let those go before what waits on a worker who would else wait for whole tasks of
        others: a job of which nothing runs and whose turn it is, and short tasks of a job that has
        not used more than its share."""
        queueing: set[WorkerState] | None = None
        long: bool | None = None  # whether workers have long tasks at all
        for pool in list(pools):
            alone = not (pool.running or pool.passed)
            if not alone and pool.durations.shortest >= self.short:
                continue
            if not pool.ready or pool.gang or not _within(pool):
                continue
            if alone:
                if self._is_due(pool, served):
                    if queueing is None:
                        queueing = self.slots.queueing()
                    yield from islice(self._sent_first(pool, math.inf, queueing), 1)
            elif pool.service <= served:
                if long is None:
                    long = bool(self._bound) or self.slots.any_as_long_as(self.short)
                if not long:
                    continue
                for choice in self._sent_first(pool, self.short, self.scheduler.running):
                    yield choice
                    queueing = None

    def _is_due(self, pool: Pool, served: float) -> bool:
        return pool.service <= served if self.fair else _behind(pool)

    def _sent_first(
        self, pool: Pool, shorter_than: float, workers: Collection[WorkerState]
    ) -> Iterator[Choice]:
        """Yield tasks of a pool for those of these workers where they can start soonest, before all
        else."""
        for entry in list(islice(pool.first_ready(), LOOKED_AT)):
            if entry.ts not in pool.ready:
                continue
            if math.isfinite(shorter_than):
                known = pool.durations.trusted(entry.ts)
                if entry.rootish or known is None or known >= shorter_than:
                    continue
            if found := list(islice(self._possible(pool, entry, shorter_than, workers), LOOKED_AT)):
                ws = min(found, key=lambda ws: (self.slots.next_end(ws), ws.address))
                reason = "granted" if ws.address in pool.workers else "lent"
                yield Choice(pool, entry, ws, reason, AT_ONCE + monotonic())

    def _possible(
        self,
        pool: Pool,
        entry: Entry,
        shorter_than: float,
        workers: Collection[WorkerState],
    ) -> Iterator[WorkerState]:
        """Those of these workers to which a task may be sent before all else."""
        known = self.scheduler.workers
        at = (known[a] for a in entry.homes if a in known) if entry.homes else iter(workers)
        for ws in at:
            if ws not in workers or not entry.kind.suits(ws):
                continue
            if not (self.lend or ws.address in pool.workers):
                continue
            if math.isfinite(shorter_than) and self._others_have_less(pool, ws):
                continue
            if sum(1 for sent in self.slots.waiting(ws.address) if sent.rank < 0) < ws.nthreads:
                yield ws

    def _rank(self, pool: Pool, entry: Entry, ws: WorkerState) -> float:
        """By when it was sent; but a task takes the place of one of its own job that comes after it
        in Dask's order."""
        now = monotonic()
        waiting = self.slots.waiting_tasks(ws.address, pool)
        later = [sent.rank for ts, sent in waiting if ts.priority > entry.priority]
        return min(later, default=now)

    def _coming(self, pools: Collection[Pool]) -> list[Pool]:
        """Pools that iterate: when they have no ready task they are likely to have some in a
        moment, or in a moment after what they run has ended."""
        now = monotonic()
        return [
            pool
            for pool in pools
            if pool.gap < BACK_WITHIN
            and (pool.ready or pool.running or now - pool.left_at < BACK_WITHIN)
        ]

    def _kept(self, coming: list[Pool], pool: Pool, entry: Entry, ws: WorkerState) -> int:
        """Slots to keep from a long task for jobs that are behind its own and will be back within
        a moment after this slot's thread is free."""
        if not coming or self.expected(pool, entry.ts) <= BACK_WITHIN:
            return 0
        until = self.slots.next_end(ws) + 2 * BACK_WITHIN
        threads = self.scheduler.total_nthreads
        behind = [
            other
            for other in coming
            if not other.ready
            and other.service + KEPT_FOR * threads / (other.weight + pool.weight) < pool.service
            and self.slots.all_end_in(other) < until
        ]
        if not behind:
            return 0
        weight = sum(other.weight for other in behind)
        return math.ceil(threads * weight / (weight + pool.weight))

    def _together(self, pool: Pool) -> bool:
        """Whether all ready tasks of a gang find a slot now, or as many as there can be."""
        running = self.scheduler.running
        fits = [ws for ws in running if any(kind.allows(ws) for kind in pool.kinds)]
        threads = sum(ws.nthreads for ws in fits)
        free = sum(max(ws.nthreads - load(ws), 0) for ws in fits)
        return bool(pool.running) or free >= min(len(pool.ready), threads)

    def entry(
        self,
        pool: Pool,
        ts: TaskState,
        user: Iterable[str] | None,
        count: int,
    ) -> Entry:
        """File a ready task.

        Parameters
        ----------
        user : iterable of str, optional
            Workers to which the user restricted it.
        count : int
            Orders tasks of equal priority.
        """
        needs = ts.resource_restrictions
        kind = ANY
        if user or needs:
            kind = Kind(
                frozenset(user) if user else None, tuple(sorted(needs.items())) if needs else None
            )
        expected = self.expected(pool, ts)
        homes, moving = self._homes(pool, ts, kind, expected)
        return Entry(ts.priority, count, ts, kind, homes, moving, expected, self._rootish(ts, kind))

    def _rootish(self, ts: TaskState, kind: Kind) -> bool:
        """Whether Dask would queue a task if it were not held."""
        if kind != ANY:
            return False
        if getattr(ts.run_spec, "data_producer", False):
            return True
        group = ts.group
        return (
            len(group) > self.scheduler.total_nthreads * 2
            and len(group.dependencies) < 5
            and sum(map(len, group.dependencies)) < 5
        )

    def expected(self, pool: Pool, ts: TaskState) -> float:
        """Return the seconds that a task may compute: as known of its job's tasks now, else the
        scheduler's own estimate, whose method is named differently in every second release."""
        known = pool.durations.known(ts)
        if known is not None:
            return known
        if ts.prefix.duration_average >= 0:
            return ts.prefix.duration_average
        if ts.prefix.max_exec_time > 0:
            return 2 * ts.prefix.max_exec_time
        return self.scheduler.UNKNOWN_TASK_DURATION

    def _homes(
        self, pool: Pool, ts: TaskState, kind: Kind, expected: float
    ) -> tuple[tuple[str, ...], float]:
        """Workers on which a task runs without moving much, none if that is anywhere; and the
        seconds that moving its inputs elsewhere takes."""
        if not ts.dependencies:
            return (), 0.0
        held: dict[str, int] = {}
        for dep in ts.dependencies:
            for ws in dep.who_has or ():
                if kind is ANY or kind.allows(ws):
                    held[ws.address] = held.get(ws.address, 0) + dep.nbytes
        if not held:
            return (), 0.0
        most = max(held.values())
        for address, nbytes in held.items():
            pool.bytes_at[address] = pool.bytes_at.get(address, 0.0) + nbytes / len(held)
        cheap = max(CHEAP_SECONDS, CHEAP_FRACTION * expected) * self.scheduler.bandwidth
        if only := confined(pool, ts) & held.keys():
            return tuple(sorted(only)), math.inf
        if most <= cheap:
            return (), most / self.scheduler.bandwidth
        homes = sorted(address for address, nbytes in held.items() if most - nbytes <= cheap)
        if len(homes) >= min(MOST_HOMES, len(self.scheduler.running)):
            return (), most / self.scheduler.bandwidth
        return tuple(homes), most / self.scheduler.bandwidth

    def _choose(self, pool: Pool, places: _Places, move: bool) -> tuple[Entry, WorkerState] | None:
        """The job's first task in Dask's order that a slot suits, and that slot's worker."""
        best: tuple[Entry, WorkerState] | None = None
        for kind, ready in list(pool.kinds.items()):
            found = self._choose_of_kind(pool, kind, ready, places, move)
            if found is not None and (best is None or found[0] < best[0]):
                best = found
        return best

    def _choose_of_kind(
        self, pool: Pool, kind: Kind, ready: Ready, places: _Places, move: bool
    ) -> tuple[Entry, WorkerState] | None:
        def suits(ws: WorkerState, entry: Entry) -> bool:
            return self._may_use(pool, kind, entry, ws)

        best: tuple[Entry, WorkerState] | None = None
        few, many = ready.homes, places.by_address
        if len(few) > len(many):
            at: Iterable[str] = [a for a in many if a in few]
        else:
            at = [a for a in few if a in many]
        for address in at[:LOOKED_AT]:
            entry = ready.at(address)
            if entry is None or not suits(many[address], entry):
                continue
            if best is None or entry < best[0]:
                best = entry, many[address]
        entry = ready.anywhere()
        if entry is not None and (best is None or entry < best[0]):
            ws = places.pick(pool, lambda ws: suits(ws, entry))
            if ws is not None:
                best = entry, ws
        if best is None and move:
            return self._homeless(pool, kind, ready, places)
        return best

    def _may_use(self, pool: Pool, kind: Kind, entry: Entry, ws: WorkerState) -> bool:
        """Whether a task may take this slot."""
        if not self.lend and ws.address not in pool.workers:
            # Tasks that their user bound to other workers than the set has would never run in it.
            known = self.scheduler.workers
            if kind is ANY or any(kind.allows(known[a]) for a in pool.workers if a in known):
                return False
        if self._bound and self._others_have_less(pool, ws):
            return False
        if entry.rootish and not (self.slots.may_have_rootish(ws) and self._keeps_up(pool, ws)):
            return False
        if kind is ANY:
            return True
        if not kind.allows(ws):
            return False
        return kind.suits(ws) or len(ws.processing) - len(ws.long_running) < ws.nthreads

    def _others_have_less(self, pool: Pool, ws: WorkerState) -> bool:
        """Whether a worker would go on with tasks of a job that has been served less than this one:
        they are bound to it and have nowhere else to go."""
        return (
            any(
                other.service < pool.service and ws.address in other.passed for other in self._bound
            )
            and self.slots.backlog(ws) > 0
        )

    def _keeps_up(self, pool: Pool, ws: WorkerState) -> bool:
        """Whether a worker gets through what a job has there and what needs a resource: under
        plain Dask such tasks wait on workers, where they keep further loads away."""
        waits = 0
        for kind, ready in pool.kinds.items():
            if kind.resources and kind.allows(ws):
                share = ready.count_at[""] / len(self.scheduler.running)
                waits += ready.count_at[ws.address] + math.ceil(share)
        on = len(ws.processing) - len(ws.long_running)
        if not waits and on < ws.nthreads:
            return True
        if not waits and not _needs_resources(ws, pool):
            return True
        return on + waits < ws.nthreads

    def _homeless(
        self, pool: Pool, kind: Kind, ready: Ready, places: _Places
    ) -> tuple[Entry, WorkerState] | None:
        """The first task whose inputs are moved sooner than its homes get through what waits for
        them, and a worker that has a free thread."""
        free = [
            ws for ws in islice(places.by_address.values(), LOOKED_AT) if ws.nthreads > load(ws)
        ]
        if not free:
            return None
        work = ready.seconds_at
        for home in sorted(ready.homes, key=lambda a: -work.get(a, 0.0))[:LOOKED_AT]:
            entry = ready.at(home)
            if entry is None:
                continue
            for ws in free:
                if self._may_use(pool, kind, entry, ws) and self._waits(pool, entry, ws, work):
                    return entry, ws
        return None

    def _waits(self, pool: Pool, entry: Entry, ws: WorkerState, work: dict[str, float]) -> bool:
        """Whether a task would wait for its homes in vain (they left, are paused, or are not in the
        job's strict set) or for longer than moving its inputs to a worker takes."""
        known, running = self.scheduler.workers, self.scheduler.running
        homes = [known[a] for a in entry.homes if a in known and known[a] in running]
        if not self.lend:
            homes = [home for home in homes if home.address in pool.workers]
        if not homes:
            return True
        if math.isinf(entry.moving):
            return False
        missing = sum(dep.nbytes for dep in entry.ts.dependencies if ws not in dep.who_has)
        moving = missing / self.scheduler.bandwidth
        return all(
            self.slots.next_end(home) + work.get(home.address, 0.0) / home.nthreads
            > moving + entry.expected / home.nthreads
            for home in homes
        )


class _Places:
    """Workers that have slots, those with the fewest tasks a thread first."""

    def __init__(self, slots: Slots, workers: Iterable[WorkerState]) -> None:
        self._slots = slots
        having = sorted((ws for ws in workers if slots.may_have(ws)), key=_place)
        self.by_address = {ws.address: ws for ws in having}

    def __len__(self) -> int:
        return len(self.by_address)

    def pick(self, pool: Pool, suits: Callable[[WorkerState], bool]) -> WorkerState | None:
        """Return a worker for a task of a pool that is at home nowhere: of the first ones one that
        has a free thread, made the least of what the pool made anywhere, and is of its set."""
        found: WorkerState | None = None
        least: tuple[Any, ...] = ()
        for looked, ws in enumerate(self.by_address.values()):
            if found is not None and looked >= LOOKED_AT:
                break
            order = (
                load(ws) >= ws.nthreads,
                pool.made_at[ws.address] / ws.nthreads,
                ws.address not in pool.workers,
            )
            if (found is None or order < least) and suits(ws):
                found, least = ws, order
        return found

    def refresh(self, ws: WorkerState) -> None:
        """Look at a worker again after it was sent a task."""
        self.by_address.pop(ws.address, None)
        if self._slots.may_have(ws):
            self.by_address[ws.address] = ws

    def keep_free(self) -> None:
        """Keep only workers that have a free thread."""
        self.by_address = {a: ws for a, ws in self.by_address.items() if load(ws) < ws.nthreads}

    def leave_to(self, pool: Pool) -> None:
        """Leave those workers alone that would go on with tasks of a pool by themselves."""
        for address in pool.passed:
            ws = self.by_address.get(address)
            if ws is not None and self._slots.backlog(ws) > 0:
                del self.by_address[address]


def _needs_resources(ws: WorkerState, pool: Pool) -> bool:
    """Whether tasks of a pool wait on a worker for a resource."""
    return blocked(ws) > 0 and any(
        ts.resource_restrictions and ts in pool.tasks for ts in ws.processing
    )


def _has_rootish(pool: Pool) -> bool:
    ready = pool.kinds.get(ANY)
    entry = ready.anywhere() if ready is not None else None
    return entry is not None and entry.rootish


def _behind(pool: Pool) -> bool:
    """Whether a job is behind on its floor, or new and not granted anything yet."""
    return (pool.tokens > 0 or math.isinf(pool.index)) and _within(pool)


def _short_of_floor(pool: Pool) -> bool:
    """Whether a job is behind on a floor that it was given besides its fair share."""
    return pool.floor and pool.tokens > 0 and _within(pool)


def _within(pool: Pool) -> bool:
    """Whether a job runs less than its cap."""
    return len(pool.running) < pool.most


def _anyone(pool: Pool) -> bool:
    return True


def _place(ws: WorkerState) -> tuple[float, str]:
    return load(ws) / ws.nthreads, ws.address


def confined(pool: Pool, ts: TaskState) -> frozenset[str]:
    """Where a ready task had better stay, if anywhere: with those of its inputs that the job made
    on workers of its user's choice. They may be of a kind that cannot move, as the sockets by
    which LightGBM's workers find each other.
    """
    made = [
        frozenset(ws.address for ws in dep.who_has or ())
        for dep in ts.dependencies
        if len(pool.tasks.get(dep) or ()) == 1 and not dep.loose_restrictions
    ]
    return frozenset.intersection(*made) if made else frozenset()
