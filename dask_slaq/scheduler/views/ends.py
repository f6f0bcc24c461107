"""When a job ends: in the fair world, at the latest by its promise, and expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dask_slaq.scheduler.jobs import ScheduledJobs

__all__ = ["ends_of", "in_words"]

#: Share of the promised time by which an end may be late, so that rounding is not said as a delay.
SLACK = 0.05


def ends_of(jobs: ScheduledJobs, name: str) -> dict[str, Any] | None:
    """Return when a job ends; None if its length is unknown.

    Parameters
    ----------
    jobs : ScheduledJobs
    name : str
        Name of a running job.

    Returns
    -------
    dict or None
        Seconds from now: ``fair``, on a cluster that shares fairly; ``promised``, at the latest
        (None without a promise); ``expected``, and the 80 % band ``low`` to ``high``. ``late`` is
        why the promise cannot be kept, or None.
    """
    found: dict[str, Any] | None = jobs.engine.end_of(name, monotonic())
    if found is None:
        return None
    found = {key: value if math.isfinite(value) else None for key, value in found.items()}
    found["late"] = _late(jobs, name, found["promised"])
    return found


def _late(jobs: ScheduledJobs, name: str, promised: float | None) -> str | None:
    job = jobs.engine.jobs[name]
    threads = sum(ws.nthreads for ws in jobs.scheduler.running)
    if promised is None or job.runtime.work <= 0 or job.max_iter is None:
        return None
    most = min(threads, jobs.pools.pools[name].most)
    seconds = job.runtime.work * max(job.max_iter - job.iteration, 0) / max(most, 1e-9)
    if jobs.pools.pools[name].paused:
        return "it is paused"
    if seconds <= promised + SLACK * abs(promised) + jobs.engine.epoch:
        return None
    return f"its work takes {seconds:.3g} s on all {most:g} threads that it may use"


def in_words(ends: Mapping[str, Any] | None) -> str:
    """Return when a job ends as text; empty if its length is unknown.

    Parameters
    ----------
    ends : mapping, optional
        See `ends_of`.

    Examples
    --------
    >>> in_words(None)
    ''
    """
    if ends is None:
        return ""
    parts = []
    if ends["fair"] is not None:
        parts.append(f"fair by {_clock(ends['fair'])}")
    if ends["promised"] is not None:
        parts.append(f"promised by {_clock(ends['promised'])}")
    if ends["expected"] is not None:
        low, high = _clock(ends["low"]), _clock(ends["high"])
        parts.append(f"expected {_clock(ends['expected'])} ({low} to {high})")
    text = ", ".join(parts)
    return text if ends["late"] is None else f"{text}; the promise cannot be kept: {ends['late']}"


def _clock(seconds: float) -> str:
    """Return the local time in some seconds: with seconds if near, and the day if far."""
    try:
        at = datetime.now() + timedelta(seconds=seconds)
    except OverflowError:
        return "never"
    if abs(seconds) < 600:
        return at.strftime("%H:%M:%S")
    return at.strftime("%H:%M" if abs(seconds) < 43_200 else "%Y-%m-%d %H:%M")
