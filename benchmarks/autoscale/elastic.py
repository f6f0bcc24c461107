"""Cluster whose workers come some time after they were asked for, under Dask's own `Adaptive`."""

from __future__ import annotations

import asyncio
from typing import Any

from distributed.core import Status, rpc
from tornado.ioloop import IOLoop

from benchmarks import virtual


class Elastic:
    """What `distributed.deploy.Adaptive` needs of a cluster, and the account of its workers.

    A worker computes `start_up` seconds after it was asked for, and is paid for from then on until
    it is given back.
    """

    status = Status.running

    def __init__(self, cluster: virtual.Cluster, start_up: float, threads: int) -> None:
        self._cluster, self._start_up, self._threads = cluster, start_up, threads
        self.loop = IOLoop.current()
        self.scheduler_comm: Any = rpc(cluster.scheduler.address)
        self.starts = 0
        self.paid = 0.0  # worker-seconds of those that are gone
        self._since: dict[str, float] = {}  # when each worker that is there was asked for
        self._coming: dict[str, asyncio.Task[None]] = {}

    @property
    def plan(self) -> set[str]:
        """Names of the workers that there are to be."""
        return set(self._since)

    requested = plan

    @property
    def observed(self) -> set[str]:
        """Names of the workers that have come."""
        return {str(ws.name) for ws in self._cluster.scheduler.workers.values()}

    def worker_seconds(self) -> float:
        """Return the worker-seconds until now."""
        return self.paid + sum(virtual.now() - since for since in self._since.values())

    def scale(self, count: int) -> None:
        """Ask for workers until there are to be `count`."""
        while len(self._since) < count:
            self.starts += 1
            name = f"elastic-{self.starts}"
            self._since[name] = virtual.now()
            self._coming[name] = asyncio.ensure_future(self._come(name))

    async def _come(self, name: str) -> None:
        await asyncio.sleep(self._start_up)
        worker = await self._cluster.add_worker(self._threads, name=name)
        del self._coming[name]
        if name not in self._since:  # given back meanwhile
            await worker.close(nanny=False)

    async def scale_down(self, names: Any) -> None:
        """Give some workers back."""
        for name in names:
            if (since := self._since.pop(str(name), None)) is not None:
                self.paid += virtual.now() - since
            if (coming := self._coming.pop(str(name), None)) is not None:
                coming.cancel()
        gone = [worker for worker in self._cluster.workers if worker.name in set(names)]
        for worker in gone:
            self._cluster.workers.remove(worker)
            await worker.close(nanny=False)

    async def close(self) -> None:
        """Stop what is coming."""
        for coming in self._coming.values():
            coming.cancel()
        await self.scheduler_comm.close_rpc()
