"""Cluster as `Dispatcher` has to know it: Dask's workers, with the tasks of jobs there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from time import monotonic

from distributed.scheduler import Scheduler, WorkerState

from dask_slaq.core.dispatch import (
    Handover,
    Inputs,
    JobQueue,
    Key,
    Order,
    Pinned,
    Slots,
    TaskConstraints,
)
from dask_slaq.scheduler.pools.durations import input_bytes
from dask_slaq.scheduler.pools.label_limits import Limits
from dask_slaq.scheduler.pools.pinned_gangs import PinnedGang, PinnedGangs
from dask_slaq.scheduler.pools.slots import SentTasks


class ClusterState:
    """What a choice has to know of the cluster. See `dask_slaq.core.dispatch.Cluster`."""

    def __init__(
        self,
        scheduler: Scheduler,
        order: Order,
        sent: SentTasks,
        gangs: PinnedGangs,
        limits: Limits,
    ) -> None:
        self.scheduler, self.order, self.sent = scheduler, order, sent
        self._gangs, self._limits = gangs, limits
        self.draining: Collection[str] = ()  # workers that get no further task

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
        seconds = input_bytes(task.ts) / scheduler.bandwidth
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
