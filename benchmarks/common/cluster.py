"""Clusters and job blocks for benchmarks, under plain Dask or with the plugin.

Under the policy `none`, nothing of `dask_slaq` is imported, registered or called. Under `idle`, the
plugin is registered, but nothing is a job. `strict` is the default policy with strict worker sets,
as is `NAME-strict` another one.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

STRICT, DEFAULT = "strict", "first-to-target"
#: Configuration of the clusters. In-process workers share one interpreter, so services that only
#: add load are off. `scheduler` is set because concurrent drivers make their clients current and
#: later restore the previous value, which must be the same for all of them.
QUIET = {
    "scheduler": "dask.distributed",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "100ms",
    "distributed.admin.tick.limit": "1h",
}


@contextmanager
def local_cluster(
    workers: int, *, threads: int = 1, processes: bool = False, **options: Any
) -> Iterator[tuple[LocalCluster, Client]]:
    """Start a fresh cluster, with a client. `processes`: workers are processes of their own.

    `options` are those of workers.
    """
    gc.collect()
    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=threads,
            processes=processes,
            dashboard_address=":0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,
            **options,
        ) as cluster,
        another_client(cluster) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        yield cluster, client


def another_client(cluster: LocalCluster) -> Client:
    """Make a separate client for a driver, on the cluster's event loop."""
    return Client(cluster.scheduler_address, loop=cluster.loop, set_as_default=False)


def register(client: Client, policy: str, *, predictor: Any = None, **settings: Any) -> None:
    """Register the plugin on the scheduler, unless the policy is `none`. See `plugin`."""
    made = plugin(policy, predictor=predictor, **settings)
    if made is not None:
        client.register_plugin(made)


def plugin(policy: str, *, predictor: Any = None, **settings: Any) -> Any:
    """Make the plugin, or None for plain Dask, which has the policy `none`.

    The settings, and a predictor in place of the plugin's own, are arguments of `SlaqPlugin`.
    """
    if policy == "none":
        return None
    from dask_slaq import SlaqPlugin

    if policy.endswith(STRICT):
        settings["lend"] = False
        policy = policy.removesuffix(STRICT).removesuffix("-") or DEFAULT

    if predictor is not None:
        settings["predictor"] = predictor
    return SlaqPlugin(policy=None if policy == "idle" else policy, **settings)


def job_block(
    policy: str,
    name: str,
    client: Client,
    max_iter: int | None = None,
    kind: Mapping[str, Any] | None = None,
) -> Any:
    """Make the block in which a driver trains, for ``with`` or ``async with``.

    Its value has a method `report` for the job's losses, which ignores them under the policy
    `none`.
    """
    if policy in ("none", "idle"):
        return _PlainBlock()
    import dask_slaq as slaq

    return slaq.job(name, max_iter=max_iter, kind=kind, client=client)


class _PlainBlock:
    """Block under plain Dask, which ignores losses."""

    def report(self, loss: float) -> None:
        """Ignore a loss."""

    def __enter__(self) -> _PlainBlock:
        return self

    def __exit__(self, *exc: object) -> None:
        """Do nothing."""

    async def __aenter__(self) -> _PlainBlock:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Do nothing."""


class Meter(SchedulerPlugin):
    """Counter of the seconds that workers spend in tasks, under any policy and plain Dask.

    A worker that is sent a task again whose result it still holds reports the old times again. So
    only time after the last known stop of that (one-thread) worker counts.
    """

    name = "benchmark-meter"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tasks = 0
        self._until: dict[Any, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add the compute time of a finished task."""
        worker = kwargs.get("worker")
        for spell in kwargs.get("startstops") or ():
            if spell["action"] == "compute":
                until = self._until.get(worker, 0.0)
                if spell["stop"] > until:
                    self.tasks += 1
                    self.seconds += spell["stop"] - max(spell["start"], until)
                    self._until[worker] = spell["stop"]


class Inside(SchedulerPlugin):
    """Counter of the tasks of jobs that are sent: into the worker set of their job, or outside.

    `planned` are those inside the set of the last decision, before any grant moved.
    """

    name = "benchmark-inside"

    def __init__(self, scheduler: Any) -> None:
        self.scheduler = scheduler
        self.sent = self.inside = self.planned = 0

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a task that was sent."""
        if finish != "processing" or (slaq := self.scheduler.plugins.get("slaq")) is None:
            return
        pool = slaq.pools.records.pool_of.get(key)
        if pool is not None and pool.reports:
            address = self.scheduler.tasks[key].processing_on.address
            self.sent += 1
            self.inside += address in pool.granted.workers
            self.planned += address in pool.granted.planned

    @property
    def parts(self) -> tuple[float, float] | None:
        """Shares of the tasks that were sent inside their set, and inside the planned one."""
        return (self.inside / self.sent, self.planned / self.sent) if self.sent else None


class Lateness(threading.Thread):
    """Thread that measures the mean seconds by which this process wakes late from a sleep.

    Sleeps emulate compute, which works badly on a busy machine.
    """

    def __init__(self) -> None:
        super().__init__(name="benchmark-lateness", daemon=True)
        self.mean = 0.0
        self._count = 0
        self._ended = threading.Event()

    def run(self) -> None:
        while not self._ended.is_set():
            begin = time.perf_counter()
            time.sleep(0.05)
            self._count += 1
            self.mean += (time.perf_counter() - begin - 0.05 - self.mean) / self._count

    def __enter__(self) -> Lateness:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._ended.set()
        self.join()


def meter(cluster: Any) -> Meter:
    """Attach a meter to the scheduler of a local or virtual cluster."""
    found = Meter()
    cluster.scheduler.add_plugin(found, name=found.name)
    return found


def inside(cluster: Any) -> Inside:
    """Count tasks in and outside of worker sets, once the plugin is registered."""
    found = Inside(cluster.scheduler)
    cluster.scheduler.add_plugin(found, name=found.name)
    return found


def bytes_moved(client: Client) -> int:
    """Return the bytes that the workers have sent, nearly all to each other."""
    return sum(client.run(_sent).values())


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)
