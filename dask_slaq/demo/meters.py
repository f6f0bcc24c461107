"""Measurements of the demo on the cluster: compute times of tasks, and bytes moved."""

from __future__ import annotations

from typing import Any, NamedTuple

from distributed import Client
from distributed.diagnostics.plugin import SchedulerPlugin


class Computation(NamedTuple):
    """Run of one task on a worker.

    Attributes
    ----------
    job : str or None
        Job of the task; None for an unowned task.
    start, stop : float
        Unix seconds.
    """

    job: str | None
    start: float
    stop: float


class ComputeLog(SchedulerPlugin):
    """Log of the times at which tasks computed, and of their jobs."""

    name = "slaq-demo-compute"

    def __init__(self) -> None:
        self.computations: list[Computation] = []

    async def start(self, scheduler: Any) -> None:
        self.tasks = scheduler.tasks

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Log the run of a task that has just ended."""
        runs = [r for r in kwargs.get("startstops") or () if r["action"] == "compute"]
        if finish != "memory" or not runs:
            return
        # If a key is computed again, Dask also sends the times of its earlier runs.
        run = max(runs, key=lambda r: r["start"])
        task = self.tasks.get(key)
        job = ((task and task.annotations) or {}).get("slaq_job")
        self.computations.append(Computation(job, run["start"], run["stop"]))

    def take(self) -> list[Computation]:
        """Return the log and start a new one."""
        taken, self.computations = self.computations, []
        return taken


def bytes_moved(client: Client) -> int:
    """Return the number of bytes that workers have sent to each other since they started."""
    sent = client.run(_bytes_sent)
    return sum(sent.values())


def _bytes_sent(dask_worker: Any) -> int:
    return dask_worker.transfer_outgoing_bytes_total
