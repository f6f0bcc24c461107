"""Cluster of a real Dask scheduler and workers for a virtual run."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import tempfile
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import dask
from dask.utils import parse_bytes
from distributed import core
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks.virtual.clock import now

if TYPE_CHECKING:
    from distributed import Client, Scheduler, Worker

#: Turn off what measures the machine instead of the cluster, and what polls the real clock.
CONFIG = {
    "distributed.worker.profile.enabled": False,
    "distributed.worker.memory.target": False,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.admin.system-monitor.interval": "1h",
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.admin.tick.interval": "1h",
    "distributed.admin.tick.limit": "24h",
    "distributed.diagnostics.nvml": False,
    "distributed.diagnostics.computations.max-history": 0,
    "distributed.versions.check": False,
}


#: Transfers of at most this many seconds do not queue: they pass between packets of larger ones.
PASSES = 0.005
#: Bytes that a worker's process is reported to use besides its data.
BARE_PROCESS = 2**27


class Cluster:
    """Scheduler and workers in this process; an asynchronous context manager.

    `threads` and `resources` have one element per worker. A worker sends `bandwidth` bytes per
    second to other workers and to clients, one large transfer after the other; the default is
    Dask's own ``distributed.scheduler.bandwidth``. `config` is Dask's configuration during the run.
    """

    def __init__(
        self,
        threads: Sequence[int] = (1,) * 16,
        *,
        resources: Sequence[Mapping[str, float] | None] | None = None,
        bandwidth: float | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._threads = list(threads)
        self._resources = list(resources) if resources is not None else [None] * len(threads)
        self._config = {**CONFIG, **(config or {})}
        self._bandwidth = bandwidth
        self._stack = contextlib.AsyncExitStack()
        self._names = 0
        self.scheduler: Scheduler
        self.workers: list[Worker] = []

    async def __aenter__(self) -> Cluster:
        from distributed import Scheduler

        self._stack.enter_context(_quiet())
        self._stack.enter_context(_default_clients_as_before())
        directory = self._stack.enter_context(tempfile.TemporaryDirectory())
        # Waiting for a lock file of another process would take real time.
        settings = {**self._config, "temporary-directory": directory}
        # Clients change it; set here, it is restored at the end.
        settings["scheduler"] = dask.config.get("scheduler", None)
        self._stack.enter_context(dask.config.set(settings))
        if self._bandwidth is None:
            self._bandwidth = parse_bytes(dask.config.get("distributed.scheduler.bandwidth"))
        self.scheduler = await Scheduler(
            protocol="inproc://", dashboard=False, dashboard_address=":0"
        )
        self._stack.push_async_callback(self.scheduler.close)
        for threads, resources in zip(self._threads, self._resources, strict=True):
            await self.add_worker(threads, resources)
        return self

    async def __aexit__(self, *exc: object) -> None:
        await _close_clients_of_workers()
        for worker in self.workers:
            await worker.close(nanny=False)
        await self._stack.aclose()
        # This cache holds handlers, and with them the whole cluster.
        if hasattr(core, "_expects_comm"):
            core._expects_comm.cache_clear()

    async def add_worker(self, threads: int = 1, resources: Any = None, **options: Any) -> Worker:
        """Start a worker, and wait until it has joined. `options` go to `distributed.Worker`."""
        from distributed import Worker

        self._names += 1
        worker = Worker(
            self.scheduler.address,
            nthreads=threads,
            resources=resources,
            memory_limit=0,
            dashboard=False,
            dashboard_address=":0",
            **{"name": f"worker-{self._names}", **options},
        )
        _own_memory(worker)
        _take_time_to_send(worker, self._bandwidth)
        await worker
        self.workers.append(worker)
        return worker

    async def kill_worker(self, worker: Worker) -> None:
        """Kill a worker: the scheduler notices only that the connection is lost."""
        self.workers.remove(worker)
        worker.batched_stream.comm.abort()
        await worker.close(nanny=False, executor_wait=False, reason="killed")

    @contextlib.asynccontextmanager
    async def client(self, **options: Any) -> AsyncIterator[Client]:
        """Connect an asynchronous client; `options` go to `distributed.Client`."""
        from distributed import Client

        async with Client(
            self.scheduler.address, asynchronous=True, set_as_default=False, **options
        ) as client:
            yield client


async def _close_clients_of_workers() -> None:
    """Close the clients that workers have made for tasks that submit tasks.

    Dask leaves this to the last worker of the process, which may belong to a later run.
    """
    from distributed import Worker

    clients = list(Worker._initialized_clients)
    Worker._initialized_clients.clear()
    for client in clients:
        client._asynchronous = True
        if client.asynchronous:
            with contextlib.suppress(Exception):
                await client.close()


@contextlib.contextmanager
def _default_clients_as_before() -> Iterator[None]:
    """Restore the default clients at the end.

    A client that a worker has made would otherwise also be the default of a worker with the same
    address in a later run.
    """
    from distributed import client

    before = dict(client._global_clients)
    try:
        yield
    finally:
        client._global_clients.clear()
        client._global_clients.update(before)


def _own_memory(worker: Worker) -> None:
    """Let a worker report memory for its own data only.

    Dask decides by memory where to drop replicas, and all workers and earlier runs share a process.
    """
    recent = worker.monitor.recent

    def own() -> dict[str, float]:
        return {**recent(), "memory": BARE_PROCESS + worker.state.nbytes}

    worker.monitor.recent = own


def _take_time_to_send(worker: Worker, bandwidth: float) -> None:
    """Delay what a worker sends by its size, one transfer after the other.

    Within one process, transfers would otherwise take no time.
    """
    send = worker.handlers["get_data"]
    free_at = 0.0

    async def get_data(comm: Any, keys: Collection[Any], **options: Any) -> Any:
        nonlocal free_at
        tasks = worker.state.tasks
        seconds = sum(tasks[key].nbytes or 0 for key in keys if key in tasks) / bandwidth
        if seconds > PASSES:
            free_at = max(free_at, now()) + seconds
            seconds = free_at - now()
        if seconds > 0:
            await asyncio.sleep(seconds)
        return await send(comm, keys=keys, **options)

    worker.handlers["get_data"] = get_data


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Log only Dask's warnings: its many lines of information would have virtual times."""
    logger = logging.getLogger("distributed")
    level = logger.level
    logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        logger.setLevel(level)


class Transitions(SchedulerPlugin):
    """Scheduler plugin that counts and digests transitions of tasks.

    Runs with equal digests had the same transitions on the same workers at the same times.
    """

    name = "virtual-transitions"

    def __init__(self) -> None:
        self.count = 0
        self._digest = hashlib.sha256()

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add one transition. See `distributed.SchedulerPlugin`."""
        self.count += 1
        self._digest.update(f"{now()!r} {key!r} {start} {finish} {kwargs.get('worker')}\n".encode())

    @property
    def digest(self) -> str:
        """Hexadecimal digest of all transitions so far."""
        return self._digest.hexdigest()
