"""Filling of slots: soon after what frees one or makes a task ready, the first tasks are sent."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import Dispatcher, Inputs, Pinned, constants
from dask_slaq.scheduler.event_loop import Timers

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.core.dispatch import Handover, JobQueue, Key, Order, Slots, TaskConstraints
    from dask_slaq.scheduler.pools.label_limits import Limits
    from dask_slaq.scheduler.pools.pinned_gangs import PinnedGang, PinnedGangs
    from dask_slaq.scheduler.pools.slots import SentTasks


class DispatchRounds:
    """Schedule of rounds, and what `Dispatcher` has to know of the cluster.

    `send` sends one choice, and returns whether Dask took it. `fill` is what the event loop calls,
    by `enter`; it calls `fill_now`.
    """

    send: Callable[[Handover], bool]

    def __init__(
        self,
        scheduler: Scheduler,
        order: Order,
        sent: SentTasks,
        gangs: PinnedGangs,
        limits: Limits,
        fill: Callable[[], object],
        enter: Callable[..., Any],
    ) -> None:
        self.scheduler, self.order, self.sent = scheduler, order, sent
        self._gangs, self._limits = gangs, limits
        self._fill, self._enter = fill, enter
        self.dispatcher = Dispatcher(order, self, sent.ahead)
        self.look_at: set[str] = set()  # workers where something has changed
        self.draining: Collection[str] = ()  # workers that get no further task
        self._timers = Timers(partial(enter, self._rang))
        self._next: asyncio.Handle | None = None

    # When

    @property
    def due(self) -> bool:
        """Whether a round is scheduled."""
        return self._next is not None

    def soon(self) -> None:
        """Schedule a round after the pending events, if any task waits for a slot."""
        if self._next is None and self.order.waiting.pools:
            self._next = asyncio.get_running_loop().call_soon(self._enter, self._now)

    def look_in(self, worker: str, seconds: float) -> None:
        """Schedule a round that looks at a worker, or at none if it is "", after a delay."""
        self._timers.set(monotonic() + seconds, worker)

    def cancel(self) -> None:
        """Cancel all that is scheduled for later."""
        self._timers.cancel()

    def forget_worker(self, address: str) -> None:
        """Forget a worker that left."""
        self.look_at.discard(address)
        self._timers.forget(address)
        self.dispatcher.close(address)
        self.sent.forget(address)

    def _rang(self, worker: str) -> None:
        if worker:
            if not self.opens(worker):
                return
            self.look_at.add(worker)  # again, as more may happen there until the round
        self.soon()

    def _now(self) -> None:
        self._next = None
        if self.look_at or self.dispatcher.free or self.dispatcher.soon:
            self._fill()

    def fill_now(self) -> None:
        """Send tasks to workers with slots, until slots or tasks run out."""
        dispatcher, now, workers = self.dispatcher, monotonic(), self.scheduler.workers
        for address in self.look_at:
            ws = workers.get(address)
            if ws is None or not self.may_get_tasks(ws):
                dispatcher.close(address)
            else:
                dispatcher.look(self.sent.on(ws), now)
        self.look_at.clear()
        for choice in dispatcher.choices(now):
            ws = workers.get(choice.worker)
            if ws is None or not self.may_get_tasks(ws):  # it stopped in this turn of the loop
                dispatcher.close(choice.worker)
                self.soon()
                break
            if not self.send(choice):  # Dask or a hook failed, and would again
                break
        for slots, seconds in dispatcher.opens_in.items():
            if self._wants(slots):
                self._timers.move(now + seconds, slots.address)
        dispatcher.opens_in.clear()
        if dispatcher.has_kept_slots:
            self.look_in("", constants.BACK_WITHIN)
        if self.order.tokens_at < math.inf:
            self._timers.set(max(self.order.tokens_at, now), "")
            self.order.tokens_at = math.inf

    def opens(self, address: str) -> bool:
        """Look at a worker. Returns whether it may be sent a task; an alarm tells when it may."""
        ws = self.scheduler.workers.get(address)
        if ws is None or not self.may_get_tasks(ws):
            return True
        slots, now = self.sent.on(ws), monotonic()
        self.dispatcher.look(slots, now)
        seconds = self.dispatcher.opens_in.pop(slots, 0.0)
        if seconds and self._wants(slots):
            self._timers.move(now + seconds, address)
        return address in self.dispatcher.free or address in self.dispatcher.soon

    def _wants(self, slots: Slots) -> bool:
        """Return whether a task may wait for a thread of a worker: not only too many roots."""
        index = self.order.waiting
        if index.movable or index.scarce or slots.address in index.at:
            return True
        return slots.load < max(self.order.saturation * slots.nthreads, 1)

    # What a choice has to know

    def may_get_tasks(self, ws: WorkerState) -> bool:
        """Return whether a worker may get tasks."""
        return ws in self.scheduler.running and ws.address not in self.draining

    @property
    def running(self) -> set[WorkerState]:
        """Workers that may get tasks."""
        if not self.draining:
            return self.scheduler.running
        return {ws for ws in self.scheduler.running if ws.address not in self.draining}

    @property
    def threads(self) -> int:
        """Threads of all workers."""
        return self.scheduler.total_nthreads

    @property
    def workers(self) -> int:
        """Number of workers that may get tasks."""
        return len(self.running)

    def key(self, pool: JobQueue) -> Key | None:
        """Return the sort key of a job, lowest first; None if it may not be served."""
        return self.order.key(pool, monotonic())

    def slots(self, address: str) -> Slots | None:
        """Return the slots of a worker that may get tasks, as of now; None for others."""
        ws = self.scheduler.workers.get(address)
        return None if ws is None or not self.may_get_tasks(ws) else self.sent.on(ws)

    def busy(self) -> Iterable[Slots]:
        """Return the slots of workers with tasks of jobs."""
        return self.sent.busy()

    def occupancy(self, address: str) -> float:
        """Return the seconds that all tasks on a worker take, as Dask guesses."""
        ws = self.scheduler.workers.get(address)
        return 0.0 if ws is None else ws.occupancy

    def idle(self, constraints: Collection[TaskConstraints]) -> tuple[int, int]:
        """Return the free threads of workers that meet any constraints, and all of theirs."""
        fits = [ws for ws in self.running if any(each.allows(ws) for each in constraints)]
        return sum(self.sent.on(ws).free for ws in fits), sum(ws.nthreads for ws in fits)

    def inputs(self, task: Handover) -> Inputs:
        """Return what it takes to move the inputs of a task."""
        scheduler, needed = self.scheduler, task.ts.dependencies
        seconds = sum(dep.get_nbytes() for dep in needed) / scheduler.bandwidth
        at = {ws.address for dep in needed for ws in dep.who_has or ()}
        workers = scheduler.workers
        return Inputs(seconds, at, lambda a: scheduler.get_comm_cost(task.ts, workers[a]))

    def free(self, label: str | None) -> float:
        """Return how many more tasks of a label may run."""
        return self._limits.free_in_pools(label)

    def runs(self, label: str) -> bool:
        """Return whether a task of a label runs."""
        return self._limits.runs(label)

    def pinned(self, now: float) -> Mapping[JobQueue, list[Pinned]]:
        """Return the gangs of pinned tasks that are complete, by job."""
        found: dict[JobQueue, list[Pinned]] = {}
        for gang in self._gangs.waiting() if self._gangs.of_task else ():
            if gang.complete(now):
                ready, threads = gang.pool.ready, self.threads_of(gang)
                members = [
                    (ready[ts], address, threads[ts])
                    for ts, address in gang.members.items()
                    if ts in ready
                ]
                found.setdefault(gang.pool, []).append(Pinned(members))
        return found

    def threads_of(self, gang: PinnedGang) -> dict[object, int]:
        """Return the threads that each member of a gang uses."""
        workers = self.scheduler.workers
        return {
            ts: gang.threads[ts] or (workers[a].nthreads if a in workers else 1)
            for ts, a in gang.members.items()
        }
