"""Entries of ready tasks, from the state of Dask's scheduler."""

from __future__ import annotations

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.dispatch import ANY, Entry, TaskKind, constants
from dask_slaq.scheduler.pools.durations import input_bytes
from dask_slaq.scheduler.pools.pool import Pool


def entry_of(
    scheduler: Scheduler, ts: TaskState, pool: Pool, rootish: bool, count: int, label: str | None
) -> Entry:
    """Return the entry of a ready task, and add the bytes of its inputs to those of their workers.

    `count` is a unique number that orders tasks of equal priority, and `label` has a limit.
    """
    user, needs = ts.worker_restrictions, ts.resource_restrictions
    homes: tuple[str, ...] = ()
    kind, nbytes = ANY, input_bytes(ts)
    if user or needs or label is not None:
        resources = tuple(sorted(needs.items())) if needs else None
        kind = TaskKind(frozenset(user) if user else None, resources, label)
    like, cheap = pool.durations.like(ts, nbytes), constants.BETWEEN_MESSAGES * scheduler.bandwidth
    if nbytes > cheap:
        homes = _homes(scheduler, ts, pool, kind, cheap)
    loads, name = not ts.dependencies, ts.prefix.name
    return Entry(rootish, ts.priority or (), count, ts, kind, homes, like, loads, name)


def _homes(
    scheduler: Scheduler, ts: TaskState, pool: Pool, kind: TaskKind, cheap: float
) -> tuple[str, ...]:
    held: dict[str, int] = {}
    for dep in ts.dependencies:
        for ws in dep.who_has or ():
            part = dep.nbytes / len(dep.who_has or ())
            pool.bytes_at[ws.address] = pool.bytes_at.get(ws.address, 0.0) + part
            if kind is ANY or kind.allows(ws):
                held[ws.address] = held.get(ws.address, 0) + dep.nbytes
    most = max(held.values(), default=0)
    near = min(cheap, most / 10)
    homes = tuple(sorted([a for a, size in held.items() if most - size <= near]))
    few = min(constants.LOOKED_AT, len(scheduler.running))
    return homes if most > cheap and len(homes) < few else ()
