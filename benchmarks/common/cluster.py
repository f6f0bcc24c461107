"""A cluster and a policy to run jobs on: plain Dask, or Dask with the plugin.

Under the policy `none` nothing of `dask_slaq` is imported, registered or called.
"""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import dask
from distributed import Client, LocalCluster
from distributed.diagnostics.plugin import SchedulerPlugin

__all__ = [
    "another_client",
    "bytes_moved",
    "job_block",
    "local_cluster",
    "meter",
    "plugin",
    "register",
]

#: In-process workers share one interpreter: leave out what burdens it and measures nothing. And
#: drivers that make their clients current at the same time each put back, when they end, what they
#: found as the scheduler: that must be the same for all.
QUIET = {
    "scheduler": "dask.distributed",
    "distributed.worker.profile.enabled": False,
    "distributed.admin.system-monitor.interval": "5s",
    "distributed.admin.tick.interval": "100ms",
    "distributed.admin.tick.limit": "1h",
}


@contextmanager
def local_cluster(
    workers: int, *, processes: bool = False
) -> Iterator[tuple[LocalCluster, Client]]:
    """A fresh cluster of one-thread workers, and a client of it."""
    gc.collect()
    with (
        dask.config.set(QUIET),
        LocalCluster(
            n_workers=workers,
            threads_per_worker=1,
            processes=processes,
            dashboard_address=":0",
            scheduler_kwargs={"dashboard": False},
            memory_limit=0,
        ) as cluster,
        another_client(cluster) as client,
    ):
        client.wait_for_workers(workers, timeout=60)
        yield cluster, client


def another_client(cluster: LocalCluster) -> Client:
    """A client of its own for a driver, on the cluster's event loop."""
    return Client(cluster.scheduler_address, loop=cluster.loop, set_as_default=False)


def register(client: Client, policy: str, *, predictor: Any = None, **settings: Any) -> None:
    """Put the plugin with `policy` on the scheduler; `none` leaves Dask as it is."""
    made = plugin(policy, predictor=predictor, **settings)
    if made is not None:
        client.register_plugin(made)


def plugin(policy: str, *, predictor: Any = None, **settings: Any) -> Any:
    """Make the plugin with `policy`. Returns None for `none`."""
    if policy == "none":
        return None
    from dask_slaq import SlaqPlugin

    if predictor is not None:
        settings["predictor"] = predictor
    return SlaqPlugin(policy=policy, **settings)


def job_block(policy: str, name: str, client: Client, max_iter: int | None = None) -> Any:
    """Make the block in which a driver trains, for `with` or ``async with``.

    Returns
    -------
    context manager
        Gives what has `report`, for the job's losses.
    """
    if policy == "none":
        return _PlainBlock()
    import dask_slaq as slaq

    return slaq.job(name, max_iter=max_iter, client=client)


class _PlainBlock:
    """A block under plain Dask, which has no use for losses."""

    def report(self, loss: float) -> None:
        """Drop a loss."""

    def __enter__(self) -> _PlainBlock:
        return self

    def __exit__(self, *exc: object) -> None:
        """Nothing was opened."""

    async def __aenter__(self) -> _PlainBlock:
        return self

    async def __aexit__(self, *exc: object) -> None:
        """Nothing was opened."""


class Meter(SchedulerPlugin):
    """Counts the seconds that workers spend in tasks; there under every policy, plain Dask too.

    A worker of one thread that is asked again for a result it still holds reports the old
    times again, so only time after the last known stop of that worker is counted.
    """

    name = "benchmark-meter"

    def __init__(self) -> None:
        self.seconds = 0.0
        self.tasks = 0
        self._until: dict[Any, float] = {}

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Add up the compute of a task that ended."""
        worker = kwargs.get("worker")
        for spell in kwargs.get("startstops") or ():
            if spell["action"] == "compute":
                until = self._until.get(worker, 0.0)
                if spell["stop"] > until:
                    self.tasks += 1
                    self.seconds += spell["stop"] - max(spell["start"], until)
                    self._until[worker] = spell["stop"]


class Lateness(threading.Thread):
    """How late this process wakes from a sleep: on a busy machine sleeps emulate compute badly.

    Attributes
    ----------
    mean : float
        Seconds.
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
    """Put a meter on the scheduler of a local or virtual cluster; it counts from now on."""
    found = Meter()
    cluster.scheduler.add_plugin(found, name=found.name)
    return found


def bytes_moved(client: Client) -> int:
    """Bytes that the workers have sent, nearly all of it to each other."""
    return sum(client.run(_sent).values())


def _sent(dask_worker: Any) -> int:
    return int(dask_worker.transfer_outgoing_bytes_total)
