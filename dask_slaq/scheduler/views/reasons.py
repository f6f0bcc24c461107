"""Explanation of a job's grant: what it waits for, what is in force, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.core.job_columns import time_to_target
from dask_slaq.core.text import printable
from dask_slaq.core.usage import DAY
from dask_slaq.scheduler.pools import find_blocked, in_use, name_of
from dask_slaq.scheduler.views.forecasts import in_words
from dask_slaq.scheduler.views.status import status_of_jobs

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.dispatch import Group
    from dask_slaq.scheduler.pools import Limits, Pool, Pools
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs

__all__ = ["explain", "positions", "reason"]


#: What lets the jobs of an owner over its budget run as others.
_MORE = "more core-hours for its owner (`dask slaq owners set`), or the days to come"


def explain(
    jobs: ScheduledJobs, name: object, trials: Callable[[str], str | None], failed: bool
) -> dict[str, Any]:
    """Return why a job has the threads that it has, or waits; see `reason`."""
    if not isinstance(name, str) or name not in jobs.pools.pools:
        raise jobs.unknown(name)
    found, places = status_of_jobs(jobs, [name])[name], positions(jobs.pools)
    pools, engine = jobs.pools.pools, jobs.engine
    gains = engine.next_thread()
    mine = gains.pop(name, None)
    best = max(gains, key=gains.__getitem__, default=None)
    found.update(
        job=name,
        policy=engine.policy.name,
        epoch=engine.epoch,
        reason=reason(jobs, name, places, trials, failed),
        position=places.get(name),
        next_slot=_next_slot(jobs.pools),
        next_thread=mine,
        rival=None if best is None else {"job": best, "next_thread": gains[best]},
        jobs=len(pools),
    )
    found["yields"] = _yields(jobs, found["owner"])
    last = next(reversed(pools[name].running.values()), None)
    found["last_sent"] = None if last is None else last.why or "sent by Dask"
    found["would_change"] = _would_change(jobs, found, pools[name])
    found["text"] = _text(found)
    return found


def reason(
    jobs: ScheduledJobs,
    name: str,
    places: Mapping[str, int],
    trials: Callable[[str], str | None],
    failed: bool,
) -> str:
    """Return in one sentence what a job does or waits for, by the `positions` of all jobs.

    `trials` describes those of a search, and `failed` tells whether the plugin has failed.
    """
    found = _reason(jobs, name, places, trials, failed)
    silent = jobs.silence(name)
    return found if silent is None else f"{found}; {silent}"


def _reason(
    jobs: ScheduledJobs,
    name: str,
    places: Mapping[str, int],
    trials: Callable[[str], str | None],
    failed: bool,
) -> str:
    pool = jobs.pools.pools[name]
    if failed:
        return "plain Dask schedules its tasks: the plugin failed"
    if name in jobs.stopping:
        return "stops at its next report"
    if name in jobs.queued and name not in jobs.paused:
        owner = jobs.owner[name]
        if jobs.waits_for_budget(owner):
            spending = jobs.budgets.of(owner) if jobs.accounts.loaded else None
            return f"waits: {'usage is being read' if spending is None else spending.in_words()}"
        whose = jobs.full_of(name) or owner
        count, most = jobs.jobs_at_once(whose)
        return f"waits: {count} of {whose.rstrip('/')}'s {most:g} jobs run"
    if pool.paused:
        # A fit in one long task trains on: nothing can take its thread away.
        computing, _ = pool.counts(True)
        on = f"; {_tasks(computing)} that began before train on, and `stop` ends them"
        return "paused: resume it to start its tasks" + on * (computing > 0)
    if (of_search := trials(name)) is not None:
        return of_search
    if (full := _full_label(jobs.pools.limits, pool)) is not None:
        return full
    if pool.passes and pool.unfinished:
        return "runs under plain Dask: its tasks are too short to be chosen one by one"
    if not pool.ready:
        stuck = next((ts for ts in pool.unfinished if ts.state in ("no-worker", "queued")), None)
        if stuck is not None:
            if not jobs.scheduler.running:
                return "waits: no worker runs"
            return f"{_doing(pool)}: {_waits_in_dask(stuck)}"
        if pool.running:
            return "runs: no further task is ready"
        if away := sum(ts.state == "processing" for ts in pool.unfinished):
            return f"runs {_tasks(away)} that gave up their thread, as in worker_client"
        waits = any(ts.state == "waiting" for ts in pool.unfinished)
        return "its tasks wait for inputs" if waits else "its driver computes: it has no ready task"
    if not jobs.pools.tracker.holding:
        return "runs under plain Dask: no other job competes"
    return _waits_for(jobs, pool, places.get(name))


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
    kinds = pool.kinds
    if not limits:
        return None
    labels = {kind.label for kind in kinds}
    if not kinds and limits.waiting:  # they wait elsewhere
        labels = {limits.label_of(ts) for ts in pool.unfinished if ts.state == "no-worker"}
    if not labels or any(limits.room(label) for label in labels):
        return None
    full = (f"{limits.used[n]} of {limits.most[n]} tasks labelled {n} run" for n in labels if n)
    return f"{_doing(pool)}: {', '.join(full)}"


def _waits_for(jobs: ScheduledJobs, pool: Pool, ahead: int | None) -> str:
    """Return what the ready tasks of a pool wait for; `ahead` jobs are served before it."""
    pools, running = jobs.pools, jobs.scheduler.running
    if (blocked := find_blocked(pools, pool)) is not None:
        return f"{_doing(pool)}: {blocked.why}"
    for gang in pools.tracker.gangs.waiting(pool):
        threads = sum(pools.dispatcher.threads_of(gang).values())
        free = "a thread is free" if threads == 1 else f"{threads} threads are free at once"
        return f"waits until {free} (gang)"
    if pool.kinds and not any(kind.allows(ws) for kind in pool.kinds for ws in running):
        needs = jobs.resources.get(pool.name)
        missing = f" with {_resources(needs)}" if needs else ""
        return f"waits for workers{missing}: none that runs may compute its tasks"
    if (group := _full_group(pool)) is not None:
        who = name_of(group, pool)
        return f"{_doing(pool)}: {who} is at its limit of max-threads ({group.most:g})"
    if (full := _full_resource(pool)) is not None:
        group, resource = full
        most = group.resources[resource]
        return f"{_doing(pool)}: {name_of(group, pool)} is at its limit of {resource} ({most:g})"
    if (group := _full_memory(pools, pool)) is not None:
        return f"{_doing(pool)}, and waits for memory: {name_of(group, pool)} has {in_use(group)}"
    last = ahead or len(pool.running) >= pool.most
    if last and jobs.goals.is_good_enough(pool.name):
        return "good enough: it reached its target, and other jobs are served first"
    if len(pool.running) >= pool.most:
        cap = f"max_share of {pool.most:g} threads"
        if any(each.ready for each in pools.pools.values() if each is not pool):
            cap += " while others wait"
        return f"{_doing(pool)}, at its {cap}"
    if pool.gang and not pool.running:
        return f"waits until {len(pool.ready)} threads are free at once (gang)"
    if ahead and jobs.is_spare(jobs.owner[pool.name]):
        return f"{_doing(pool)} on what nobody else wants: {_budget(jobs, jobs.owner[pool.name])}"
    if ahead:
        others = "job is" if ahead == 1 else "jobs are"
        return f"{_doing(pool)}: {ahead} {others} served first when a thread is free"
    return f"{_doing(pool)}: its next task gets the next free thread that it may use"


def _doing(pool: Pool) -> str:
    return f"runs {_tasks(len(pool.running))}" if pool.running else "waits"


def _tasks(count: int) -> str:
    return "1 task" if count == 1 else f"{count} tasks"


def positions(pools: Pools) -> dict[str, int]:
    """Return the number of jobs that are served before each job that has a ready task."""
    key = pools.dispatcher.key
    turns = ((key(pool), name) for name, pool in pools.pools.items() if pool.ready)
    served = sorted(found for found in turns if found[0] is not None)
    return {name: i for i, (_, name) in enumerate(served)}


def _next_slot(pools: Pools) -> float | None:
    """Return the expected seconds until any worker has a free thread; None if unknown."""
    now, running = monotonic(), pools.scheduler.running
    ends = (pools.sent.place(ws, now).next_end() for ws in running)
    soonest = min(ends, default=math.inf)
    return soonest if math.isfinite(soonest) else None


def _would_change(jobs: ScheduledJobs, found: dict[str, Any], pool: Pool) -> list[str]:
    """Return what would give the job more threads."""
    if pool.name in jobs.queued and jobs.waits_for_budget(found["owner"]):
        return [_MORE]
    if pool.name in jobs.queued:
        full = jobs.full_of(pool.name) or found["owner"]
        whose = full[:-1] if full.endswith("/") else "its owner"
        return [f"a higher max-jobs of {whose}, or the end of another job there"]
    if pool.paused:
        return [f"slaq.resume({found['job']!r})"]
    if pool.ready and (blocked := find_blocked(jobs.pools, pool)) is not None:
        return [f"a higher {blocked.setting} (`slaq.stop` ends the job)"]
    if (group := _full_group(pool)) is not None:
        return [f"a higher max-threads of {name_of(group, pool)}, or fewer jobs there"]
    if (needed := _full_resource(pool)) is not None:
        group, name = needed
        return [f"a higher max-resources of {name_of(group, pool)} for {name}, or fewer jobs there"]
    if (group := _full_memory(jobs.pools, pool)) is not None:
        return [f"a higher max-memory of {name_of(group, pool)}, or results that are released"]
    hints = [_MORE] if pool.ready and jobs.is_spare(found["owner"]) else []
    if len(pool.running) >= pool.most and jobs.goals.is_good_enough(pool.name):
        hints.append(f"slaq.set({found['job']!r}, max_share=...): it reached its target")
    elif len(pool.running) >= pool.most:
        hints.append(f"a higher max_share: slaq.set({found['job']!r}, max_share=...)")
    if not found["reports"]:
        hints.append("a loss to predict from: report it, see dask_slaq.job")
    elif pool.ready:
        hints.append(f"a higher weight (now {found['weight']:g}) or min_share")
    if pool.ready and found["jobs"] > 1:
        hints.append("the end of another job, or more workers")
    return hints


def _yields(jobs: ScheduledJobs, owner: str) -> str | None:
    """Return in one phrase why an owner yields to others: its budget, or its recent use."""
    if jobs.is_spare(owner):
        return f"its jobs run on what nobody else wants: {_budget(jobs, owner)}"
    if (half_life := jobs.accounts.half_life) is None:
        return None
    for name in jobs.line(owner):
        grant = jobs.engine.grants.owners.get(name)
        if grant is not None and grant.factor != 1.0:
            return (
                f"{'its owner' if name == owner else name[:-1]} used {grant.lately:.2g} times its "
                f"share lately (half-life {half_life / DAY:.3g} days): its weight counts "
                f"{grant.factor:.2g} times"
            )
    return None


def _full_group(pool: Pool) -> Group | None:
    """Return the owner or team that is at its limit of threads; None if none is."""
    return None if pool.group is None else next(pool.group.full(), None)


def _full_resource(pool: Pool) -> tuple[Group, str] | None:
    """Return whose limit of which resource is reached, if no ready task can do without it."""
    if pool.group is None or not pool.kinds:
        return None
    full = [pool.group.full_resource(kind.resources or ()) for kind in pool.kinds]
    return None if None in full else full[0]


def _full_memory(pools: Pools, pool: Pool) -> Group | None:
    """Return whose memory keeps all ready tasks of a pool waiting; None if nobody's does."""
    held = pools.tracker.held
    stored = None if held is None else held.full(pool)
    if stored is None or pool.group is None:
        return None
    return next(group for group in pool.group.line() if group.stored is stored)


def _budget(jobs: ScheduledJobs, owner: str) -> str:
    """Return in one clause what an owner has used of its budget."""
    spending = jobs.budgets.of(owner)
    return "" if spending is None else spending.in_words()


def _resources(needs: dict[str, float]) -> str:
    return ", ".join(f"{name}: {amount:g}" for name, amount in needs.items())


def _text(found: dict[str, Any]) -> str:
    """Return an explanation as lines of text."""
    lines = [f"{found['job']} ({found['owner'] or 'no owner'}): {found['reason']}"]
    said = [
        f"{found['policy']} grants it {found['share']:.3g} threads: {found['why']}",
        f"of its tasks, {found['running']} run and {found['ready']} are ready",
    ]
    if found["stage"] is not None:
        stage = found["stage"]
        said.append(f"of stage {stage['name']}, {stage['done']} of {stage['tasks']} tasks are done")
    if found["next_thread"] is not None:
        line = (
            f"another thread would lower its loss by {found['next_thread']:.2g} of its predicted "
            "range in an epoch"
        )
        if found["rival"] is not None:
            rival = found["rival"]
            line += f"; its best other use, for {rival['job']}, by {rival['next_thread']:.2g}"
        said.append(line)
    if found["like_runs"]:
        runs = "1 like run" if found["like_runs"] == 1 else f"{found['like_runs']} like runs"
        said.append(f"its forecast rests on {runs} of kind {found['kind']}")
    limits = [f"weight {found['weight']:g}"]
    for name in ("min_share", "max_share"):
        if found[name] is not None:
            limits.append(f"{name} {found[name]:g} threads")
    if found["latest"] is not None:
        limits.append(f"latest {found['latest']:g} times its fair time")
    said.append(f"in force are: {', '.join(limits)}")
    if found["yields"] is not None:
        said.append(found["yields"])
    if found["target"] is not None:
        said.append(f"the time to its target of {found['target']:g} is {time_to_target(found)}")
    if ends := in_words(found["ends"]):
        of_all = found["ends"]["of"] != "submitted"
        said.append(f"its end is {ends}" if of_all else ends.replace(": ", " is ", 1))
    if found["position"] is not None and found["next_slot"] is not None:
        said.append(f"the next thread is expected to be free in {found['next_slot']:.2g} s")
    if found["last_sent"] is not None:
        said.append(f"its last task was sent because: {found['last_sent']}")
    said += [f"it would change with {hint}" for hint in found["would_change"]]
    lines += [f"  {line[0].upper()}{line[1:]}." for line in said]
    return "\n".join(map(printable, lines))  # names are users' text
