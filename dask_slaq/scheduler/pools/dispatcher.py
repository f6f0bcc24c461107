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
from itertools import groupby, islice, product
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary

from dask_slaq.scheduler.pools.constants import BACK_WITHIN, LOOKED_AT, SLACK, WORTH
from dask_slaq.scheduler.pools.durations import TRIVIAL
from dask_slaq.scheduler.pools.ready import ANY
from dask_slaq.scheduler.pools.slots import blocked, has_thread, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.core.runtime import WorkerSpeeds
    from dask_slaq.scheduler.pools.gangs import Gang, Gangs
    from dask_slaq.scheduler.pools.label_limits import Limits
    from dask_slaq.scheduler.pools.pool import Group, Pool
    from dask_slaq.scheduler.pools.ready import Entry, Kind, Ready
    from dask_slaq.scheduler.pools.slots import SentTasks
    from dask_slaq.scheduler.pools.waiting import Waiting

logger = logging.getLogger(__name__)

# Classes of the jobs of one owner, in the order in which they are served.
OWED, OWNER_OWED, WITHIN_CAP, OVER_CAP = range(4)
# Share of a slow worker's factor below which another one is clearly faster.
CLEARLY = 0.8
# Stages of a dispatch: tasks that need a resource or certain workers, tasks at home, all tasks.
SCARCE, AT_HOME, ANYWHERE = range(3)


class Key(NamedTuple):
    """Sort key of a job, lowest first, so what is served first by its size is negated."""

    later: bool  # whether neither the job nor its owner is owed
    owner_lag: float  # seconds for which its owner waits for what it is owed, negated
    turn: int  # class of the job
    lag: float  # since when it waits for what it is owed, in monotonic seconds; 0 if nothing
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
        waiting: Waiting,
        speeds: WorkerSpeeds,
        *,
        lend: bool,
    ) -> None:
        self.scheduler, self.sent, self.lend = scheduler, sent, lend
        self.waiting, self.speeds = waiting, speeds
        self._send, self.gangs, self.limits, self._said = send, gangs, limits, False
        self._open: dict[str, WorkerState] = {}
        self._coming: list[Pool] = []
        self._now = 0.0
        # Workers with a free thread that the last dispatch left over, by address: part of its
        # threads in use, address and worker. They are open until something changes there.
        self._spare: dict[str, tuple[float, str, WorkerState]] = {}
        self._touched: set[str] = set()  # workers to which it sent tasks
        self._only_threads = False  # whether only workers with a free thread are open still
        self._ends: dict[str, float] = {}  # seconds until a thread is free, of workers looked at
        self.left: set[str] = set()  # workers at which the next dispatch has to look again
        self.filled: set[str] = set()  # workers that have no slot any more
        # For slow workers: since when tasks of jobs are left to faster ones; the median threads of
        # those, by prefix and factor; and the core-seconds that jobs wait for, in this dispatch.
        self._left_since: WeakKeyDictionary[Pool, float] = WeakKeyDictionary()
        self._faster: dict[tuple[str, float], tuple[float, list[tuple[WorkerState, float]]]] = {}
        self._faster_as_of = 0
        self._before_it: dict[Pool, float] = {}
        self.kept = False  # whether it kept slots for a job that is about to come back

    def key(self, pool: Pool) -> Key | None:
        """Return the sort key of a job, lowest first; None if it may not be served.

        A task that is sent takes the key along as its priority, so that it runs before tasks of
        later jobs that wait on its worker. The key is kept until something of the pool changes, or
        until the time from which on it is owed something; if owners are configured, not at all.
        """
        now = monotonic()
        if now >= pool.key_until:
            pool.key_until = math.inf if pool.group is None else -math.inf
            pool.key = self._key(pool, now)
        return pool.key

    def _key(self, pool: Pool, now: float) -> Key | None:
        group, running = pool.group, len(pool.running)
        if pool.paused or not self._owner_has_room(group, self._open.values()):
            return None
        # What a job is owed comes out of its owner's share, and not out of that of others.
        since, owner_lag = 0.0, 0.0 if group is None else group.lag
        within = group is None or owner_lag > 0 or pool.index == math.inf
        below, owed = pool.threads < pool.most, pool.owed(now)
        if within and below and (owed > 0 or pool.index == math.inf):
            turn = OWED
            since = pool.accrued_at - pool.balance / pool.rate if pool.rate else -math.inf
        elif not below:
            turn = OVER_CAP
            if not self.lend:
                return None
        else:
            turn = OWNER_OWED if owner_lag > 0 else WITHIN_CAP
            if pool.rate and group is None:
                pool.key_until = now - owed / pool.rate  # from then on it is owed something
        service = pool.service
        if len(pool.kinds) == 1 and pool.first_root():
            service += SLACK * pool.share / pool.weight  # results in memory are used before
        later = turn > OWNER_OWED
        return Key(
            later, -owner_lag * (not later), turn, since, -pool.index, service,
            running / pool.weight, pool.name,
        )  # fmt: skip

    def _before(self, pools: Collection[Pool]) -> dict[Pool, Key]:
        """Return for each job with priorities the first key of work that its user puts after it.

        Such a job comes no later than that. A priority that users give tasks counts among the work
        of their owner only.
        """
        found: dict[Pool, Key] = {}
        by_owner: dict[str, list[Pool]] = {pool.owner: [] for pool in pools if pool.prioritized}
        for pool in self.waiting.pools if by_owner else ():
            if pool.owner in by_owner:
                by_owner[pool.owner].append(pool)
        for theirs in by_owner.values():
            least: Key | None = None  # of those that matter less
            theirs.sort(key=lambda pool: -pool.user_priority())
            for mine, alike in groupby(theirs, key=lambda pool: pool.user_priority()):
                here = list(alike)
                if least is not None:
                    found.update((pool, least) for pool in here if pool.prioritized)
                keys = [k._replace(name="") for pool in here if (k := self.key(pool)) is not None]
                least = min([least, *keys] if least is not None else keys, default=None)
                if mine < 0:
                    self._say(here[0], len(theirs) < len(self.waiting.pools))
        return found

    def _say(self, pool: Pool, others: bool) -> None:
        """Log once for whom priorities count, if owners with `others` compete."""
        if others and not self._said:
            self._said = True
            logger.warning(
                "tasks of %s have a priority: it counts among the work of their owner, and not "
                "before the work of others",
                pool.name,
            )

    def _owner_has_room(self, group: Group | None, workers: Iterable[WorkerState]) -> bool:
        """Return whether an owner may start another task, or send one to wait for one of its own.

        The latter only while no thread is free: Dask would move it to that, above the limit.
        """
        if group is None or group.has_room():
            return True
        if any(map(has_thread, self._open.values())):
            return False
        return any(self.sent.ends_for(group, ws) for ws in workers)

    def dispatch(self, addresses: Iterable[str]) -> None:
        """Send tasks to those of some workers that have slots, until slots or tasks run out."""
        workers, running, spare = self.scheduler.workers, self.scheduler.running, self._spare
        found: list[tuple[float, str, WorkerState]] = []
        for address in addresses:
            spare.pop(address, None)
            ws = workers.get(address)
            if ws is None or ws not in running:
                continue
            there = load(ws)
            if there < ws.nthreads or (self.wants(ws, there) and self.sent.has_slot(ws)):
                found.append((there / ws.nthreads, address, ws))
        found += [one for one in spare.values() if one[2] in running]  # nothing changed there
        found.sort()
        self._open = {address: ws for _, address, ws in found}
        self.left, self.kept, self._touched = set(), False, set()
        self._only_threads = False
        self._ends.clear()
        self._before_it.clear()
        if self._open:
            now = self._now = monotonic()
            self._coming = [
                pool
                for pool in self.waiting.coming
                if pool.gap < min(BACK_WITHIN, pool.spell)
                and (pool.ready or pool.running or now - pool.left_at < BACK_WITHIN)
            ]
            if self.waiting.scarce:
                self._serve(SCARCE)
            self._serve(AT_HOME)
            if self._open:
                self._serve(ANYWHERE)
        self.left |= self._open.keys()
        self._open = {}
        self.filled = self._touched - self.left
        self._spare, left, self.left = {}, self.left, set()
        for one in found:
            if one[1] in left:
                if one[0] < 1 and one[1] not in self._touched:
                    self._spare[one[1]] = one
                else:
                    self.left.add(one[1])

    def _has_slot(self, ws: WorkerState) -> bool:
        return has_thread(ws) if self._only_threads else self.sent.has_slot(ws)

    @property
    def has_spare(self) -> bool:
        """Whether the last dispatch left a free thread over."""
        known = self.scheduler.workers
        return bool(self._spare) or any(has_thread(known[a]) for a in self.left if a in known)

    def wants(self, ws: WorkerState, there: int) -> bool:
        """Return whether a ready task may wait on a worker that has no free thread.

        `there` are its tasks. Tasks that have their home elsewhere move to free threads only.
        """
        index = self.waiting
        if index.movable or index.scarce or index.passed or ws.address in index.at:
            return True
        if "" not in index.at:
            return False
        # No more root tasks than Dask itself sends, but for trivial ones.
        enough = there >= max(self.scheduler.WORKER_SATURATION * ws.nthreads, 1)
        return not enough or self.sent.has_trivial(ws)

    def slot_in(self, address: str) -> float:
        """Return the seconds until a worker may be sent a ready task; infinite if it may not."""
        ws = self.scheduler.workers.get(address)
        if ws is None:
            return math.inf
        there = load(ws)
        if there < ws.nthreads:
            return 0.0
        if not self.wants(ws, there):
            return math.inf
        if self.sent.has_slot(ws):
            return 0.0
        ends = [self.sent.free_in(ws)]
        if ws.used_resources:
            ends.append(self.sent.resource_free_in(ws))
        ahead = self.sent.ahead
        return min((end - ahead for end in ends if end > ahead), default=math.inf)

    def check(self, pools: Iterable[Pool]) -> None:
        """Raise `AssertionError` unless the keys that are kept are those that hold now."""
        now = monotonic()
        for pool in pools:
            if now < (until := pool.key_until):
                kept, found = pool.key, self._key(pool, now)
                pool.key_until = until
                assert (kept is None) == (found is None), f"whether {pool.name} may be served"
                if kept is not None and found is not None:
                    same = math.isclose(kept.lag, found.lag, rel_tol=1e-9, abs_tol=1e-6)
                    assert same and kept._replace(lag=found.lag) == found, f"{kept} is {found}"

    def forget_worker(self, address: str) -> None:
        """Forget a worker that left."""
        self._spare.pop(address, None)

    def _serve(self, stage: int) -> None:
        """Serve the jobs in turn, one task per turn."""
        waiting = self._candidates(stage)
        before, queue = self._before(waiting), []
        for i, pool in enumerate(waiting):
            if (key := self._rank(pool, before)) is not None:
                queue.append((key, i, pool))
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
                self._touched.update(place.ws.address for place in places)
                if not all(map(self._send, places)):
                    self._leave(self._open)
                    return
                for place in places:
                    if not self._has_slot(place.ws):
                        self._open.pop(place.ws.address, None)
            if not pool.kinds:
                continue
            choice = self._choose(pool, key, stage)
            if choice is None:
                if pool.first_root() and not self._only_threads:
                    # It waits for a free thread: no other job's task is sent ahead instead.
                    self._only_threads = True
                    self._leave(a for a, ws in self._open.items() if not has_thread(ws))
                continue
            if self._is_kept_from(pool, choice):
                self.kept = True
                continue
            self._touched.add(choice.ws.address)
            self._left_since.pop(pool, None)
            self._ends.pop(choice.ws.address, None)
            if not self._send(choice):
                self._leave(self._open)  # Dask or a hook failed, and would again
                return
            if not self._has_slot(choice.ws):
                self._open.pop(choice.ws.address, None)
            more = stage is not SCARCE or len(pool.running) < max(pool.share, 1)
            if more and pool.ready and (again := self._rank(pool, before)) is not None:
                heapq.heappush(queue, (again, i, pool))

    def _rank(self, pool: Pool, before: dict[Pool, Key]) -> Key | None:
        key = pool.key if self._now < pool.key_until else self.key(pool)
        return key if key is None or pool not in before else min(key, before[pool])

    def _candidates(self, stage: int) -> Collection[Pool]:
        """Return the pools that may have a task for an open slot."""
        index = self.waiting
        if stage is not AT_HOME:
            return list(index.pools)
        found: dict[Pool, Any] = dict.fromkeys(index.passed)
        found.update(index.together)
        found.update(dict.fromkeys(gang.pool for gang in self.gangs.waiting()))
        at = index.at
        if "" in at:
            found.update(at[""])
        for address in self._open if len(self._open) < len(at) else at:
            if address in at and address in self._open:
                found.update(at[address])
        return found

    def _start_gangs(self, pool: Pool, key: Key) -> None:
        """Send all members of each gang of a job at once, or keep its workers until that fits."""
        if not self.gangs:
            return
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
                    self._touched.add(address)
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
            factor = self.speeds.factor(address, entry.ts.prefix.name)
            there = (made.get(address, 0.0) + self.speeds.unlike) * factor / ws.nthreads
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
        if self.speeds.unlike and self._ends_sooner_elsewhere(pool, entry, ws):
            self.kept = True
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
        if self.speeds.unlike:
            free.sort(key=lambda ws: self.speeds.factor(ws.address))
        known, running = self.scheduler.workers, self.scheduler.running
        homes = heapq.nlargest(LOOKED_AT, ready.homes, key=ready.count_at.__getitem__)
        bandwidth = self.scheduler.bandwidth
        for home in homes:
            entry = ready.at(home)
            if entry is None or not home:
                continue
            there = [known[a] for a in entry.homes if a in known and known[a] in running]
            if not self.lend:
                there = [ws for ws in there if ws.address in pool.workers]
            waits = min(
                (self._wait(ws, entry, ready) + self._longer(entry, ws) for ws in there),
                default=math.inf,
            )
            inputs = entry.ts.dependencies
            # Most workers have none of its inputs, and would have to fetch all.
            most = sum(dep.get_nbytes() for dep in inputs) / bandwidth
            some = {ws for dep in inputs for ws in dep.who_has or ()}
            if most >= waits and some.isdisjoint(free) and not self.speeds.unlike:
                continue
            for ws in free:
                seconds = self.scheduler.get_comm_cost(entry.ts, ws) if ws in some else most
                later = seconds + self._longer(entry, ws)
                if later < waits and self._may(pool, kind, entry, ws):
                    busy = f"busy for {waits:.2g} s" if waits < math.inf else "not available"
                    return entry, ws, f"moved, {1000 * seconds:.2g} ms to fetch, home {busy}"
        return None

    def _longer(self, entry: Entry, ws: WorkerState) -> float:
        """Return by how many seconds a task takes longer on a worker than on a median one."""
        factor = self.speeds.factor(ws.address, entry.ts.prefix.name)
        return (factor - 1.0) * entry.like.mean if factor != 1.0 and entry.like.known else 0.0

    def _ends_sooner_elsewhere(self, pool: Pool, entry: Entry, ws: WorkerState) -> bool:
        """Return whether faster workers would end a task sooner than a slow one with a slot.

        They compute what comes before it first: ready tasks of its job, and of jobs before. It is
        not left to them for longer than the slow worker takes.
        """
        like, factor = entry.like, self.speeds.factor(ws.address, entry.ts.prefix.name)
        if factor <= 1.0 or not like.known or pool.gang or entry.kind is not ANY or not self.lend:
            return False
        power, fastest = self._faster_than(factor, entry.ts.prefix.name)
        if not power:
            return False
        begin = soonest = math.inf
        for other, theirs in fastest:
            if (end := self._ends.get(other.address)) is None:
                end = self._ends[other.address] = self.sent.next_end(other)
            begin, soonest = min(begin, end), min(soonest, end + theirs * like.mean)
        there, seconds = factor * like.mean, len(pool.ready) * like.mean
        if max(soonest, begin + (self._seconds_before(pool) + seconds) / power) >= there:
            return False
        return self._now - self._left_since.setdefault(pool, self._now) < there

    def _faster_than(
        self, factor: float, name: str
    ) -> tuple[float, list[tuple[WorkerState, float]]]:
        """Return the median threads of workers that are clearly faster, and some of these.

        `name` is that of the prefix of tasks. It is as of the last epoch.
        """
        if self._faster_as_of != self.speeds.learned:
            self._faster, self._faster_as_of = {}, self.speeds.learned
        found = self._faster.get((name, factor))
        if found is None:
            each = ((ws, self.speeds.factor(ws.address, name)) for ws in self.scheduler.running)
            faster = sorted((f, ws.address, ws) for ws, f in each if f < CLEARLY * factor)
            power = sum(ws.nthreads / theirs for theirs, _, ws in faster)
            some = [(ws, theirs) for theirs, _, ws in faster[:LOOKED_AT]]
            found = self._faster[name, factor] = power, some
        return found

    def _seconds_before(self, pool: Pool) -> float:
        """Return the core-seconds of the ready tasks of the jobs before one."""
        if not self._before_it:
            seconds = 0.0
            keys = ((self.key(each), each) for each in self.waiting.pools)
            for _, each in sorted((key, each) for key, each in keys if key is not None):
                self._before_it[each] = seconds
                seconds += len(each.ready) * each.used / max(each.ended, 1)
        return self._before_it.get(pool, math.inf)

    def _wait(self, ws: WorkerState, entry: Entry, ready: Ready) -> float:
        """Return the seconds until a task may start at its home, after those that wait for it."""
        expected = entry.like.mean if entry.like.known else 0.0
        expected *= self.speeds.factor(ws.address, entry.ts.prefix.name)
        found = self._ends.get(ws.address)
        if found is None:
            found = self._ends[ws.address] = self.sent.next_end(ws)
        seconds, slots = found, float(ws.nthreads)
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
