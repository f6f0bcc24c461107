"""What clients ask of the plugin and tell it.

Requests raise at the caller. What comes on the stream is dropped if it is wrong, and said in the
log now and then: an exception there would end the sender's connection.
"""

from __future__ import annotations

import asyncio
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.validation import Dropped, check_opening

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["Messages", "at_work"]

# Reports travel on the client's stream, the end of a job by request: wait so long for the former.
_LAST_REPORTS = 2.0


class Messages:
    """Handlers of the scheduler on behalf of one plugin."""

    def __init__(self, plugin: SlaqPlugin) -> None:
        self.plugin = plugin
        self._dropped = Dropped()
        self._requests = {
            "slaq_open": self.open_job,
            "slaq_close": self.close_job,
            "slaq_status": self.status,
            "slaq_history": self.history,
            "slaq_bindings": self.bindings,
        }

    def register(self) -> None:
        """Take over from the plugin before, if any."""
        scheduler = self.plugin.scheduler
        scheduler.handlers.update(self._requests)
        scheduler.stream_handlers["slaq-report"] = self.report
        scheduler.stream_handlers["slaq-expect"] = self.expect

    @property
    def current(self) -> bool:
        """Whether no other plugin took over."""
        handler = self.plugin.scheduler.handlers.get("slaq_open")
        return bool(handler == self._requests["slaq_open"])

    async def open_job(self, name: str, client: str, **given: Any) -> None:
        """Request: a job begins."""
        self.plugin.check_registered()
        connected = self.plugin.scheduler.client_comms.__contains__
        self.plugin.jobs.open(name, client, **check_opening(name, client, given, connected))
        self.plugin.began(name)

    async def close_job(
        self, name: str, client: str, reports: int = 0, run: str | None = None
    ) -> None:
        """Request: a job ends once its last reports are in."""
        jobs, deadline = self.plugin.jobs, monotonic() + _LAST_REPORTS
        if not jobs.runs(name, run):
            return
        run = jobs.owned(name, client)
        while jobs.runs(name, run) and jobs.reports[name] < reports and monotonic() < deadline:
            await asyncio.sleep(0.002)
        if jobs.runs(name, run):
            self.plugin.end_job(name)

    async def status(self) -> dict[str, Any]:
        """Request: every job now, in words and numbers."""
        plugin = self.plugin
        plugin.check_registered()
        return {
            "policy": plugin.settings.policy,
            "epoch": plugin.settings.epoch,
            "capacity": plugin.scheduler.total_nthreads,
            "holding": plugin.pools.holding.on,
            "failed": plugin.failed,
            "jobs": plugin.jobs.status(),
        }

    async def history(self, start: int = 0, stop: int | None = None) -> dict[str, Any]:
        """Request: a piece of the remembered epochs, oldest first, see `Epochs.read`."""
        self.plugin.check_registered()
        return self.plugin.jobs.epochs.read(time(), start, stop)

    async def bindings(self) -> list[list[Any]]:
        """Request: the remembered task bindings, oldest first."""
        self.plugin.check_registered()
        bindings = self.plugin.pools.bindings
        return [[b.time, str(b.key), b.job, b.worker, b.reason] for b in bindings]

    def report(
        self,
        /,
        job: Any = None,
        loss: Any = None,
        client: str = "",
        worker: str = "",
        run: Any = None,
        **other: Any,
    ) -> None:
        """Stream: one iteration's loss."""
        try:
            self.plugin.jobs.report(job, loss, client, run)
        except Exception as error:
            self._dropped.add("report", client or worker, error)

    def expect(
        self,
        /,
        job: Any = None,
        iterations: Any = None,
        client: str = "",
        run: Any = None,
        **other: Any,
    ) -> None:
        """Stream: how many iterations a job has still to come at most."""
        try:
            self.plugin.jobs.expect(job, iterations, client, run)
        except Exception as error:
            self._dropped.add("number of iterations", client, error)


def at_work(scheduler: Scheduler) -> SlaqPlugin | None:
    """Return the plugin that answers a scheduler's requests, registered still or not."""
    messages = getattr(scheduler.handlers.get("slaq_open"), "__self__", None)
    return messages.plugin if isinstance(messages, Messages) else None
