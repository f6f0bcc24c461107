"""Workers that have slots during one dispatch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch.sent import Place
from dask_slaq.scheduler.dispatch.slots import Slots, load

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

    from dask_slaq.scheduler.dispatch.pool import Pool

#: Maximum number of places compared for one choice.
LOOKED_AT = 16


class Places:
    """Workers that have slots, ordered by tasks per thread, fewest first.

    Parameters
    ----------
    slots : Slots
    workers : iterable of distributed.scheduler.WorkerState
        Workers to consider; workers without a slot are left out.

    Attributes
    ----------
    by_address : dict of str to Place
    free : int
        Number of places with a free thread.
    """

    def __init__(self, slots: Slots, workers: Iterable[WorkerState]) -> None:
        self._slots = slots
        workers = list(workers)
        low = any(slots.is_low(ws) for ws in workers)
        found = [slots.place(ws) for ws in workers] if low else []
        having = [place for place in found if place is not None]
        having.sort(key=lambda place: (load(place.ws) / place.ws.nthreads, place.ws.address))
        self.by_address = {place.ws.address: place for place in having}
        self.free = sum(place.free for place in having)

    def __len__(self) -> int:
        """Return the number of workers that have slots."""
        return len(self.by_address)

    def pick(self, pool: Pool, suits: Callable[[Place], bool]) -> Place | None:
        """Return the best of the first `LOOKED_AT` places for a task without a home.

        Places are preferred if they have a free thread, then if they were sent few of the pool's
        tasks without a home, then if they are in the pool's worker set.

        Parameters
        ----------
        pool : Pool
            Pool of the task.
        suits : callable
            Returns whether the task may take a `Place`.

        Returns
        -------
        Place or None
            None if no place suits. If none of the first `LOOKED_AT` does, the first later one
            that does.
        """
        found: Place | None = None
        least: tuple[Any, ...] = ()
        made_at, inside = pool.made_at, pool.workers
        for looked, (address, place) in enumerate(self.by_address.items()):
            if found is not None and looked >= LOOKED_AT:
                break
            made = made_at.get(address, 0.0) / place.ws.nthreads
            order = (not place.free, made, address not in inside)
            if (found is None or order < least) and suits(place):
                found, least = place, order
                if order == (False, 0.0, False):
                    break
        return found

    def refresh(self, ws: WorkerState) -> Place | None:
        """Update and return the place of a worker that was sent a task; None without a slot."""
        self._drop(ws.address)
        place = self._slots.place(ws)
        if place is not None:
            self.by_address[ws.address] = place
            self.free += place.free
        return place

    def keep_free(self) -> None:
        """Drop places without a free thread."""
        self.by_address = {a: place for a, place in self.by_address.items() if place.free}

    def leave_to(self, pool: Pool) -> None:
        """Drop workers that would continue with tasks of a pool without being sent any."""
        for address in pool.passed:
            place = self.by_address.get(address)
            if place is not None and self._slots.backlog(place.ws) > 0:
                self._drop(address)

    def _drop(self, address: str) -> None:
        place = self.by_address.pop(address, None)
        self.free -= place is not None and place.free
