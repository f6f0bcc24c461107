"""Predicted curves of running jobs over seconds, and when they end."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import Status

if TYPE_CHECKING:
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs

__all__ = ["CurveToCome", "curves_to_come", "ends_of", "in_words"]

#: Times that are told, of those in `Engine.end_of`.
TOLD = ("fair", "promised", "low", "expected", "high")
#: Factor by which the time from arrival to the promised end may grow until it is told.
LATER = 1.2
#: Seconds from now that count as never: a paused job has no end in sight.
FOREVER = 1e8


class CurveToCome(NamedTuple):
    """Predicted raw loss of a job, ``(n_horizons,)`` seconds from now, at its present pace.

    `low` and `high` are the band that holds 80 % of the reports to come, None if unknown; `best`
    is the predicted final loss, and `span` the whole predicted range.
    """

    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    best: float
    span: float

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, which fit into a message."""
        return {
            key: value.tolist() if isinstance(value, np.ndarray) else value
            for key, value in self._asdict().items()
        }


def curves_to_come(jobs: ScheduledJobs, names: Iterable[str]) -> dict[str, CurveToCome]:
    """Return the predicted curves of those jobs that have one; all `names` report."""
    predictor, pace = jobs.engine._predictor, jobs.pace
    known = [name for name in names if name in pace and pace[name].seconds > 0]
    if not known:
        return {}
    forecast = predictor.forecast(known)
    band = getattr(predictor, "band", None)
    band_of = None if band is None else band(known)
    found = {}
    for i, name in enumerate(known):
        best = float(forecast.level[i] - forecast.remaining[i])
        span = float(forecast.start[i]) - best
        if forecast.status[i] != Status.OK or not span > 0:
            continue
        low, high = (None, None) if band_of is None else (band_of[0][i], band_of[1][i])
        has_band = low is not None and bool(np.isfinite([low, high]).all())
        found[name] = CurveToCome(
            forecast.horizons * pace[name].seconds,
            forecast.level[i] - forecast.reduction[i],
            low if has_band else None,
            high if has_band else None,
            best,
            span,
        )
    return found


def ends_of(jobs: ScheduledJobs, name: str) -> dict[str, Any] | None:
    """Return when a job ends, in seconds from now; None if its length is unknown.

    ``fair`` is on a cluster that shares fairly, ``promised`` at the latest (None without a
    promise), ``expected`` in the 80 % band ``low`` to ``high``. All but the promise are None while
    too little is known. ``late`` is the reason if the promise has moved since a fifth of the work
    was done, or None.
    ``of`` is ``"job"``, or ``"submitted"`` for a job that announced nothing: the end of what it has
    submitted so far.
    """
    found: dict[str, Any] | None = jobs.engine.end_of(name, monotonic())
    if found is None or _has_unknown_stages(jobs, name):
        return None
    found = {key: value if abs(value) < FOREVER else None for key, value in found.items()}
    if found["high"] is None:
        found.update(fair=None, low=None, expected=None)  # the fair end is known as little
    job, stages = jobs.engine.jobs[name], jobs.pools.pools[name].stages
    announced = job.max_iter is not None or stages is not None
    told = {key: found[key] for key in TOLD}
    return {**told, "late": _late(jobs, name, found), "of": "job" if announced else "submitted"}


def _has_unknown_stages(jobs: ScheduledJobs, name: str) -> bool:
    """Return whether neither like runs nor reports tell which stages of a job are to come."""
    stages = jobs.pools.pools[name].stages
    if stages is None or stages.current.reports:
        return False
    return not jobs.memory.expected_stages(name)


def _late(jobs: ScheduledJobs, name: str, found: Mapping[str, float | None]) -> str | None:
    """Return why a job ends later than it was promised, if it does."""
    if name in jobs.queued:
        return "it waits for another job of its owner"
    if jobs.pools.pools[name].paused:
        return "it is paused"
    now, before, then = found["promised"], found["before"], found["threads"]
    if now is None or before is None or then is None:
        return None
    age = monotonic() - jobs.engine.jobs[name].arrival
    if now + age <= LATER * (before + age):
        return None
    threads = sum(ws.nthreads for ws in jobs.scheduler.running)
    if threads < then:
        return f"threads of the cluster: {threads}, and {then:g} when it was promised"
    return "more jobs have come, or its work has grown"


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
