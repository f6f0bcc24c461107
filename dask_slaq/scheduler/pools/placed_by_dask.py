"""Tasks that Dask alone places: actors, pinned tasks, and ends of P2P shuffles."""

from __future__ import annotations

from typing import Any

from distributed.scheduler import TaskState

from dask_slaq.core.dispatch import constants

_BARRIER = "shuffle-barrier-"


def is_direct(ts: TaskState) -> bool:
    """Return whether Dask alone decides where and when a task runs.

    These are actors; tasks pinned to one worker or to hosts, and those that use small results of
    such a task, which may be impossible to move, like the sockets by which LightGBM's workers find
    each other; and barriers and outputs of P2P shuffles, which Dask's shuffle plugin places.
    """
    if ts.actor or ((ts.worker_restrictions or ts.host_restrictions) and is_pinned(ts)):
        return True
    key = ts.key
    if isinstance(key, str) and key.startswith(_BARRIER):
        return True
    if len(ts.dependencies) > 4:  # no library's, and it costs time
        return False
    for dep in ts.dependencies:
        key = dep.key
        if isinstance(key, str) and key.startswith(_BARRIER):
            return True
        if dep.annotations and dep.nbytes <= constants.NOT_DATA_BYTES and _is_bound(dep):
            return True
    return False


def is_dasks(ts: TaskState) -> bool:
    """Return whether no limit of an owner keeps a task: an actor, or the end of a P2P shuffle."""
    return ts.actor or _is_barrier(ts.key) or any(_is_barrier(dep.key) for dep in ts.dependencies)


def bound_to(ts: TaskState) -> set[str]:
    """Return the workers with small results of pinned tasks that a task uses; empty without."""
    few = ts.dependencies if len(ts.dependencies) <= 4 else ()
    return {ws.address for dep in few if _is_bound(dep) for ws in dep.who_has or ()}


def _is_bound(dep: TaskState) -> bool:
    """Return whether the result of a task may be impossible to move."""
    return (
        dep.nbytes <= constants.NOT_DATA_BYTES
        and is_pinned(dep)
        and "workers" in (dep.annotations or ())
    )


def is_pinned(ts: TaskState) -> bool:
    """Return whether the user has chosen the worker, or the host, of a task."""
    if ts.host_restrictions or ts.loose_restrictions:
        return True
    return ts.worker_restrictions is not None and len(ts.worker_restrictions) == 1


def _is_barrier(key: Any) -> bool:
    return isinstance(key, str) and key.startswith(_BARRIER)
