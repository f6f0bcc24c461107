"""Speeds of workers over restarts of the scheduler: the memory keeps them by host."""

from __future__ import annotations

import asyncio
import math
from time import monotonic, time
from typing import TYPE_CHECKING

from dask_slaq.core.safely import safely

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.core.runtime import WorkerSpeeds
    from dask_slaq.memory import RunStore

__all__ = ["HostSpeeds"]

#: Seconds between two times at which speeds are written.
PERIOD = 60.0


class HostSpeeds:
    """Speeds of the hosts of a scheduler's workers, in its store if there is one.

    They are read when the scheduler starts. What is observed soon outweighs them.
    """

    def __init__(self, scheduler: Scheduler, speeds: WorkerSpeeds, store: RunStore | None) -> None:
        self.broken: str | None = None  # the error after which nothing is kept any more
        self._scheduler, self._speeds, self._store = scheduler, speeds, store
        self._known: dict[str, tuple[float, float]] = {}
        self._learned, self._written = 0, monotonic()
        self._hosts = {address: ws.host for address, ws in scheduler.workers.items()}
        if store is not None:
            found = asyncio.get_running_loop().run_in_executor(None, store.hosts)
            found.add_done_callback(self._load)

    def fail(self, error: Exception) -> None:
        """Keep nothing any more."""
        self.broken = f"{type(error).__name__}: {error}"

    @safely
    def _load(self, found: asyncio.Future[dict[str, tuple[float, float]]]) -> None:
        self._known = found.result()
        for address, host in self._hosts.items():
            self._recall(address, host)

    @safely
    def joined(self, address: str) -> None:
        """Begin with what is known of the host of a worker that joined."""
        host = self._hosts[address] = self._scheduler.workers[address].host
        self._recall(address, host)

    def _recall(self, address: str, host: str) -> None:
        known = self._known.get(host)
        if known is not None and address not in self._speeds.workers:
            self._speeds.remember(address, *known)

    @safely
    def left(self, address: str) -> None:
        """Write what is known of a worker that left."""
        self.write(now=True)
        self._hosts.pop(address, None)

    @safely
    def write(self, *, now: bool = False) -> None:
        """Write what was learned, `now` or when it is due. Does not wait for it."""
        new = self._speeds.learned > self._learned
        if self._store is None or not new or not (now or monotonic() > self._written + PERIOD):
            return
        self._learned, self._written = self._speeds.learned, monotonic()
        by_host: dict[str, list[tuple[float, float]]] = {}
        for address, known in self._speeds.workers.items():
            if (host := self._hosts.get(address)) is not None:
                by_host.setdefault(host, []).append((math.log(known.estimate), known.error))
        self._known.update((host, _together(each)) for host, each in by_host.items())
        self._store.add_hosts({host: self._known[host] for host in by_host}, time())


def _together(each: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the factor of a host, and its error, from logarithms of those of its workers."""
    mean = sum(value for value, _ in each) / len(each)
    apart = max(abs(value - mean) for value, _ in each)
    return math.exp(mean), max(apart, *(error for _, error in each))
