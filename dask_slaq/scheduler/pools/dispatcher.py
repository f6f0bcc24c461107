"""Dispatch on the scheduler: observe the workers, `decide`, and have the choices sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic
from typing import TYPE_CHECKING

from dask_slaq.core.dispatch import Inputs, Order, Pinned, Place, Turn, decide
from dask_slaq.scheduler.pools.slots import has_thread, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.core.dispatch import Choice, Contender, Entry, Key, TaskKind
    from dask_slaq.scheduler.pools.gangs import Gang, Gangs
    from dask_slaq.scheduler.pools.label_limits import Limits
    from dask_slaq.scheduler.pools.slots import SentTasks


class Dispatcher:
    """Chooser of tasks for slots. `send` returns those of some choices that Dask refused."""

    def __init__(
        self,
        scheduler: Scheduler,
        order: Order,
        sent: SentTasks,
        send: Callable[[Sequence[Choice]], Collection[Choice]],
        gangs: Gangs,
        limits: Limits,
    ) -> None:
        self.scheduler, self.order, self.sent = scheduler, order, sent
        self._send, self._gangs, self._limits = send, gangs, limits
        # Workers with a free thread that the last dispatch left over, by address. They are open
        # until something changes there.
        self._spare: dict[str, Place] = {}
        self.draining: Collection[str] = ()  # workers that get no further task
        self.unserved: set[str] = set()  # workers at which the next dispatch has to look again
        self.again: dict[str, float] = {}  # seconds until others may be sent a task
        self.kept = False  # whether it kept slots for a job that is about to come back
        self.later = math.inf  # seconds until a task may move to a thread that it left over

    def is_open(self, ws: WorkerState) -> bool:
        """Return whether a worker may get tasks."""
        return ws in self.scheduler.running and ws.address not in self.draining

    @property
    def running(self) -> set[WorkerState]:
        """Workers that may get tasks."""
        if not self.draining:
            return self.scheduler.running
        return {ws for ws in self.scheduler.running if ws.address not in self.draining}

    def key(self, pool: Contender) -> Key | None:
        """Return the sort key of a job, lowest first; None if it may not be served."""
        return self.order.key(pool, monotonic())

    def slot_in(self, address: str) -> float:
        """Return the seconds until a worker may be sent a ready task; infinite if it may not."""
        ws = self.scheduler.workers.get(address)
        return math.inf if ws is None else self.order.slot_in(self.sent.place(ws, monotonic()))

    @property
    def has_spare(self) -> bool:
        """Whether the last dispatch left a free thread over."""
        known = self.scheduler.workers
        return bool(self._spare) or any(has_thread(known[a]) for a in self.unserved if a in known)

    def forget_worker(self, address: str) -> None:
        """Forget a worker that left."""
        self._spare.pop(address, None)

    def dispatch(self, addresses: Iterable[str]) -> None:
        """Send tasks to those of some workers that have slots, until slots or tasks run out."""
        scheduler, order, now = self.scheduler, self.order, monotonic()
        seen: dict[str, Place] = {}
        open_: list[Place] = []
        for address in addresses:
            self._spare.pop(address, None)
            ws = scheduler.workers.get(address)
            if ws is None or not self.is_open(ws):
                continue
            place = seen[address] = self.sent.place(ws, now)
            if place.has_thread or (order.wants(place) and place.has_slot()):
                open_.append(place)
        running = {ws.address for ws in self.running} if self._spare else ()
        for address, place in self._spare.items():  # nothing changed there
            if address in running:
                place.now = now
                open_.append(place)
        open_.sort(key=lambda place: (place.load / place.nthreads, place.address))
        turn = self._turn(open_, seen, now)
        choices = decide(order, turn)
        refused = self._send(choices) if choices else ()
        touched = {choice.address for choice in choices}
        self.kept, self.later, self.unserved = turn.kept, turn.later, set()
        if refused:  # Dask or a hook failed, and would again
            turn.unserved.update(place.address for place in open_)
        self._spare = {}
        for place in open_:
            if place.address in turn.unserved:
                if place.has_thread and place.address not in touched:
                    self._spare[place.address] = place
                else:
                    self.unserved.add(place.address)
        self.again = {
            address: seconds
            for address in (seen.keys() | touched) - turn.unserved
            if (seconds := order.slot_in(turn.place(address) or seen[address])) > 0
        }

    def _turn(self, open_: Sequence[Place], seen: dict[str, Place], now: float) -> Turn:
        """Return what `decide` has to know of the cluster."""
        limits = self._limits
        scheduler, places = self.scheduler, {**seen, **{p.address: p for p in open_}}

        def place_of(address: str) -> Place | None:
            found = places.get(address)
            if found is None:
                ws = scheduler.workers.get(address)
                if ws is None or not self.is_open(ws):
                    return None
                found = places[address] = self.sent.place(ws, now)
            return found

        def free(kinds: Collection[TaskKind]) -> tuple[int, int]:
            fits = [ws for ws in self.running if any(kind.allows(ws) for kind in kinds)]
            there = (places[ws.address].load if ws.address in places else load(ws) for ws in fits)
            idle = sum(max(ws.nthreads - n, 0) for ws, n in zip(fits, there, strict=True))
            return idle, sum(ws.nthreads for ws in fits)

        def inputs(entry: Entry) -> Inputs:
            needed = entry.ts.dependencies
            seconds = sum(dep.get_nbytes() for dep in needed) / scheduler.bandwidth
            at = {ws.address for dep in needed for ws in dep.who_has or ()}
            workers = scheduler.workers
            return Inputs(seconds, at, lambda a: scheduler.get_comm_cost(entry.ts, workers[a]))

        return Turn(
            {place.address: place for place in open_},
            now,
            scheduler.total_nthreads,
            len(self.running),
            place_of,
            free,
            inputs,
            limits.room_in_pools,
            limits.runs,
            self._pinned(now) if self._gangs.of_task else {},
        )

    def _pinned(self, now: float) -> dict[Contender, list[Pinned]]:
        """Return the gangs that are complete, by job."""
        found: dict[Contender, list[Pinned]] = {}
        for gang in self._gangs.waiting():
            if gang.complete(now):
                ready, threads = gang.pool.ready, self.threads_of(gang)
                members = [
                    (ready[ts], address, threads[ts])
                    for ts, address in gang.members.items()
                    if ts in ready
                ]
                found.setdefault(gang.pool, []).append(Pinned(members))
        return found

    def threads_of(self, gang: Gang) -> dict[object, int]:
        """Return the threads that each member of a gang uses."""
        workers = self.scheduler.workers
        return {
            ts: gang.threads[ts] or (workers[a].nthreads if a in workers else 1)
            for ts, a in gang.members.items()
        }
