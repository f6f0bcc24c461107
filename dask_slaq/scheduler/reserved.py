"""Reservations of a scheduler, kept in its memory."""

from __future__ import annotations

import asyncio
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.reservations import Reservation, Reservations

if TYPE_CHECKING:
    from collections.abc import Callable

    from dask_slaq.memory import RunStore

__all__ = ["KeptReservations"]


class KeptReservations:
    """Reservations that outlive the scheduler if there is a `store`.

    `threads` returns those of the cluster.
    """

    def __init__(self, store: RunStore | None, threads: Callable[[], int]) -> None:
        self._store, self._threads = store, threads
        self._known = Reservations()
        self._read: asyncio.Future[list[Reservation]] | None = None
        if store is not None:
            self._read = asyncio.get_running_loop().run_in_executor(None, store.reservations)
            self._read.add_done_callback(self._load)

    def _load(self, found: asyncio.Future[list[Reservation]]) -> None:
        if not found.cancelled() and found.exception() is None:
            self._known.put(found.result())

    async def reserve(
        self, owner: object, threads: object, begin: object, end: object
    ) -> dict[str, Any]:
        """Add a reservation, or raise `InvalidSetting`.

        Returns its fields, and as ``note`` that more is reserved than the cluster has now. That is
        allowed, as the cluster may grow: what there is is then divided in proportion.
        """
        await self._loaded()
        made = self._known.add(owner, threads, begin, end, time())
        self._write()
        most, there = self._known.most(made.begin, made.end), self._threads()
        more = f"{most:g} threads are reserved in that time, and the cluster has {there} now"
        return {**made._asdict(), "note": more if most > there else None}

    async def remove(self, number: object) -> None:
        """Remove a reservation, or raise `InvalidSetting`."""
        await self._loaded()
        self._known.remove(number)
        self._write()

    async def as_dicts(self) -> list[dict[str, Any]]:
        """Return the reservations that have not ended. See `Reservations.as_dicts`."""
        await self._loaded()
        return self._known.as_dicts(time())

    def now(self) -> dict[str, float]:
        """Return the threads that are reserved now, by owner."""
        return self._known.at(time()) if self._known.by_number else {}

    async def _loaded(self) -> None:
        """Wait until those in the file are known, so that none has the number of another one."""
        if self._read is not None:
            await asyncio.wait([self._read])

    def _write(self) -> None:
        if self._store is not None:
            self._store.set_reservations(list(self._known.by_number.values()))
