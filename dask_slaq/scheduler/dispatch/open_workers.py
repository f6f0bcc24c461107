"""Workers that have slots during one dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch.crowded_workers import backlog
from dask_slaq.scheduler.dispatch.sent_tasks import OpenWorker, load
from dask_slaq.scheduler.dispatch.slots import Slots

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from dask_slaq.scheduler.dispatch.pool import Pool

#: Maximum number of workers compared for one choice.
LOOKED_AT = 16


class OpenWorkers:
    """Workers that have slots, ordered by tasks per thread, fewest first.

    Parameters
    ----------
    slots : Slots
    workers : iterable of distributed.scheduler.WorkerState
        Workers to consider; workers without a slot are left out.

    Attributes
    ----------
    by_address : dict of str to OpenWorker
    free : int
        Number of workers with a free thread.
    """

    def __init__(self, slots: Slots, workers: Iterable[WorkerState]) -> None:
        self._slots = slots
        workers = list(workers)
        low = any(slots.is_low(ws) for ws in workers)
        found = [slots.open_worker(ws) for ws in workers] if low else []
        having = [worker for worker in found if worker is not None]
        having.sort(key=lambda worker: (load(worker.ws) / worker.ws.nthreads, worker.ws.address))
        self.by_address = {worker.ws.address: worker for worker in having}
        self.free = sum(worker.free for worker in having)

    def __len__(self) -> int:
        """Return the number of workers that have slots."""
        return len(self.by_address)

    def slots(self) -> int:
        """Return the number of slots: free threads, and one for each thread that soon is."""
        return sum(
            max(worker.ws.nthreads - load(worker.ws), 1) for worker in self.by_address.values()
        )

    def pick(self, pool: Pool, suits: Callable[[OpenWorker], bool]) -> OpenWorker | None:
        """Return the best of the first `LOOKED_AT` workers for a task without a home.

        Workers are preferred if they have a free thread, then if they were sent few of the pool's
        tasks without a home, then if they are in the pool's worker set.

        Parameters
        ----------
        pool : Pool
            Pool of the task.
        suits : callable
            Returns whether the task may take an `OpenWorker`.

        Returns
        -------
        OpenWorker or None
            None if no worker suits. If none of the first `LOOKED_AT` does, the first later one
            that does.
        """
        found: OpenWorker | None = None
        least: tuple[Any, ...] = ()
        made_at, inside = pool.made_at, pool.workers
        for looked, (address, worker) in enumerate(self.by_address.items()):
            if found is not None and looked >= LOOKED_AT:
                break
            made = made_at.get(address, 0.0) / worker.ws.nthreads
            order = (not worker.free, made, address not in inside)
            if (found is None or order < least) and suits(worker):
                found, least = worker, order
                if order == (False, 0.0, False):
                    break
        return found

    def refresh(self, ws: WorkerState) -> OpenWorker | None:
        """Update and return the record of a worker that was sent a task; None without a slot."""
        self._drop(ws.address)
        worker = self._slots.open_worker(ws)
        if worker is not None:
            self.by_address[ws.address] = worker
            self.free += worker.free
        return worker

    def keep_free(self) -> None:
        """Drop workers without a free thread."""
        self.by_address = {a: worker for a, worker in self.by_address.items() if worker.free}

    def leave_to(self, pool: Pool) -> None:
        """Drop workers that would continue with tasks of a pool without being sent any."""
        for address in pool.passed:
            worker = self.by_address.get(address)
            if worker is not None and backlog(self._slots, worker.ws) > 0:
                self._drop(address)

    def _drop(self, address: str) -> None:
        worker = self.by_address.pop(address, None)
        self.free -= worker is not None and worker.free
