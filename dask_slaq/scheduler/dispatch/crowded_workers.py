"""Workers on which tasks wait, and which jobs may overtake these tasks."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.sent_tasks import load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

    from dask_slaq.scheduler.dispatch.pool import Pool
    from dask_slaq.scheduler.dispatch.slots import Slots

__all__ = [
    "CrowdedWorkers",
    "LowerWorkers",
    "backlog",
    "bound_pools",
    "goes_on_with_others",
    "has_room_first",
]


def has_room_first(slots: Slots, ws: WorkerState) -> bool:
    """Return whether another overtaking task may be sent to a worker: one per thread.

    Parameters
    ----------
    slots : Slots
    ws : distributed.scheduler.WorkerState
    """
    return slots.sent_first(ws.address) < ws.nthreads


def backlog(slots: Slots, ws: WorkerState) -> int:
    """Return the number of tasks that wait on a worker but were not sent through a slot.

    Parameters
    ----------
    slots : Slots
    ws : distributed.scheduler.WorkerState
    """
    return load(ws) - ws.nthreads - slots.waiting(ws.address)


def bound_pools(scheduler: Scheduler, pools: Iterable[Pool]) -> dict[Pool, bool]:
    """Return the pools with tasks that were sent to workers without a slot.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    pools : iterable of Pool

    Returns
    -------
    dict of Pool to bool
        Whether the pool uses no more threads than its share.
    """
    known, found = scheduler.workers, {}
    for pool in pools:
        if pool.passed:
            threads = sum(
                min(len(tasks), known[address].nthreads)
                for address, tasks in pool.passed.items()
                if address in known
            )
            found[pool] = threads + len(pool.running) <= pool.share
    return found


def goes_on_with_others(
    slots: Slots, ws: WorkerState, pool: Pool, bound: Mapping[Pool, bool]
) -> bool:
    """Return whether a worker has a backlog of another pool that is due before `pool`.

    It is due if it uses no more than its share, or has less service. Its tasks can only run on
    their worker.

    Parameters
    ----------
    slots : Slots
    ws : distributed.scheduler.WorkerState
    pool : Pool
    bound : mapping of Pool to bool
        See `bound_pools`.
    """
    due = any(
        ws.address in other.passed
        and other is not pool
        and (within or other.service < pool.service)
        for other, within in bound.items()
    )
    return due and backlog(slots, ws) > 0


class CrowdedWorkers:
    """Workers on which tasks wait and that may be sent a task to overtake them.

    They are ordered by the highest index of the jobs whose tasks wait there, and kept from one
    dispatch to the next, so that hundreds of jobs need not look at hundreds of workers each.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    slots : Slots
    """

    def __init__(self, scheduler: Scheduler, slots: Slots) -> None:
        self._scheduler, self._slots = scheduler, slots
        self._highest_on: dict[str, float] = {}
        self._ordered: list[tuple[float, str]] = []
        self._left_out: set[str] = set()
        self._known = False

    def forget(self) -> None:
        """Forget all workers, since indices of jobs changed."""
        self._known = False

    def begin(self) -> None:
        """Take in all that changed since the last dispatch."""
        if not self._known:
            self._known = True
            self._highest_on.clear()
            self._ordered.clear()
            self._slots.changed.update(self._scheduler.workers)
        self._slots.changed |= self._left_out
        self._left_out.clear()
        self.update()

    def update(self) -> None:
        """Take in what was sent to workers during this dispatch."""
        changed, self._slots.changed = self._slots.changed, set()
        for address in changed - self._left_out:
            self._remove(address)
            ws = self._scheduler.workers.get(address)
            if ws is not None and load(ws) > ws.nthreads:
                self._insert(ws)

    def lowest(self) -> float:
        """Return the lowest index below which no worker is; infinite if there are none."""
        return self._ordered[0][0] if self._ordered else math.inf

    def below(self, index: float = math.nan) -> LowerWorkers:
        """Return the workers on which only tasks of a lower index wait; by default all."""
        return LowerWorkers(self, self._ordered, self._highest_on, index)

    def leave_out(self, address: str) -> None:
        """Leave a worker out for the rest of this dispatch."""
        self._remove(address)
        self._left_out.add(address)

    def open(self, address: str) -> WorkerState | None:
        """Return a worker, or leave it out and return None if no job may overtake there.

        None may if the worker is paused or has left, nor before tasks of a job that is behind on
        its floor. Both may change at any time.
        """
        ws = self._scheduler.workers.get(address)
        behind = any(sent.pool.is_behind() for sent in self._slots.all_waiting(address))
        if not behind and ws is not None and ws in self._scheduler.running:
            return ws
        self.leave_out(address)
        return None

    def _insert(self, ws: WorkerState) -> None:
        sent_first, highest = 0, -math.inf
        for sent in self._slots.all_waiting(ws.address):
            sent_first += sent.rank < 0
            highest = max(highest, sent.pool.index)
        if sent_first < ws.nthreads:
            self._highest_on[ws.address] = highest
            insort(self._ordered, (highest, ws.address))

    def _remove(self, address: str) -> None:
        highest = self._highest_on.pop(address, None)
        if highest is not None:
            del self._ordered[bisect_left(self._ordered, (highest, address))]


class LowerWorkers:
    """View of the crowded workers on which only tasks of a lower index wait.

    Parameters
    ----------
    crowded : CrowdedWorkers
    ordered : list of (index, address)
    highest_on : dict of str to float
    index : float
        All workers if it is nan.
    """

    def __init__(
        self,
        crowded: CrowdedWorkers,
        ordered: list[tuple[float, str]],
        highest_on: dict[str, float],
        index: float,
    ) -> None:
        self._crowded, self._ordered, self._highest_on = crowded, ordered, highest_on
        self._index = index

    def __len__(self) -> int:
        """Return the number of workers, with those not yet found to be left out."""
        if math.isnan(self._index):
            return len(self._ordered)
        return bisect_left(self._ordered, (self._index,))

    def __iter__(self) -> Iterator[WorkerState]:
        """Yield the workers, those with the lowest index first."""
        for _, address in self._ordered[: len(self)]:
            if (ws := self._crowded.open(address)) is not None:
                yield ws

    def __contains__(self, ws: object) -> bool:
        address: str = ws.address  # type: ignore[attr-defined]
        highest = self._highest_on.get(address)
        if highest is None or highest >= self._index:
            return False
        return self._crowded.open(address) is not None
