"""Scheduler preload that registers `SlaqPlugin` and opens a job for each client that connects.

With it, the tests of a library that starts its own schedulers and clients run as jobs, unmodified.
SLAQ_SUITE sets whether a client's job is ``alone`` or ``contended``. Notes on the plugin's actions
and warnings are appended to the file named by SLAQ_SUITE_NOTES.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.hooks import guarded
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.plugin import SlaqPlugin

if TYPE_CHECKING:
    from distributed import Scheduler

#: Prefix of clients that workers open for their tasks. The tasks of these clients are unowned.
OF_WORKERS = "Client-worker"


class Contended(ScheduledJobs):
    """Jobs whose tasks are held as if another job had tasks too."""

    @property
    def contended(self) -> bool:
        """Whether there is at least one job."""
        return bool(self.reports)


class SuitePlugin(SlaqPlugin):
    """Plugin that opens a job for every client, and records problems."""

    async def start(self, scheduler: Scheduler) -> None:
        """Start the plugin, and own tasks by client instead of by annotation."""
        if self._started_on is scheduler:
            return
        await super().start(scheduler)
        self._own_by_annotation = self.task_pools.own
        self.task_pools.own = self.own  # type: ignore[method-assign]
        if os.environ.get("SLAQ_SUITE") == "contended":
            self.jobs.__class__ = Contended

    @guarded
    def add_client(self, scheduler: Scheduler, client: str) -> None:
        """Open the job of a client that connects."""
        if not client.startswith(OF_WORKERS) and not self.jobs.runs(job_of(client)):
            self.jobs.open(job_of(client), client, resources={})
            self.began(job_of(client))

    def own(self, client: str, tasks: Iterable[Any], *about: Any, **more: Any) -> None:
        """Give all new tasks of a client to its job."""
        pool = self.pools.pools.get(job_of(client))
        if pool is None:
            self._own_by_annotation(client, tasks, *about, **more)
            return
        self.pools.tracker.own(pool, [self.scheduler.tasks[key] for key in tasks])
        self.pools.hold(self.jobs.contended)

    def fall_back(self, error: BaseException) -> None:
        """Record that the plugin failed."""
        note(problem=f"the plugin failed: {type(error).__name__}: {error}")
        super().fall_back(error)

    async def close(self) -> None:
        """Record the bindings, and anything left over after all clients have left."""
        reasons = [binding.reason for binding in self.pools.bindings]
        held = sum(reason != "passed" for reason in reasons)
        note(passed=len(reasons) - held, held=held)
        if self.failed is None and not self.jobs.reports:
            for left in self.pools.left_over():
                note(problem=f"left over: {left}")
        await super().close()


class Listener(logging.Handler):
    """Log handler that records the warnings of `dask_slaq`."""

    def emit(self, record: logging.LogRecord) -> None:
        """Record one message."""
        note(logged=record.getMessage())


def job_of(client: str) -> str:
    """Return the name of a client's job."""
    return f"job of {client}"


def note(**what: Any) -> None:
    """Append one line to the notes."""
    if path := os.environ.get("SLAQ_SUITE_NOTES"):
        test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
        with open(path, "a") as file:
            file.write(json.dumps({"test": test, **what}) + "\n")


async def dask_setup(scheduler: Scheduler) -> None:
    """Register the plugin."""
    plugin = SuitePlugin()
    await plugin.start(scheduler)
    scheduler.add_plugin(plugin, name=plugin.name)
    logger = logging.getLogger("dask_slaq")
    if not any(isinstance(handler, Listener) for handler in logger.handlers):
        logger.addHandler(Listener(logging.WARNING))
