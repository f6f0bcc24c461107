"""Recorder of all calls to an engine and all its decisions, as events that can be replayed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from inspect import signature
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.grants import Grant, Grants
from dask_slaq.core.jobs.reports import as_loss
from dask_slaq.core.owners.terms import OwnerTerms
from dask_slaq.core.recording.past_runs import Event, RunNumbers, kind_to_dict
from dask_slaq.core.run_history import Kind

#: Version of the format of events, and of the rules by which decisions follow from them.
FORMAT_VERSION = 13

#: Methods of the engine by the names of their events, which have their arguments by name. Further
#: events are ``start``, with the settings of the engine; ``decide``, with what changed, inputs and
#: grants; ``past_run``, before the first job that is like it; and ``dropped``, where an event could
#: not be written.
CALLS = {
    "arrive": "add_job",
    "tasks": "observe_task",  # of all since the last such event of the job
    "report": "report",
    "leave": "remove_job",
    "set": "set_job",
    "kind": "set_kind",
    "demand": "observe_demand",
    "left": "observe_left",
    "use": "observe_use",
    "spare": "set_spare",
    "reserved": "set_reserved",
    "floor": "set_floor",
    "max_iter": "set_max_iter",
    "pause": "pause",
    "policy": "set_policy",
    "owner": "set_owner",
}
#: Arguments besides the job with which a call changes nothing at first. Such calls come at each
#: decision, and are recorded where they differ from the last one of the job.
FIRST: dict[str, Event] = {
    "demand": {"tasks": 0},
    "left": {"seconds": None},
}
#: Settings of an engine in the event ``start``, besides its policy and owners.
SETTINGS = ("epoch", "normalizer", "runtime", "max_slowdown", "floor", "move_pause")


class Recorder:
    """Engine that records every call and decision. Other attributes are those of the engine.

    `write` gets each event after it happened. The engine must have no jobs yet. Task times are
    summed up per job until its next report, the next decision or its end, so that a replay computes
    with the same floats.
    """

    def __init__(
        self, engine: Engine, write: Callable[[Event], object], now: float, **about: Any
    ) -> None:
        self.engine = engine
        self._write = write
        self._tasks: dict[str, tuple[int, float, float]] = {}
        # Arguments and fields of the last call that may repeat, by event and job.
        self._last: dict[tuple[str, str], tuple[Any, Event]] = {}
        self._inputs: Event = {"workers": {}, "eligible": {}, "affinity": {}}
        self._runs = RunNumbers(write)
        kind, owners = type(engine.forecaster), engine.owners
        self._say(
            "start",
            now=now,
            version=FORMAT_VERSION,
            predictor=f"{kind.__module__}.{kind.__qualname__}",
            settings={
                "policy": engine.policy.name,
                "owners": owners and {name: list(each) for name, each in owners.terms.items()},
                **{name: getattr(engine, name) for name in SETTINGS},
            },
            **about,
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.engine, name)

    def add_job(self, job: str, now: float, *, kind: Kind | None = None, **settings: Any) -> None:
        """Add a job and record it. See `Engine.add_job`."""
        about = {} if kind is None else self._about(kind)
        self.engine.add_job(job, now, kind=kind, **settings)
        self._say("arrive", now=now, job=job, **settings, **about)

    def remove_job(
        self, job: str, now: float, outcome: str | None = None, *, ended: float | None = None
    ) -> None:
        """Remove a job and record it. See `Engine.remove_job`."""
        self.engine.jobs.row(job)
        self._catch_up(job)
        self.engine.remove_job(job, now, outcome, ended=ended)
        for event in FIRST:
            self._last.pop((event, job), None)
        self._say("leave", now=now, job=job, outcome=outcome)

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
        self._say("report", now=now, job=job, loss=loss, step=step)

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Add a task to the sum that is passed to the engine later. See `Engine.observe_task`."""
        self.engine.jobs.row(job)
        count, total, most = self._tasks.get(job, (0, 0.0, 0.0))
        self._tasks[job] = count + 1, total + float(seconds), max(most, float(at_once))

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide the grants and record the changes, also of the arguments. See `Engine`."""
        self._catch_up(*self._tasks)
        changes = self.engine.reallocate(workers, now, eligible=eligible, affinity=affinity)
        given: Event = {
            "workers": dict(sorted(workers.items())),
            "eligible": {job: sorted(where) for job, where in (eligible or {}).items()},
            "affinity": {job: dict(on) for job, on in (affinity or {}).items() if on},
        }
        news = {name: value for name, value in given.items() if value != self._inputs[name]}
        if "affinity" in news:  # of some of many jobs
            held, before = news["affinity"], self._inputs["affinity"]
            changed = {job: on for job, on in held.items() if before.get(job) != on}
            news["affinity"] = changed | {job: {} for job in before if job not in held}
        self._inputs = given
        grants = {job: grant_to_dict(grant) for job, grant in changes.items()}
        self._say("decide", now=now, **news, grants=grants)
        return changes

    def _say(self, event: str, **what: Any) -> None:
        self._write({"event": event, **what})

    def _about(self, kind: Kind) -> Event:
        """Return the fields that record a kind, after the past runs that are like it."""
        like = self._runs.of(self.engine.remembering.past_runs, kind)
        return {"kind": kind_to_dict(kind), "like": like}

    def _catch_up(self, *jobs: str) -> None:
        """Pass the summed task times of `jobs` to the engine and record them."""
        for job in jobs:
            if ended := self._tasks.pop(job, None):
                count, seconds, at_once = ended
                self.engine.observe_task(job, seconds, at_once)
                self._say("tasks", job=job, count=count, seconds=seconds, at_once=at_once)


def _forwarder(event: str, name: str) -> Callable[..., Any]:
    """Return the method that passes on a call and records it, unless it changed nothing."""
    method, first = getattr(Engine, name), FIRST.get(event)
    names = list(signature(method).parameters)[1:]

    def forward(self: Recorder, *args: Any, **given: Any) -> Any:
        result = method(self.engine, *args, **given)
        if result is False:
            return result
        known = dict(zip(names, args, strict=False)) | given
        key = event, known.get("job", "")
        asked, last = self._last.get(key, (None, first))
        if first is not None and asked == known:
            return result  # as for nearly all jobs at each decision
        fields = {name: _plain(value) for name, value in known.items()}
        if first is not None:
            changed = {name: value for name, value in fields.items() if name != "job"}
            self._last[key] = known, changed
            if last == changed:
                return result
        self._say(event, **fields)
        return result

    forward.__name__ = name
    forward.__doc__ = f"Record the call; see `Engine.{name}`."
    return forward


for _event, _name in CALLS.items():
    if _name not in vars(Recorder):
        setattr(Recorder, _name, _forwarder(_event, _name))


def _plain(value: Any) -> Any:
    """Return an argument as it is recorded."""
    if isinstance(value, OwnerTerms | set | frozenset):
        return list(value) if isinstance(value, OwnerTerms) else sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    return None if value != value else getattr(value, "name", value)  # a policy


def grant_to_dict(grant: Grant) -> Event:
    """Return the fields of a grant that are recorded."""
    about = {name: getattr(grant, name) for name in ("share", "index", "tokens")}
    return {**about, "workers": dict(grant.workers)}
