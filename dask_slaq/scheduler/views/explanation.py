"""Explanation of a job's grant: what it waits for, what is in force, and what would change it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from time import monotonic, time
from typing import Any

from dask_slaq.core.jobs.columns import JOB_COLUMNS, time_to_target
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.core.text import duration, in_threads, printable
from dask_slaq.scheduler.jobs.hindrances import blocked_in
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Pool, name_of
from dask_slaq.scheduler.views.reasons import (
    budget_of,
    full_group,
    full_resource,
    positions,
    reason,
)
from dask_slaq.scheduler.views.status import status_of_jobs

#: What lets the jobs of an owner over its budget run as others.
_MORE = "more core-hours for its owner (`dask slaq owners set`), or the days to come"


def explain(
    jobs: ScheduledJobs, name: object, trials: Callable[[str], str | None], failed: bool
) -> dict[str, Any]:
    """Return why a job has the threads that it has, or waits; see `reason`."""
    if not isinstance(name, str) or name not in jobs.pools.pools:
        return _of_ended(jobs, name)
    found, places = status_of_jobs(jobs, [name])[name], positions(jobs.pools)
    pools, engine = jobs.pools.pools, jobs.engine
    gains = engine.next_thread()
    mine = gains.pop(name, None)
    best = max(gains, key=gains.__getitem__, default=None)
    now, look = monotonic(), jobs.pools.rounds.dispatcher
    # Expected seconds until any worker has a free thread.
    running = map(jobs.pools.sent.on, jobs.scheduler.running)
    next_slot = min((look.next_end(slots, now) for slots in running), default=math.inf)
    found.update(
        job=name,
        policy=engine.policy.name,
        epoch=engine.epoch,
        reason=reason(jobs, name, places, trials, failed),
        position=places.get(name),
        next_slot=next_slot if math.isfinite(next_slot) else None,
        next_thread=mine,
        competing=None if best is None else {"job": best, "next_thread": gains[best]},
        jobs=len(pools),
    )
    found["yields"] = _yields(jobs, found["owner"])
    last = next(reversed(pools[name].running.values()), None)
    found["last_sent"] = None if last is None else last.why or "sent by Dask"
    found["would_change"] = _would_change(jobs, found, pools[name])
    found["text"] = _text(found)
    return found


def _of_ended(jobs: ScheduledJobs, name: object) -> dict[str, Any]:
    """Return how a job has ended that is remembered. Raises `UnknownJob`."""
    event = next((each for each in reversed(jobs.ended) if each["job"] == name), None)
    if event is None:
        raise jobs.unknown(name)
    how, after, rest = event["message"].removeprefix(f"{name}: ").partition(" after ")
    text = f"{name} {how} {duration(time() - event['ended'])} ago{after}{rest}"
    return {"job": name, "state": event["event"], "text": printable(text)}


def _would_change(jobs: ScheduledJobs, found: dict[str, Any], pool: Pool) -> list[str]:
    """Return what would give the job more threads."""
    if pool.name in jobs.queued and jobs.budgets.is_awaited(found["owner"]):
        return [_MORE]
    if pool.name in jobs.queued:
        full = jobs.admission.full_of(pool.name) or found["owner"]
        whose = full[:-1] if full.endswith("/") else "its owner"
        return [f"a higher max-jobs of {whose}, or the end of another job there"]
    if pool.paused:
        return [f"slaq.unpause({found['job']!r})"]
    if pool.ready and (blocked := blocked_in(jobs, pool)) is not None:
        return [f"a higher {blocked.setting} (`slaq.stop` ends the job)"]
    if (group := full_group(pool)) is not None:
        return [f"a higher max-threads of {name_of(group, pool)}, or fewer jobs there"]
    if (needed := full_resource(pool)) is not None:
        group, name = needed
        return [f"a higher max-resources of {name_of(group, pool)} for {name}, or fewer jobs there"]
    hints = [_MORE] if pool.ready and jobs.budgets.is_over(found["owner"]) else []
    if len(pool.running) >= pool.granted.most and jobs.goals.is_good_enough(pool.name):
        hints.append(f"slaq.change({found['job']!r}, max_share=...): it reached its target")
    elif len(pool.running) >= pool.granted.most:
        hints.append(f"a higher max_share: slaq.change({found['job']!r}, max_share=...)")
    if not found["reports"]:
        hints.append("a loss to predict from: report it, see dask_slaq.job")
    elif pool.ready:
        hints.append(f"a higher weight (now {found['weight']:g}) or min_share")
    if pool.ready and found["jobs"] > 1:
        hints.append("the end of another job, or more workers")
    return hints


def _yields(jobs: ScheduledJobs, owner: str) -> str | None:
    """Return in one phrase why an owner yields to others: its budget, or its recent use."""
    if jobs.budgets.is_over(owner):
        return f"its jobs run on what nobody else wants: {budget_of(jobs, owner)}"
    if (half_life := jobs.accounts.half_life) is None:
        return None
    for name in jobs.line(owner):
        grant = jobs.engine.grants.owners.get(name)
        if grant is not None and grant.factor != 1.0:
            return (
                f"{'its owner' if name == owner else name[:-1]} used {grant.lately:.2g} times its "
                f"share lately (half-life {half_life / DAY_SECONDS:.3g} days): its weight counts "
                f"{grant.factor:.2g} times"
            )
    return None


def _text(found: dict[str, Any]) -> str:
    """Return an explanation as lines of text."""
    lines = [f"{found['job']} ({found['owner'] or 'no owner'}): {found['reason']}"]
    sentences = [
        f"{found['policy']} grants it {in_threads(found['share'])}: {found['why']}",
        f"of its tasks, {found['running']} run and {found['ready']} are ready",
    ]
    standing = [c for c in JOB_COLUMNS if c.name in ("share", "lent", "borrowed", "owed")]
    each = (f"{c.heading or c.name} {found[c.name]:.3g} ({c.about})" for c in standing)
    sentences.append(f"it has {', '.join(each)}")
    if found["next_thread"] is not None:
        gain = f"{found['next_thread']:.2g}"
        line = f"another thread would gain {gain} of its predicted range in an epoch"
        if found["competing"] is not None:
            other = found["competing"]
            line += f"; its best other use, for {other['job']}, by {other['next_thread']:.2g}"
        sentences.append(line)
    if found["like_runs"]:
        runs = "1 like run" if found["like_runs"] == 1 else f"{found['like_runs']} like runs"
        sentences.append(f"its forecast rests on {runs} of kind {found['kind']}")
    shares = [name for name in ("min_share", "max_share") if found[name] is not None]
    limits = [f"weight {found['weight']:g}", *(f"{n} {in_threads(found[n])}" for n in shares)]
    if found["max_slowdown"] is not None:
        limits.append(f"max. slowdown {found['max_slowdown']:g} times its fair time")
    sentences.append(f"in force are: {', '.join(limits)}")
    if found["yields"] is not None:
        sentences.append(found["yields"])
    if found["target"] is not None:
        sentences.append(
            f"the time to its target of {found['target']:g} is {time_to_target(found)}"
        )
    if ends := in_words(found["ends"]):
        of_all = found["ends"]["of"] != "submitted"
        sentences.append(f"its end is {ends}" if of_all else ends.replace(": ", " is ", 1))
    if found["position"] is not None and found["next_slot"] is not None:
        sentences.append(f"the next thread is expected to be free in {found['next_slot']:.2g} s")
    if found["last_sent"] is not None:
        sentences.append(f"its last task was sent because: {found['last_sent']}")
    sentences += [f"it would change with {hint}" for hint in found["would_change"]]
    lines += [f"  {line[0].upper()}{line[1:]}." for line in sentences]
    return "\n".join(map(printable, lines))  # names are users' text


def in_words(ends: Mapping[str, Any] | None) -> str:
    """Return what `ends_of` found as text, in local time; empty for None."""
    if ends is None:
        return ""
    parts = []
    if ends["expected"] is not None:
        low, high = _clock(ends["low"]), _clock(ends["high"])
        parts.append(f"expected {_clock(ends['expected'])} ({low} to {high})")
    if ends["promised"] is not None:
        parts.append(f"promised by {_clock(ends['promised'])}")
    if ends["fair"] is not None:
        parts.append(f"fair by {_clock(ends['fair'])}")
    text = ", ".join(parts)
    if ends["of"] == "submitted" and text:
        text = f"what it has submitted so far: {text}"
    if ends["late"] is not None:
        text += f"{'; ' * bool(text)}later than it was promised at first: {ends['late']}"
    return text


def _clock(seconds: float) -> str:
    """Return the local time in some seconds: with seconds if near, and the day if far."""
    try:
        at = datetime.now() + timedelta(seconds=seconds)
    except OverflowError:
        return "never"
    if abs(seconds) < 600:
        return at.strftime("%H:%M:%S")
    return at.strftime("%H:%M" if abs(seconds) < 43_200 else "%Y-%m-%d %H:%M")
