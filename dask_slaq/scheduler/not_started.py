"""Stand-in for a plugin that could not start."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.settings import NOT_STARTED
from dask_slaq.scheduler.board import add_pages

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)


class NotStarted(SchedulerPlugin):
    """Stand-in for a plugin that did not start: tells clients and the board why, until one does.

    If `strict`, the scheduler does not start either.
    """

    name = NOT_STARTED

    def __init__(self, scheduler: Scheduler, error: Exception, strict: bool) -> None:
        self.error, self.strict = error, strict
        known = isinstance(error, SlaqError)
        self.why = str(error) if known else f"{type(error).__name__}: {error}"
        self.restart(scheduler)
        try:
            add_pages(scheduler)
        except Exception:  # nothing that people look at may touch scheduling
            logger.exception("the board of dask_slaq could not be added")

    async def start(self, scheduler: Scheduler) -> None:
        """Keep the scheduler from starting if that is wanted: it starts plugins after preloads."""
        if self.strict:
            raise self.error

    def restart(self, scheduler: Scheduler) -> None:
        """Tell clients why. A restart of the cluster drops all metadata."""
        scheduler.task_metadata[NOT_STARTED] = self.why
