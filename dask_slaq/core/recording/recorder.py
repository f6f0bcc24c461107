"""Recorder of all calls to an engine and all its decisions, as events that can be replayed."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.grants import Grant, Grants
from dask_slaq.core.memory import Kind
from dask_slaq.core.recording.events import CALLS, VERSION, Call, Event, write_settings, write_terms
from dask_slaq.core.recording.recalled import RunNumbers, kind_to_dict
from dask_slaq.core.reports import as_loss, is_usable

__all__ = ["Recorder"]


class Recorder:
    """Engine that records every call and decision. Other attributes are those of the engine.

    The methods of `CALLS` are made from that table, and stand below the class.

    `write` gets each event after it happened; calls that raise are not recorded. The engine must
    have no jobs yet. `about` goes into the first event.

    Task times are summed up per job. The sum is passed to the engine at the job's next report, at
    the next decision or at the job's end, so that a replay computes with the same floats.
    """

    def __init__(
        self,
        engine: Engine,
        write: Callable[[Event], object],
        now: float,
        **about: Any,
    ) -> None:
        self.engine = engine
        self._write = write
        self._tasks: dict[str, tuple[int, float, float]] = {}
        # Arguments and fields of the last call that may repeat, by event and job.
        self._last: dict[tuple[str, str], tuple[Any, Event]] = {}
        self._workers: dict[str, int] = {}
        self._eligible: dict[str, list[str]] = {}
        self._affinity: dict[str, dict[str, float]] = {}
        self._runs = RunNumbers(write)
        kind = type(engine._predictor)
        owners: Event = {}
        if engine.owners is not None:
            known = engine.owners.terms.items()
            owners["owners"] = {name: write_terms(terms) for name, terms in known}
        self._say(
            "start",
            time=now,
            version=VERSION,
            policy=engine.policy.name,
            epoch=engine.epoch,
            normalizer=engine.normalizer,
            floor=engine.floor,
            latest=None if engine.latest == math.inf else float(engine.latest),
            strict=engine.strict,
            move_pause=engine.move_pause,
            **owners,
            predictor=f"{kind.__module__}.{kind.__qualname__}",
            **about,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def add_job(self, job: str, now: float, *, kind: Kind | None = None, **settings: Any) -> None:
        """Add a job and record it. See `Engine.add_job`."""
        remembered = {} if kind is None else self._about(kind)
        self.engine.add_job(job, now, kind=kind, **settings)
        added, owner = self.engine.jobs[job], self.engine.jobs.owner[job]
        search = self.engine.jobs.search.get(job)
        self._say(
            "arrive",
            time=now,
            job=job,
            reports=added.reports,
            **write_settings(added.settings),
            **({"owner": owner} if owner else {}),
            **({"search": search} if search else {}),
            **remembered,
        )
        if added.max_iter is not None:
            self._say("max_iter", job=job, max_iter=added.max_iter)

    def remove_job(
        self, job: str, now: float, outcome: str | None = None, *, ended: float | None = None
    ) -> None:
        """Remove a job and record it. See `Engine.remove_job`."""
        self.engine.jobs.row(job)
        self._catch_up(job)
        self.engine.remove_job(job, now, outcome, ended=ended)
        for event in CALLS:
            self._last.pop((event, job), None)
        self._say("leave", time=now, job=job, **({} if outcome is None else {"outcome": outcome}))

    def set_kind(self, job: str, kind: Kind) -> None:
        """Set the kind of a running job and record it. See `Engine.set_kind`."""
        self.engine.jobs.row(job)
        about = self._about(kind)
        self.engine.set_kind(job, kind)
        self._say("kind", job=job, **about)

    def report(self, job: str, loss: float, now: float, step: int | None = None) -> None:
        """Report a loss and record it. See `Engine.report`."""
        self.engine.jobs.row(job)
        loss = as_loss(loss)
        self._catch_up(job)
        self.engine.report(job, loss, now, step)
        known: Event = {} if step is None else {"step": step}
        self._say("report", time=now, job=job, loss=loss if is_usable(loss) else None, **known)

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Add a task to the sum that is passed to the engine later. See `Engine.observe_task`."""
        self.engine.jobs.row(job)
        count, total, most = self._tasks.get(job, (0, 0.0, 0.0))
        self._tasks[job] = count + 1, total + float(seconds), max(most, float(at_once))

    def set_job(self, job: str, **settings: Any) -> None:
        """Change settings of a job and record them. See `Engine.set_job`."""
        self.engine.set_job(job, **settings)
        self._say("set", job=job, **write_settings(self.engine.jobs[job].settings))

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide the grants and record the changes. See `Engine.reallocate`."""
        self._catch_up(*self._tasks)
        changes = self.engine.reallocate(workers, now, eligible=eligible, affinity=affinity)
        self._say(
            "decide",
            time=now,
            threads=sum(workers.values()),
            **self._changed(workers, eligible or {}, affinity or {}),
            grants={job: grant_to_dict(grant) for job, grant in changes.items()},
        )
        return changes

    def _say(self, event: str, **what: Any) -> None:
        self._write({"event": event, **what})

    def _about(self, kind: Kind) -> Event:
        """Return the fields that record a kind, after the past runs that are like it."""
        like = self._runs.of(self.engine.remembering.memory, kind)
        return {"kind": kind_to_dict(kind), "like": like}

    def _catch_up(self, *jobs: str) -> None:
        """Pass the summed task times of `jobs` to the engine and record them."""
        for job in jobs:
            if ended := self._tasks.pop(job, None):
                count, seconds, at_once = ended
                self.engine.observe_task(job, seconds, at_once)
                self._say("tasks", job=job, count=count, seconds=seconds, at_once=at_once)

    def _changed(
        self,
        workers: Mapping[str, int],
        eligible: Mapping[str, Collection[str]],
        affinity: Mapping[str, Mapping[str, float]],
    ) -> Event:
        """Return the arguments that differ from the last decision."""
        changed: Event = {}
        if workers != self._workers:
            changed["workers"] = self._workers = dict(sorted(workers.items()))
        may_use = {job: sorted(addresses) for job, addresses in eligible.items()}
        if may_use != self._eligible:
            changed["eligible"] = self._eligible = may_use
        held = {job: dict(on) for job, on in affinity.items() if on}
        news = {job: on for job, on in held.items() if self._affinity.get(job) != on}
        news.update({job: {} for job in self._affinity if job not in held})
        if news:
            changed["affinity"] = news
        self._affinity = held
        return changed


def _forwarder(event: str, call: Call) -> Callable[..., Any]:
    """Return the method that passes on a call and records it, unless it changed nothing."""
    method = getattr(Engine, call.method)
    arguments = [each for each in signature(method).parameters.values() if each.name != "self"]
    names = [each.name for each in arguments]
    defaults = {each.name: each.default for each in arguments if each.default is not each.empty}
    rows = [(name, of.write, of.unless) for name, of in call.fields.items() if name != "job"]
    of_job, first = "job" in call.fields, call.first

    def forward(self: Recorder, *args: Any, **given: Any) -> Any:
        result = method(self.engine, *args, **given)
        if result is False:
            return result
        key = event, ((args[0] if args else given["job"]) if of_job else "")
        asked, last = self._last.get(key, (None, first))
        if of_job and asked == (args, given) and first is not None:
            return result  # as for nearly all jobs at each decision
        known = {**defaults, **dict(zip(names, args, strict=False)), **given}
        fields = {}
        for name, write, unless in rows:
            value = write(known[name])
            if unless is ... or value != unless:
                fields[name] = value
        if first is not None:
            self._last[key] = (args, given), fields
            if last == fields:
                return result
        self._say(event, **({"job": known["job"]} if of_job else {}), **fields)
        return result

    forward.__name__ = call.method
    forward.__doc__ = f"Record the call; see `Engine.{call.method}`."
    return forward


for _event, _call in CALLS.items():
    setattr(Recorder, _call.method, _forwarder(_event, _call))


def grant_to_dict(grant: Grant) -> Event:
    """Return the fields of a grant that are recorded."""
    return {
        "share": grant.share,
        "index": grant.index,
        "tokens": grant.tokens,
        "workers": dict(grant.workers),
    }
