"""Which ready task goes to which free slot. Decides only; `Pools` enacts.

Jobs behind on their floor come first, then all by their order, those over their cap last. Of the
job served, a task whose inputs are on the slot's worker comes first, then one that is cheap to
move, and at the very end one that would wait for its home for longer than moving takes.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterable, Iterator
from time import monotonic
from typing import TYPE_CHECKING

from dask_slaq.scheduler.pool import ANY, Entry, Kind, Pool

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

# Inputs are cheap to move in so many seconds, or in so much of the task's expected time.
CHEAP_SECONDS = 0.001
CHEAP_FRACTION = 0.1
# Tasks a thread that a worker may be sent at most.
MOST_AHEAD = 8

Slots = dict[str, "WorkerState"]


class Dispatcher:
    """Chooses tasks for slots.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read.
    lend : bool
        A job may use slots outside its worker set.
    ahead : float
        Seconds of expected work that a busy worker may have left and still be sent a task.
    """

    def __init__(self, scheduler: Scheduler, *, lend: bool, ahead: float) -> None:
        self.scheduler = scheduler
        self.lend = lend
        self.ahead = ahead
        self._dry: dict[str, float] = {}  # when each full worker is expected to have a free thread
        self._sent: dict[TaskState, tuple[str, float]] = {}  # its worker and expected seconds
        self._work: dict[str, float] = {}  # expected seconds of what each worker was sent and has

    def slots(self, addresses: Collection[str]) -> Slots:
        """Those of these workers that have a slot."""
        workers = self.scheduler.workers
        return {a: workers[a] for a in addresses if a in workers and self.has_slot(workers[a])}

    def has_slot(self, ws: WorkerState) -> bool:
        """Whether a worker has fewer tasks than threads, or is so near to it that a round trip
        would leave it idle: little work in all, or a task in its last moments."""
        if ws not in self.scheduler.running:
            return False
        if has_thread(ws):
            self._dry.pop(ws.address, None)
            return True
        tasks = load(ws)[0]
        if tasks < MOST_AHEAD and self._work.get(ws.address, 0.0) < self.ahead * ws.nthreads:
            return True
        left = max(self._dry.get(ws.address, math.inf) - monotonic(), 0.0)
        return left < self.ahead and tasks < 2

    def started(self, pool: Pool, ts: TaskState, ws: WorkerState) -> tuple[float, float]:
        """Note a task that was sent to a worker.

        Returns
        -------
        expected : float
            Its seconds.
        free : float
            Seconds until the worker is to be sent another, infinite where that is not known.
        """
        now = monotonic()
        address = ws.address
        known = pool.durations.known(ts)
        expected = self._expected(ts, known)
        self._sent[ts] = address, expected
        self._work[address] = self._work.get(address, 0.0) + expected
        seconds = math.inf if known is None else expected / ws.nthreads
        self._dry[address] = max(self._dry.get(address, now), now) + seconds
        return expected, self._dry[address] - now - self.ahead

    def ended(self, ts: TaskState) -> None:
        """Note that a worker no longer has a task, or that it holds no slot any more."""
        address, expected = self._sent.pop(ts, ("", 0.0))
        left = self._work.pop(address, 0.0) - expected
        if left > 1e-9:
            self._work[address] = left

    def choices(
        self, pools: Collection[Pool], slots: Slots
    ) -> Iterator[tuple[Pool, Entry, WorkerState, str]]:
        """Pool, task, worker and reason, one by one, until slots or tasks run out.

        The caller binds each before it asks for the next; `slots` loses those that are full.
        """
        last = anyone if self.lend else within
        for served, move in ((behind, False), (within, False), (last, False), (last, True)):
            if not slots:
                break
            queue = [(pool.order(), pool) for pool in pools if pool.ready and served(pool)]
            heapq.heapify(queue)
            while queue and slots:
                place, pool = heapq.heappop(queue)
                if (now := pool.order()) > place:  # another part of its job was served
                    heapq.heappush(queue, (now, pool))
                    continue
                choice = self._choose(pool, slots, move)
                if choice is None:
                    continue
                entry, ws = choice
                held = "granted" if ws.address in pool.line.workers else "lent"
                yield pool, entry, ws, "floor" if served is behind else held
                if not self.has_slot(ws):
                    del slots[ws.address]
                if pool.ready and served(pool):
                    heapq.heappush(queue, (pool.order(), pool))

    def entry(
        self,
        pool: Pool,
        ts: TaskState,
        known: float | None,
        user: Iterable[str] | None,
        count: int,
    ) -> Entry:
        """A ready task as the pool files it.

        Parameters
        ----------
        known : float, optional
            Mean seconds of tasks like it.
        user : iterable of str, optional
            Workers to which the user restricted it.
        count : int
            Orders tasks of equal priority.
        """
        needs = ts.resource_restrictions
        kind = Kind(
            frozenset(user) if user else None, tuple(sorted(needs.items())) if needs else None
        )
        home, held = self._home(ts, kind)
        moving = held / self.scheduler.bandwidth
        if home is not None and (only := confined(pool, ts)):
            home, moving = (home if home in only else min(only)), math.inf
        if home is not None:
            bytes_at = pool.line.bytes_at
            bytes_at[home] = bytes_at.get(home, 0.0) + held
        cheap = moving < max(CHEAP_SECONDS, CHEAP_FRACTION * self._expected(ts, known))
        return Entry(ts.priority, count, ts, kind, home, moving, cheap)

    def _expected(self, ts: TaskState, known: float | None) -> float:
        """Seconds that a task is expected to compute: as known of its job's tasks, else the
        scheduler's own estimate, whose method is named differently in every second release."""
        if known is not None:
            return known
        if ts.prefix.duration_average >= 0:
            return ts.prefix.duration_average
        if ts.prefix.max_exec_time > 0:
            return 2 * ts.prefix.max_exec_time
        return self.scheduler.UNKNOWN_TASK_DURATION

    def _home(self, ts: TaskState, kind: Kind) -> tuple[str | None, int]:
        """Of the workers that a task may use the one that holds most of its input bytes, and how
        many."""
        held: dict[str, int] = {}
        for dep in ts.dependencies:
            for ws in dep.who_has or ():
                if kind.allows(ws):
                    held[ws.address] = held.get(ws.address, 0) + dep.nbytes
        if not held:
            return None, 0
        home = max(held, key=held.__getitem__)
        return home, held[home]

    def _choose(self, pool: Pool, slots: Slots, move: bool) -> tuple[Entry, WorkerState] | None:
        """The job's first task that a free slot suits, and that slot's worker."""
        everywhere = list(slots.values())
        for kind in list(pool.heaps) if everywhere else ():
            places = everywhere if self.lend else self._strict(pool, kind, everywhere)
            fits = places if kind == ANY else [ws for ws in places if kind.suits(ws)]
            local = [e for ws in fits if (e := pool.first(kind, ws.address))]
            if local:
                entry = min(local)
                return entry, slots[str(entry.home)]
            entry = pool.first(kind, None) or (self._homeless(pool, kind) if move else None)
            if entry is not None and fits:
                mine = pool.line.workers
                return entry, min(fits, key=lambda ws: (ws.address not in mine, load(ws)))
        return None

    def _strict(self, pool: Pool, kind: Kind, places: list[WorkerState]) -> list[WorkerState]:
        """Those of the places that are in the job's set; all of them for tasks that their user
        bound to other workers than the set has: in it they would never run."""
        mine = pool.line.workers
        known = self.scheduler.workers
        if kind != ANY and not any(kind.allows(known[a]) for a in mine if a in known):
            return places
        return [ws for ws in places if ws.address in mine]

    def _homeless(self, pool: Pool, kind: Kind) -> Entry | None:
        """The first task for whose home to wait takes longer than to move its inputs."""
        firsts = (pool.first(kind, home) for home in list(pool.heaps[kind]))
        return min((e for e in firsts if e and self._waits(pool, e)), default=None)

    def _waits(self, pool: Pool, entry: Entry) -> bool:
        """Whether waiting for a task's home is in vain (it left, is paused, or is not in the job's
        strict set) or takes too long."""
        ws = self.scheduler.workers.get(entry.home)
        if ws not in self.scheduler.running or not (self.lend or ws.address in pool.line.workers):
            return True
        return ws.occupancy / ws.nthreads > entry.moving


def behind(pool: Pool) -> bool:
    """Whether a job is behind on its floor."""
    return pool.line.tokens > 0 and within(pool)


def within(pool: Pool) -> bool:
    """Whether a job runs less than its cap."""
    return len(pool.line.running) < pool.line.most


def anyone(pool: Pool) -> bool:
    """Any job: what is left over is lent."""
    return True


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


def has_thread(ws: WorkerState) -> bool:
    """Whether a worker has fewer tasks than threads; seceded tasks hold none."""
    return len(ws.processing) - len(ws.long_running) < ws.nthreads


def load(ws: WorkerState) -> tuple[float, str]:
    """Fewest tasks a thread first; ties by address."""
    return (len(ws.processing) - len(ws.long_running)) / ws.nthreads, ws.address
