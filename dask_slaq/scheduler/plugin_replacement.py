"""Replacement of a plugin by another one on the same scheduler."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.scheduler.requests import at_work

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["others_to_replace"]

logger = logging.getLogger(__name__)


def others_to_replace(scheduler: Scheduler, kind: type[SlaqPlugin]) -> list[SlaqPlugin]:
    """Return the failed or idle plugins of class `kind` that a new one on `scheduler` replaces.

    Raises
    ------
    InvalidSetting
        If one of them runs jobs and has not failed.
    """
    others = [p for p in scheduler.plugins.values() if isinstance(p, kind)]
    if (before := at_work(scheduler)) is not None and before not in others:
        before.stop()  # it was unregistered and has not noticed yet
    if jobs := [name for p in others if p.failed is None for name in p.jobs.names()]:
        raise InvalidSetting(
            "the scheduler runs jobs under a SlaqPlugin already, and they must end "
            "before another one is registered: " + ", ".join(jobs)
        )
    if left := [name for p in others for name in p.jobs.names()]:
        logger.warning(
            "a SlaqPlugin that failed is replaced; its jobs continue as unowned work until "
            "they are opened again: %s",
            ", ".join(left),
        )
    return others
