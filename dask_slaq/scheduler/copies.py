"""Copies of tasks: which messages of workers are of a copy; see `Spares`, which makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["ANNOTATION", "is_copy", "is_elsewhere"]

#: Annotation of tasks that may get a copy.
ANNOTATION = "slaq_spare"


def is_elsewhere(scheduler: Scheduler, key: Any, worker: str) -> bool:
    """Return whether a task runs on another worker than on `worker`."""
    ts = scheduler.tasks.get(key)
    there = None if ts is None else ts.processing_on
    return there is not None and there.address != worker


def is_copy(scheduler: Scheduler, key: Any, worker: str, run_id: int | None) -> bool:
    """Return whether a run on a worker is a copy of a run that another worker computes."""
    ts = scheduler.tasks.get(key)
    return (
        ts is not None
        and ts.state == "processing"
        and ts.run_id == run_id
        and is_elsewhere(scheduler, key, worker)
        and worker in scheduler.workers
    )
