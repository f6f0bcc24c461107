"""What clients ask of the plugin and tell it.

Requests raise at the caller; what comes on the stream is logged and dropped if it is wrong, since
an exception there would end the sender's connection.
"""

from __future__ import annotations

import asyncio
import logging
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["Messages"]

logger = logging.getLogger(__name__)

# Reports travel on the client's stream, the end of a job by request: wait so long for the former.
_LAST_REPORTS = 2.0


class Messages:
    """Handlers of the scheduler on behalf of one plugin."""

    def __init__(self, plugin: SlaqPlugin) -> None:
        self.plugin = plugin
        self._requests = {
            "slaq_open": self.open_job,
            "slaq_close": self.close_job,
            "slaq_divide": self.divide_job,
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
        scheduler.stream_handlers["slaq-end-parts"] = self.end_parts

    @property
    def current(self) -> bool:
        """Whether no other plugin took over."""
        handler = self.plugin.scheduler.handlers.get("slaq_open")
        return bool(handler == self._requests["slaq_open"])

    async def open_job(self, name: str, client: str, **given: Any) -> None:
        """Request: a job begins."""
        self.plugin.check_registered()
        resources = given.pop("resources", None) or {}
        self.plugin.jobs.open(name, client, resources, **given)
        self.plugin.began(name)

    async def divide_job(self, job: str, parts: list[str], client: str) -> None:
        """Request: parts of a job are to be jobs within it."""
        self.plugin.check_registered()
        self.plugin.jobs.divide(job, parts, client)

    async def close_job(self, name: str, reports: int = 0) -> None:
        """Request: a job ends once its last reports are in."""
        jobs, deadline = self.plugin.jobs, monotonic() + _LAST_REPORTS
        while jobs.reports.get(name, reports) < reports and monotonic() < deadline:
            await asyncio.sleep(0.002)
        if name in jobs.reports:
            jobs.record()  # its last iteration too
        self.plugin.end_job(name)

    async def status(self) -> dict[str, Any]:
        """Request: every job now, in words and numbers."""
        plugin = self.plugin
        plugin.check_registered()
        return {
            "policy": plugin.settings.policy,
            "epoch": plugin.settings.epoch,
            "capacity": plugin.scheduler.total_nthreads,
            "holding": plugin.pools.holding,
            "failed": plugin.failed,
            "jobs": plugin.jobs.status(),
        }

    async def history(self) -> list[dict[str, Any]]:
        """Request: the remembered epochs, oldest first."""
        self.plugin.check_registered()
        return list(self.plugin.jobs.epochs)

    async def bindings(self) -> list[list[Any]]:
        """Request: the remembered task bindings, oldest first."""
        self.plugin.check_registered()
        bindings = self.plugin.pools.bindings
        return [[b.time, str(b.key), b.job, b.worker, b.reason] for b in bindings]

    def report(
        self, /, job: Any = None, loss: Any = None, client: str = "", worker: str = "", **other: Any
    ) -> None:
        """Stream: one iteration's loss."""
        try:
            self.plugin.jobs.report(job, loss)
        except Exception as error:
            logger.warning("dropped a report from %s: %s", client or worker, error)

    def expect(
        self, /, job: Any = None, iterations: Any = None, client: str = "", **other: Any
    ) -> None:
        """Stream: how many iterations a job has still to come at most."""
        try:
            self.plugin.jobs.expect(job, iterations)
        except Exception as error:
            logger.warning("dropped how many iterations %s expects: %s", client, error)

    def end_parts(
        self, /, job: Any = None, parts: Any = (), client: str = "", **other: Any
    ) -> None:
        """Stream: parts of a job have ended."""
        try:
            self.plugin.jobs.end_parts(job, parts)
        except Exception as error:
            logger.warning("dropped a message from %s on parts of a job: %s", client, error)
