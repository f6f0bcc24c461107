"""Reasons: what a job does or waits for, in one sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from distributed.scheduler import TaskState

from dask_slaq.core.dispatch import Group
from dask_slaq.core.text import in_threads
from dask_slaq.scheduler.jobs.hindrances import blocked_in, silence_of
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Limits, Pool, Pools, name_of


def reason(jobs: ScheduledJobs, name: str, *about: Any) -> str:
    """Return in one sentence what a job does or waits for, and that it is silent; see `_reason`."""
    found, silent = _reason(jobs, name, *about), silence_of(jobs, name)
    return found if silent is None else f"{found}; {silent}"


def _reason(
    jobs: ScheduledJobs,
    name: str,
    places: Mapping[str, int],
    trials: Callable[[str], str | None],
    failed: bool,
) -> str:
    """Return what a job does or waits for, by the `positions` of all jobs.

    `trials` describes those of a search, and `failed` tells whether the plugin has failed.
    """
    pool = jobs.pools.pools[name]
    if failed:
        return "plain Dask schedules its tasks: the plugin failed"
    if name in jobs.stopping:
        return "stops at its next report"
    if name in jobs.queued and name not in jobs.paused:
        owner = jobs.owner[name]
        if jobs.budgets.is_awaited(owner):
            spending = jobs.budgets.of(owner) if jobs.accounts.loaded else None
            return f"waits: {'usage is being read' if spending is None else spending.in_words()}"
        whose = jobs.admission.full_of(name) or owner
        count, most = jobs.admission.jobs_at_once(whose)
        return f"waits: {count} of {whose.rstrip('/')}'s {most:g} jobs run"
    if pool.paused:
        # A fit in one long task trains on: nothing can take its thread away.
        computing = pool.computing
        on = f"; {_tasks(computing)} that began before train on, and `stop` ends them"
        return "paused: unpause it to start its tasks" + on * (computing > 0)
    if (of_search := trials(name)) is not None:
        why = cannot_run(jobs, pool)
        return of_search if why is None else f"{of_search}; {why}"
    if (full := _full_label(jobs.pools.limits, pool)) is not None:
        return full
    if not pool.ready:
        if (stuck := _first_in(pool, "no-worker", "queued")) is not None:
            if not jobs.scheduler.running:
                return "waits: no worker runs"
            return f"{_doing(pool)}: {_waits_in_dask(stuck)}"
        if pool.running:
            return f"{_doing(pool) if pool.borrowed >= 1 else 'runs'}: no further task is ready"
        if away := sum(ts.state == "processing" for ts in pool.unfinished):
            return f"runs {_tasks(away)} that gave up their thread, as in worker_client"
        waits = any(ts.state == "waiting" for ts in pool.unfinished)
        return "its tasks wait for inputs" if waits else "its driver computes: it has no ready task"
    if not jobs.pools.records.holding:
        return "runs under plain Dask: no other job competes"
    return _waits_for(jobs, pool, places.get(name))


def cannot_run(jobs: ScheduledJobs, pool: Pool) -> str | None:
    """Return why no worker can run what a pool has left; None if one may, or it has nothing."""
    if not pool.unfinished or any(ts.state == "processing" for ts in pool.unfinished):
        return None
    if not jobs.scheduler.running:
        return "no worker runs"
    if pool.filed:
        return _no_worker(jobs, pool)
    stuck = _first_in(pool, "no-worker")
    return None if stuck is None else _waits_in_dask(stuck)


def _no_worker(jobs: ScheduledJobs, pool: Pool) -> str | None:
    """Return that no worker may run any ready task of a pool, unless one may."""
    if not pool.filed or any(k.allows(ws) for k in pool.filed for ws in jobs.scheduler.running):
        return None
    needs = next((dict(k.resources) for k in pool.filed if k.resources), None)
    needs = needs or jobs.resources.get(pool.name)
    missing = f" with {_resources(needs)}" if needs else ""
    return f"waits for workers{missing}: none that runs may compute its tasks"


def _first_in(pool: Pool, *states: str) -> TaskState | None:
    return next((ts for ts in pool.unfinished if ts.state in states), None)


def _waits_in_dask(ts: TaskState) -> str:
    """Return what a task waits for that is in no pool, since Dask alone decides on it."""
    if ts.state == "queued":
        return "Dask has queued its next tasks until a thread is free"
    if only := sorted(ts.worker_restrictions or ts.host_restrictions or ()):
        more = f" and {len(only) - 3} more" if len(only) > 3 else ""
        return f"its next task may only run on {', '.join(only[:3])}{more}, and no such worker runs"
    if ts.resource_restrictions:
        return f"its next task needs {_resources(ts.resource_restrictions)}, and no worker has that"
    return "no worker may run its next task"


def _full_label(limits: Limits, pool: Pool) -> str | None:
    """Return that all ready tasks of a pool wait for a label that is full, if they do."""
    kinds = pool.filed
    if not limits:
        return None
    labels = {kind.label for kind in kinds}
    if not kinds and limits.waiting:  # they wait elsewhere
        labels = {limits.label_of(ts) for ts in pool.unfinished if ts.state == "no-worker"}
    if not labels or any(limits.free(label) for label in labels):
        return None
    full = (f"{limits.used[n]} of {limits.most[n]} tasks labelled {n} run" for n in labels if n)
    return f"{_doing(pool)}: {', '.join(full)}"


def _waits_for(jobs: ScheduledJobs, pool: Pool, ahead: int | None) -> str:
    """Return what the ready tasks of a pool wait for; `ahead` jobs are served before it."""
    pools = jobs.pools
    if (blocked := blocked_in(jobs, pool)) is not None:
        return f"{_doing(pool)}: {blocked.why}"
    for gang in pools.records.gangs.waiting(pool):
        threads = sum(pools.cluster.threads_of(gang).values())
        free = "a thread is free" if threads == 1 else f"{threads} threads are free at once"
        return f"waits until {free} (gang)"
    if (nobody := _no_worker(jobs, pool)) is not None:
        return nobody
    if pool.group is not None and (limit := _limit(pool)) is not None:
        return f"{_doing(pool)}{limit}"
    last = ahead or len(pool.running) >= pool.granted.most
    if last and jobs.goals.is_good_enough(pool.name):
        return "good enough: it reached its target, and other jobs are served first"
    if len(pool.running) >= pool.granted.most:
        cap = f"max_share of {in_threads(pool.granted.most)}"
        if any(each.ready for each in pools.pools.values() if each is not pool):
            cap += " while others wait"
        return f"{_doing(pool)}, at its {cap}"
    if pool.account.is_limit and pool.account.owed(monotonic()) <= 0:
        return f"{_doing(pool)}: it has used up the tokens of its {in_threads(pool.granted.share)}"
    if pool.gang and not pool.running:
        return f"waits until {len(pool.ready)} threads are free at once (gang)"
    if ahead and jobs.budgets.is_over(jobs.owner[pool.name]):
        why = budget_of(jobs, jobs.owner[pool.name])
        return f"{_doing(pool)}, on what nobody else wants: {why}"
    if ahead:
        others = "job is" if ahead == 1 else "jobs are"
        return f"{_doing(pool)}: {ahead} {others} served first when a thread is free"
    return f"{_doing(pool)}: its next task gets the next free thread that it may use"


def _limit(pool: Pool) -> str | None:
    """Return what limit of its owner or a team keeps a pool waiting, as a clause; None if none."""
    if (group := full_group(pool)) is not None:
        return f": {name_of(group, pool)} is at its limit of max-threads ({group.most:g})"
    if (full := full_resource(pool)) is not None:
        group, resource = full
        who, most = name_of(group, pool), group.resources[resource]
        return f": {who} is at its limit of {resource} ({most:g})"
    return None


def _doing(pool: Pool) -> str:
    count, borrowed = pool.computing or len(pool.running), int(pool.borrowed)
    if borrowed and borrowed == count:
        return f"runs on {count} borrowed thread{'s' * (count > 1)}"
    more = f", {borrowed} of them on borrowed threads" if borrowed else ""
    return f"runs {_tasks(count)}{more}" if count else "waits"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def positions(pools: Pools) -> dict[str, int]:
    """Return the number of jobs that are served before each job that has a ready task."""
    key = pools.cluster.key
    turns = ((key(pool), name) for name, pool in pools.pools.items() if pool.ready)
    served = sorted(found for found in turns if found[0] is not None)
    return {name: i for i, (_, name) in enumerate(served)}


def full_group(pool: Pool) -> Group | None:
    """Return the owner or team that is at its limit of threads; None if none is."""
    return None if pool.group is None else next(pool.group.full(), None)


def full_resource(pool: Pool) -> tuple[Group, str] | None:
    """Return whose limit of which resource is reached, if no ready task can do without it."""
    if pool.group is None or not pool.filed:
        return None
    full = [pool.group.full_resource(kind.resources or ()) for kind in pool.filed]
    return None if None in full else full[0]


def budget_of(jobs: ScheduledJobs, owner: str) -> str:
    """Return in one clause what an owner has used of its budget."""
    spending = jobs.budgets.of(owner)
    return "" if spending is None else spending.in_words()


def _resources(needs: dict[str, float]) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in needs.items())
