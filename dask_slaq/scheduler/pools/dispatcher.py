"""Choice of ready tasks for slots: one order of jobs, one cost of places.

`Dispatcher.key` is the order. Jobs that are owed, or whose owner is, come first, those that wait
longest for it before; then jobs within their cap, by index, and by service among equals; then jobs
over their cap.

The cost of a place is the time to move a task's inputs there: a task waits for its home, the
workers that have them, for as long as that is expected to be sooner.
"""

from __future__ import annotations

import heapq
import logging
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from itertools import islice, product
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

from dask_slaq.scheduler.pools.constants import BACK_WITHIN, LOOKED_AT, SLACK, WORTH
from dask_slaq.scheduler.pools.durations import TRIVIAL
from dask_slaq.scheduler.pools.ready import ANY
from dask_slaq.scheduler.pools.slots import blocked, has_thread, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.scheduler.pools.gangs import Gang, Gangs
    from dask_slaq.scheduler.pools.label_limits import Limits
    from dask_slaq.scheduler.pools.pool import Group, Pool
    from dask_slaq.scheduler.pools.ready import Entry, Kind, Ready
    from dask_slaq.scheduler.pools.slots import SentTasks

logger = logging.getLogger(__name__)

# Classes of the jobs of one owner, in the order in which they are served.
OWED, OWNER_OWED, WITHIN_CAP, OVER_CAP = range(4)
# Stages of a dispatch: tasks that need a resource or certain workers, tasks at home, all tasks.
SCARCE, AT_HOME, ANYWHERE = range(3)


class Key(NamedTuple):
    """Sort key of a job, lowest first, so what is served first by its size is negated."""

    later: bool  # whether neither the job nor its owner is owed
    owner_lag: float  # seconds for which its owner waits for what it is owed, negated
    turn: int  # class of the job
    lag: float  # seconds for which it waits for what it is owed, negated
    gain: float  # index of its grant, negated
    service: float
    running: float
    name: str


class Choice(NamedTuple):
    """Choice of a task for a slot of a worker."""

    pool: Pool
    entry: Entry
    ws: WorkerState
    key: Key
    why: str


class Dispatcher:
    """Chooser of tasks for slots. `send` returns whether a `Choice` is on its worker."""

    def __init__(
        self,
        scheduler: Scheduler,
        sent: SentTasks,
        send: Callable[[Choice], bool],
        gangs: Gangs,
        limits: Limits,
        *,
        lend: bool,
    ) -> None:
        self.scheduler, self.sent, self.lend = scheduler, sent, lend
        self._send, self.gangs, self.limits, self._said = send, gangs, limits, False
        self._open: dict[str, WorkerState] = {}
        self._coming: list[Pool] = []
        self.left: set[str] = set()  # workers whose slots the last dispatch left over
        self.kept = False  # whether it kept slots for a job that is about to come back

    def key(self, pool: Pool) -> Key | None:
        """Return the sort key of a job, lowest first; None if it may not be served.

        A task that is sent takes the key along as its priority, so that it runs before tasks of
        later jobs that wait on its worker.
        """
        group, running = pool.group, len(pool.running)
        if pool.paused or not self._owner_has_room(group, self._open.values()):
            return None
        # What a job is owed comes out of its owner's share, and not out of that of others.
        lag, owner_lag = 0.0, 0.0 if group is None else group.lag
        within = group is None or owner_lag > 0 or pool.index == math.inf
        if within and pool.is_behind():
            turn = OWED
            lag = pool.balance / pool.rate if pool.rate else math.inf
        elif pool.threads >= pool.most:
            turn = OVER_CAP
            if not self.lend:
                return None
        else:
            turn = OWNER_OWED if owner_lag > 0 else WITHIN_CAP
        service = pool.service
        if len(pool.kinds) == 1 and pool.first_root():
            service += SLACK * pool.share / pool.weight  # results in memory are used before
        later = turn > OWNER_OWED
        return Key(
            later, -owner_lag * (not later), turn, -lag, -pool.index, service,
            running / pool.weight, pool.name,
        )  # fmt: skip

    def _rank(self, pool: Pool, pools: Collection[Pool]) -> Key | None:
        """Return the key of a job, or that of work of its owner to which the user prefers its own.

        A priority that users give tasks counts among the work of their owner only.
        """
        key = self.key(pool)
        if key is None or not pool.prioritized:
            return key
        mine = pool.user_priority()
        if mine < 0 and not self._said and any(p.owner != pool.owner for p in pools):
            self._said = True
            logger.warning(
                "tasks of %s have a priority: it counts among the work of their owner, and not "
                "before the work of others",
                pool.name,
            )
        others = (p for p in pools if p.owner == pool.owner and p.user_priority() > mine)
        return min([key, *(k._replace(name="") for p in others if (k := self.key(p)) is not None)])

    def _owner_has_room(self, group: Group | None, workers: Iterable[WorkerState]) -> bool:
        """Return whether an owner may start another task, or send one to wait for one of its own.

        The latter only while no thread is free: Dask would move it to that, above the limit.
        """
        if group is None or group.has_room():
            return True
        if any(map(has_thread, self._open.values())):
            return False
        return any(self.sent.ends_for(group, ws) for ws in workers)

    def dispatch(self, pools: Collection[Pool], addresses: Iterable[str]) -> None:
        """Send tasks to those of some workers that have slots, until slots or tasks run out."""
        workers, running = self.scheduler.workers, self.scheduler.running
        known = [workers[address] for address in addresses if address in workers]
        found = [ws for ws in known if ws in running and self.sent.has_slot(ws)]
        found.sort(key=lambda ws: (load(ws) / ws.nthreads, ws.address))
        self._open = {ws.address: ws for ws in found}
        self.left, self.kept = set(), False
        if self._open:
            now = monotonic()
            self._coming = [
                pool
                for pool in pools
                if pool.gap < min(BACK_WITHIN, pool.spell)
                and (pool.ready or pool.running or now - pool.left_at < BACK_WITHIN)
            ]
            if any(len(pool.kinds) > (ANY in pool.kinds) for pool in pools):
                self._serve(pools, SCARCE)
            self._serve(pools, AT_HOME)
            if self._open:
                self._serve(pools, ANYWHERE)
        self.left |= self._open.keys()
        self._open = {}

    def _serve(self, pools: Collection[Pool], stage: int) -> None:
        """Serve the jobs in turn, one task per turn."""
        waiting = [pool for pool in pools if pool.ready or (pool.passed and stage is AT_HOME)]
        ranks = ((self._rank(pool, waiting), i, pool) for i, pool in enumerate(waiting))
        queue = [(key, i, pool) for key, i, pool in ranks if key is not None]
        heapq.heapify(queue)
        while queue and self._open:
            key, i, pool = heapq.heappop(queue)
            if not self._owner_has_room(pool.group, self._open.values()):
                continue  # another job of its owner was served meanwhile
            if stage is AT_HOME and pool.passed:
                # Workers that go on with tasks that Dask has sent: it is their turn as well.
                self._leave(a for a in pool.passed if self._has_backlog(a))
            if stage is AT_HOME:
                self._start_gangs(pool, key)
            if not pool.kinds:
                continue
            if pool.gang and not pool.running and self.limits.keep_apart(pool):
                continue
            if pool.gang and not self._together(pool):
                self._leave(self._open)  # keep all slots until there are enough for the gang
                return
            scarce = any(kind is not ANY for kind in pool.kinds)
            if pool.gang and not pool.running and (scarce or stage is not SCARCE):
                places = self._places(pool, key)
                if places and self._is_kept_from(pool, places[0], len(places) - 1):
                    self.kept = True
                    continue
                if not all(map(self._send, places)):
                    self._leave(self._open)
                    return
                for place in places:
                    if not self.sent.has_slot(place.ws):
                        self._open.pop(place.ws.address, None)
            if not pool.kinds:
                continue
            choice = self._choose(pool, key, stage)
            if choice is None:
                if pool.first_root():
                    # It waits for a free thread: no other job's task is sent ahead instead.
                    self._leave(a for a, ws in self._open.items() if not has_thread(ws))
                continue
            if self._is_kept_from(pool, choice):
                self.kept = True
                continue
            if not self._send(choice):
                self._leave(self._open)  # Dask or a hook failed, and would again
                return
            if not self.sent.has_slot(choice.ws):
                self._open.pop(choice.ws.address, None)
            more = stage is not SCARCE or len(pool.running) < max(pool.share, 1)
            if more and pool.ready and (again := self._rank(pool, waiting)) is not None:
                heapq.heappush(queue, (again, i, pool))

    def _start_gangs(self, pool: Pool, key: Key) -> None:
        """Send all members of each gang of a job at once, or keep its workers until that fits."""
        now = monotonic()
        for gang in self.gangs.waiting(pool):
            if not gang.complete(now):
                continue
            places = set(gang.members.values())
            if pool.group is not None and not pool.group.has_room(self.threads_of(gang)):
                continue
            labels = Counter(map(self.limits.label_of, gang.members))
            if any(count > self.limits.room(label) for label, count in labels.items()):
                continue
            if all(a in self._open and has_thread(self._open[a]) for a in places):
                gang.closed = True
                why = f"its turn: all {len(gang.members)} of its gang at once"
                for ts, address in list(gang.members.items()):
                    self._send(Choice(pool, pool.ready[ts], self._open[address], key, why))
            self._leave(a for a in places if a in self._open)

    def threads_of(self, gang: Gang) -> int:
        """Return the threads that all members of a gang use at once."""
        known = self.scheduler.workers
        members = ((gang.threads[ts], known.get(a)) for ts, a in gang.members.items())
        return sum(threads or (ws.nthreads if ws is not None else 1) for threads, ws in members)

    def _leave(self, addresses: Iterable[str]) -> None:
        """Send no more tasks to some workers in this dispatch."""
        for address in list(addresses):
            del self._open[address]
            self.left.add(address)

    def _has_backlog(self, address: str) -> bool:
        """Return whether tasks that Dask has sent wait on a worker that has a slot."""
        ws = self._open.get(address)
        return ws is not None and load(ws) - ws.nthreads > self.sent.waiting(address)

    def _together(self, pool: Pool) -> bool:
        """Return whether all ready tasks of a gang, or as many as can ever run, can start now."""
        running = self.scheduler.running
        fits = [ws for ws in running if any(kind.allows(ws) for kind in pool.kinds)]
        threads = sum(ws.nthreads for ws in fits)
        free = sum(max(ws.nthreads - load(ws), 0) for ws in fits)
        return bool(pool.running) or free >= min(len(pool.ready), threads)

    def _places(self, pool: Pool, key: Key) -> list[Choice]:
        """Return free threads for all ready tasks of a gang, or as many as can ever run.

        A task whose home is busy does not wait for it, since the others would hold their threads
        and wait for it. Empty if a task finds no thread that it may take: they go one by one then.
        """
        free = {a: ws.nthreads - load(ws) for a, ws in self._open.items() if has_thread(ws)}
        entries = sorted(e for e in pool.ready.values() if not self.gangs.is_open(e.ts))
        entries = entries[: self.scheduler.total_nthreads]
        if len(entries) < 2 or (pool.group is not None and not pool.group.has_room(len(entries))):
            return []
        found: dict[Any, Choice] = {}
        taken: Counter[tuple[str, str]] = Counter()  # of each worker's resources
        for at_home, entry in product((True, False), entries):
            if entry.ts in found:
                continue
            needs = entry.kind.resources or ()
            for a in entry.homes if at_home else sorted(free, key=lambda a: (-free[a], a)):
                ws = self._open.get(a)
                if ws is None or not free.get(a) or not self._may(pool, entry.kind, entry, ws):
                    continue
                left = {r: ws.resources[r] - ws.used_resources.get(r, 0) for r, _ in needs}
                if all(left[r] - taken[a, r] >= needed for r, needed in needs):
                    place = "home of its input" if at_home else "a thread is free"
                    lent = "" if a in pool.workers else "lent, "
                    found[entry.ts] = Choice(pool, entry, ws, key, f"{lent}all at once: {place}")
                    free[a] -= 1
                    taken.update({(a, r): needed for r, needed in needs})
                    break
        return list(found.values()) if len(found) == len(entries) else []

    def _choose(self, pool: Pool, key: Key, stage: int) -> Choice | None:
        """Return the job's first task, in Dask's order, that may take a slot."""
        best: tuple[Entry, WorkerState, str] | None = None
        for kind, ready in list(pool.kinds.items()):
            if (stage is SCARCE and kind is ANY) or not self.limits.is_open(kind.label):
                continue
            homes, slots = ready.homes, self._open
            few, many = (homes, slots) if len(homes) < len(slots) else (slots, homes)
            for address in list(islice((a for a in few if a in many), LOOKED_AT)):
                entry, ws = ready.at(address), self._open[address]
                if entry is None or (best is not None and best[0] < entry):
                    continue
                if self._may(pool, kind, entry, ws):
                    best = entry, ws, "home of its input"
            entry = ready.at()
            if entry is not None and (best is None or entry < best[0]):
                found = self._least_loaded(pool, key, kind, entry, stage)
                if found is not None:
                    best = entry, found, "any worker will do"
            if best is None and stage is ANYWHERE:
                best = self._moved(pool, kind, ready)
        if best is None:
            return None
        entry, ws, place = best
        turns = ("it is owed core-seconds", "its owner is owed", "its turn", "over its cap")
        lent = "" if ws.address in pool.workers else "lent, "
        return Choice(pool, entry, ws, key, f"{lent}{turns[key.turn]}: {place}")

    def _least_loaded(
        self, pool: Pool, key: Key, kind: Kind, entry: Entry, stage: int
    ) -> WorkerState | None:
        """Return the worker for a task without a home: with a free thread, and little of its job.

        While many jobs compete, only a few workers have a slot at a time. All data of a job would
        be made there, and the tasks that need it would follow. So another job may take the slot
        first, unless the owner is owed threads.
        """
        made = pool.made_at
        most = math.inf
        owed = key.owner_lag < 0
        if stage is not ANYWHERE and kind is ANY and made and not (owed or entry.ts.dependencies):
            most = sum(made.values()) / self.scheduler.total_nthreads + 1
        best: WorkerState | None = None
        least: tuple[bool, float, bool] | None = None
        for looked, (address, ws) in enumerate(self._open.items()):
            if best is not None and looked >= LOOKED_AT:
                break
            there = made.get(address, 0.0) / ws.nthreads
            if there > most:
                continue
            order = (not has_thread(ws), there, address not in pool.workers)
            if (least is None or order < least) and self._may(pool, kind, entry, ws):
                best, least = ws, order
        return best

    def _may(self, pool: Pool, kind: Kind, entry: Entry, ws: WorkerState) -> bool:
        """Return whether a task may take a slot of a worker."""
        if not self._owner_has_room(pool.group, [ws]):
            return False
        if not self.lend and ws.address not in pool.workers:
            # Tasks whose ``workers=`` are all outside the worker set would never run in it.
            known = self.scheduler.workers
            if kind is ANY or any(kind.allows(known[a]) for a in pool.workers if a in known):
                return False
        if entry.rootish:
            # No more than Dask itself sends, so that memory does not fill up. Tasks that need a
            # resource would wait on the workers.
            waits = sum(len(ready) for kind, ready in pool.kinds.items() if kind.resources)
            if waits and waits >= len(self.scheduler.running):
                return False
            most = max(self.scheduler.WORKER_SATURATION * ws.nthreads, 1)  # may be infinite
            at_once = entry.like.is_trivial and self.sent.free_in(ws) < TRIVIAL
            if load(ws) >= most and not at_once:
                return False
        if kind is ANY or kind.suits(ws):
            return True
        # One task may wait on the worker until the resource is free, which hides a round trip.
        return (
            kind.allows(ws) and not blocked(ws) and self.sent.resource_free_in(ws) < self.sent.ahead
        )

    def _moved(self, pool: Pool, kind: Kind, ready: Ready) -> tuple[Entry, WorkerState, str] | None:
        """Return a task that would wait for its home longer than it takes to move its inputs."""
        free = [ws for ws in islice(self._open.values(), LOOKED_AT) if has_thread(ws)]
        if not free:
            return None
        known, running = self.scheduler.workers, self.scheduler.running
        homes = sorted(ready.homes, key=lambda home: -ready.count_at[home])[:LOOKED_AT]
        for home in homes:
            entry = ready.at(home)
            if entry is None or not home:
                continue
            there = [known[a] for a in entry.homes if a in known and known[a] in running]
            if not self.lend:
                there = [ws for ws in there if ws.address in pool.workers]
            waits = min((self._wait(ws, entry, ready) for ws in there), default=math.inf)
            for ws in free:
                seconds = self.scheduler.get_comm_cost(entry.ts, ws)
                if seconds < waits and self._may(pool, kind, entry, ws):
                    busy = f"busy for {waits:.2g} s" if waits < math.inf else "not available"
                    return entry, ws, f"moved, {1000 * seconds:.2g} ms to fetch, home {busy}"
        return None

    def _wait(self, ws: WorkerState, entry: Entry, ready: Ready) -> float:
        """Return the seconds until a task may start at its home, after those that wait for it."""
        expected = entry.like.mean if entry.like.known else 0.0
        seconds, slots = self.sent.next_end(ws), float(ws.nthreads)
        if not entry.kind.suits(ws):
            seconds = max(seconds, self.sent.resource_free_in(ws))
        for resource, needed in entry.kind.resources or ():
            slots = min(slots, ws.resources.get(resource, 0) / needed if needed else slots)
        return seconds + (ready.count_at[ws.address] - 1) * expected / max(slots, 1.0)

    def _is_kept_from(self, pool: Pool, choice: Choice, more: int = 0) -> bool:
        """Return whether a slot is kept for a job that is about to have a ready task again.

        `more` is the number of slots that are taken together with that of the choice.

        An iterative job has no ready task for a moment between two iterations. If its slots were
        taken by long tasks meanwhile, it would wait until these end (anticipatory scheduling: Iyer
        and Druschel, SOSP 2001).
        """
        if not self._coming or choice.entry.like.mean <= BACK_WITHIN:
            return False
        threads, now, kept = self.scheduler.total_nthreads, monotonic(), 0.0
        for other in self._coming:
            if other is pool or other.ready or not self._comes_before(other, pool, threads):
                continue
            ends = max((sent.left(now) for sent in other.running.values()), default=0.0)
            if ends <= self.sent.next_end(choice.ws) + 2 * BACK_WITHIN:
                # One that is behind is given more than its share to catch up.
                catching_up = len(other.running) if other.index == pool.index else 0
                due = min(other.width, other.share + catching_up)
                running = other.running.values()
                elsewhere = sum(sent.worker != choice.ws.address for sent in running)
                kept += max(due - elsewhere, 0.0)
        slots = sum(max(ws.nthreads - load(ws), 1) for ws in self._open.values())
        return kept > 0 and math.ceil(kept) >= slots - more

    def _comes_before(self, one: Pool, other: Pool, threads: int) -> bool:
        if one.index == other.index:
            behind = SLACK * threads / 2 / (one.weight + other.weight)
            return one.service + behind < other.service
        return one.index > WORTH * max(other.index, 0.0) and one.share >= 1
