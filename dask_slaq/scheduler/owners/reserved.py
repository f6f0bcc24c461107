"""Reservations of a scheduler, kept in its run history."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.reservations import Reservation, Reservations
from dask_slaq.core.safely import safely
from dask_slaq.core.settings import is_number, shown

if TYPE_CHECKING:
    from dask_slaq.run_history import RunStore  # and SQLite

logger = logging.getLogger(__name__)


def local(moment: Any) -> str:
    """Return Unix seconds as a time of this machine, and anything else as it is shown in errors."""
    try:
        return strftime("%Y-%m-%d %H:%M:%S", localtime(moment))
    except (TypeError, ValueError, OverflowError, OSError):
        return shown(moment)


class KeptReservations:
    """Reservations that outlive the scheduler if there is a `store`.

    `threads` returns those of the cluster.
    """

    def __init__(self, store: RunStore | None, threads: Callable[[], int]) -> None:
        self._store, self._threads = store, threads
        self._known = Reservations()
        self.broken: str | None = None
        self._read: asyncio.Future[list[Reservation]] | None = None
        if store is not None:
            self._read = asyncio.get_running_loop().run_in_executor(None, store.reservations)
            self._read.add_done_callback(self._load)

    @safely
    def _load(self, found: asyncio.Future[list[Reservation]]) -> None:
        self._known.put(found.result())

    def fail(self, error: Exception) -> None:
        """Log that the file could not be read."""
        self.broken = f"{type(error).__name__}: {error}"
        logger.error("reservations are not known: %s", self.broken, exc_info=error)

    async def reserve(
        self, owner: object, threads: object, begin: object, end: object
    ) -> dict[str, Any]:
        """Add a reservation, or raise `InvalidSetting`.

        Returns its fields, and as ``note`` that more is reserved than the cluster has now. That is
        allowed, as the cluster may grow: what there is is then divided in proportion.
        """
        await self._loaded()
        now = time()
        if is_number(end) and end <= now:
            raise InvalidSetting(
                f"a reservation must end in the future, not at {local(end)}: it is {local(now)}"
            )
        if is_number(begin) and is_number(end) and begin >= end:
            raise InvalidSetting(
                f"a reservation must end after it begins, not from {local(begin)} to {local(end)}"
            )
        made = self._known.add(owner, threads, begin, end, now)
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
