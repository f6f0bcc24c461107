"""Tasks that the limits of their owner or label never let start, and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from time import monotonic
from typing import NamedTuple

from distributed.scheduler import TaskState

from dask_slaq.core.dispatch import Group
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.pools import Pools


class Blocked(NamedTuple):
    """Tasks that never start, or never together; `setting` is the limit that keeps them from it."""

    why: str
    setting: str
    tasks: Collection[TaskState]
    together: bool = False  # whether they start in parts, and may wait for each other


def name_of(group: Group, pool: Pool) -> str:
    """Return the name of a team, or that it is the owner of a pool."""
    return "its owner" if group is pool.group else group.name[:-1]


def find_blocked(pools: Pools, pool: Pool) -> Blocked | None:
    """Return what can never start of a pool under the limits as they are; None if all can."""
    for gang in pools.records.gangs.waiting(pool):
        if gang.complete(monotonic()):
            threads = pools.cluster.threads_of(gang)
            if found := _above_limits(pools, pool, gang.members, sum(threads.values())):
                return found
    return _needs_too_much(pool) or _in_parts(pools, pool)


def _above_limits(
    pools: Pools, pool: Pool, tasks: Collection[TaskState], threads: int
) -> Blocked | None:
    """Return that tasks may not start together, if their labels or owner do not let them."""
    for label, count in Counter(map(pools.limits.label_of, tasks)).items():
        if label is not None and count > pools.limits.most[label]:
            together = f"{count} tasks labelled {label} start together"
            why = f"{together}, above its limit of {pools.limits.most[label]}"
            return Blocked(why, f"limit of {label}", tasks)
    for group in pool.group.line() if pool.group is not None else ():
        if threads > group.most:
            wanted = "a thread" if threads == 1 else f"{threads} threads at once"
            limit = f"max-threads of {name_of(group, pool)}"
            why = f"it needs {wanted}, above {name_of(group, pool)}'s limit of {group.most:g}"
            return Blocked(why, limit, tasks)
        needs = _needs(tasks)
        for name, most in group.resources.items():
            if needs[name] > most + 1e-9:
                above = f"above {name_of(group, pool)}'s limit of {most:g}"
                why = f"its tasks need {needs[name]:g} of {name} at once, {above}"
                return Blocked(why, f"max-resources of {name_of(group, pool)} for {name}", tasks)
    return None


def _needs(tasks: Iterable[TaskState]) -> Counter[str]:
    """Return the resources that several tasks need together."""
    needs: Counter[str] = Counter()
    for ts in tasks:
        needs.update(ts.resource_restrictions or {})
    return needs


def _needs_too_much(pool: Pool) -> Blocked | None:
    """Return the ready tasks each of which needs more of a resource than its owner may have."""
    for constraints, ready in pool.filed.items() if pool.group is not None else ():
        for group in pool.group.line() if constraints.resources and pool.group is not None else ():
            for name, amount in constraints.resources or ():
                most = group.resources.get(name)
                if most is not None and amount > most + 1e-9:
                    needs = f"needs {amount:g} of {name}"
                    many = len(ready) > 1
                    who = f"each of {len(ready)} tasks" if many else "a task"
                    why = f"{who} {needs}, above {name_of(group, pool)}'s limit of {most:g}"
                    tasks = [
                        ts for ts, entry in pool.ready.items() if entry.constraints == constraints
                    ]
                    setting = f"max-resources of {name_of(group, pool)} for {name}"
                    return Blocked(why, setting, tasks)
    return None


def _in_parts(pools: Pools, pool: Pool) -> Blocked | None:
    """Return the tasks of a gang job that limits let start in parts only.

    No more start together than the cluster has threads. How many tasks wait for each other is not
    known: those that are ready may be several gangs.
    """
    if not pool.gang or not pool.filed:
        return None
    some = list(pool.ready)[: pools.scheduler.total_nthreads]
    if len(some) + len(pool.running) < 2:
        return None
    tasks = [*some, *pool.running]
    found = _above_limits(pools, pool, tasks, len(tasks))
    if found is None:
        return None
    why = f"{found.why}: they start in parts, and hang if they wait for each other"
    return found._replace(why=why, tasks=list(pool.unfinished), together=True)
