"""Workers on which tasks wait, and which jobs may overtake these tasks."""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.slots import load

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from dask_slaq.scheduler.dispatch.slots import Slots

__all__ = ["CrowdedWorkers", "has_room_first"]

#: Highest index that waits on a worker, and the worker, with its address to order them.
_Waiting = tuple[float, str, "WorkerState"]


def has_room_first(slots: Slots, ws: WorkerState) -> bool:
    """Return whether another overtaking task may be sent to a worker: one per thread.

    Parameters
    ----------
    slots : Slots
    ws : distributed.scheduler.WorkerState
    """
    return slots.sent_first(ws.address) < ws.nthreads


class CrowdedWorkers:
    """Workers on which tasks wait and that may be sent a task to overtake them.

    They are ordered by the highest index of the jobs whose tasks wait there, so that hundreds of
    jobs need not look at hundreds of workers each. Valid during one dispatch.

    Parameters
    ----------
    slots : Slots
    """

    def __init__(self, slots: Slots) -> None:
        self._slots = slots
        found = ((self._highest(ws), ws) for ws in slots.queueing())
        self._highest_on = {ws: highest for highest, ws in found if highest is not None}
        self._ordered: list[_Waiting] = sorted(
            (highest, ws.address, ws) for ws, highest in self._highest_on.items()
        )

    def below(self, index: float = math.nan) -> LowerWorkers:
        """Return the workers on which only tasks of a lower index wait; by default all."""
        return LowerWorkers(self._ordered, self._highest_on, index)

    def update(self, ws: WorkerState) -> None:
        """Take in that a worker was sent a task."""
        self.remove(ws)
        if load(ws) > ws.nthreads and (highest := self._highest(ws)) is not None:
            self._highest_on[ws] = highest
            insort(self._ordered, (highest, ws.address, ws))

    def remove(self, ws: WorkerState) -> None:
        """Leave a worker out."""
        highest = self._highest_on.pop(ws, None)
        if highest is not None:
            del self._ordered[bisect_left(self._ordered, (highest, ws.address))]

    def _highest(self, ws: WorkerState) -> float | None:
        """Return the highest index that waits on a worker, or None if it may be sent no more.

        It is infinite if a job that is behind on its floor waits there, which none may overtake.
        """
        sent_first, highest = 0, -math.inf
        for sent in self._slots.all_waiting(ws.address):
            sent_first += sent.rank < 0
            highest = max(highest, math.inf if sent.pool.is_behind() else sent.pool.index)
        return highest if sent_first < ws.nthreads else None


class LowerWorkers:
    """View of the crowded workers on which only tasks of a lower index wait.

    Parameters
    ----------
    ordered : list of tuple
    highest_on : dict of WorkerState to float
    index : float
        All workers if it is nan.
    """

    def __init__(
        self, ordered: list[_Waiting], highest_on: dict[WorkerState, float], index: float
    ) -> None:
        self._ordered, self._highest_on, self._index = ordered, highest_on, index

    def __len__(self) -> int:
        """Return the number of workers."""
        if math.isnan(self._index):
            return len(self._ordered)
        return bisect_left(self._ordered, (self._index,))

    def __iter__(self) -> Iterator[WorkerState]:
        """Yield the workers, those with the lowest index first."""
        for row in range(len(self)):
            yield self._ordered[row][2]

    def __contains__(self, ws: object) -> bool:
        highest = self._highest_on.get(ws)  # type: ignore[call-overload]
        return highest is not None and not highest >= self._index
