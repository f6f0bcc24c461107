"""Replay of recorded events on a new engine, and comparison of its decisions with the recorded."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import LossPredictor
from dask_slaq.core.job_settings import JOB_SETTINGS
from dask_slaq.core.recording.events import (
    CALLS,
    VERSION,
    BadEvent,
    Event,
    check,
    read_settings,
    read_terms,
)
from dask_slaq.core.recording.recalled import Recalled, kind_from_dict
from dask_slaq.core.recording.recorder import grant_to_dict

__all__ = ["Difference", "Replay", "replay"]

#: Name of the default predictor, and its name in logs up to version 4.
_OWN = (
    f"{LossPredictor.__module__}.{LossPredictor.__qualname__}",
    "dask_slaq.core.loss.LossPredictor",
)


@dataclass(frozen=True)
class Difference:
    """Difference between a replayed decision and the recorded one.

    ``decision`` counts from 1, and ``time`` is in seconds on the clock of the recording. ``field``
    is one of the grant, or "grant" if only one of the two decisions changed the job's grant.
    """

    decision: int
    time: float
    job: str
    field: str
    recorded: Any
    replayed: Any

    def __str__(self) -> str:
        return (
            f"decision {self.decision} (at {self.time:.3f} s) differs in the {self.field} of job "
            f"{self.job!r}: {self.recorded!r} was recorded, {self.replayed!r} replayed"
        )


class Replay:
    """Replay of a log, event by event, which counts decisions and those equal to the recorded.

    ``skipped`` decisions could not be replayed, and ``why`` says the reason. ``difference`` is the
    first one. ``version`` is the oldest format version of the recordings in the log.
    """

    def __init__(self) -> None:
        self.decisions = self.reproduced = self.skipped = 0
        self.why = ""
        self.version = VERSION
        self.difference: Difference | None = None
        self._begun = False
        self._engine: Engine | None = None
        self._memory = Recalled()
        self._time = 0.0
        self._workers: dict[str, int] = {}
        self._eligible: dict[str, list[str]] = {}
        self._affinity: dict[str, dict[str, float]] = {}

    def feed(self, event: Any) -> None:
        """Replay the next event, or raise a `SlaqError` if no recorder writes this event here."""
        kind = check(event)
        if kind == "start":
            self._start(event)
            return
        if not self._begun:
            raise BadEvent(f"{kind!r} comes before 'start'")
        time = event.get("time", self._time)
        if time < self._time:
            raise BadEvent(f"the time goes back, from {self._time!r} to {time!r} s")
        self._time = time
        if kind == "dropped":
            self._engine, self.why = None, "an event before them could not be recorded"
        elif self._engine is None:
            self.skipped += kind == "decide"
        elif kind == "decide":
            self._decide(self._engine, event)
        elif kind == "past_run":
            self._memory.record(event)
        else:
            if kind in ("arrive", "kind"):
                self._memory.expect(event.get("like", []))
            _apply(self._engine, kind, event)

    def _start(self, event: Event) -> None:
        if event["version"] > VERSION:
            raise BadEvent(f"version {event['version']} of the log is newer than {VERSION}")
        self.version = min(self.version, event["version"])
        if event.get("continued"):  # another file of one recording
            if not self._begun:
                self.why = "the beginning of the recording is gone"
            self._begun = True
            return
        self._begun, self._engine, self._time = True, None, event["time"]
        self._workers, self._eligible, self._affinity = {}, {}, {}
        if event["predictor"] not in _OWN:
            self.why = f"they were made with the predictor {event['predictor']}"
            return
        owners = event.get("owners")
        self._memory = Recalled()
        self._engine = Engine(
            event["policy"],
            epoch=event["epoch"],
            normalizer=event["normalizer"],
            floor=event["floor"],
            latest=_infinite(event.get("latest")),
            move_pause=event["move_pause"],
            strict=event["strict"],
            owners=owners and {owner: read_terms(terms) for owner, terms in owners.items()},
            memory=self._memory,
        )

    def _decide(self, engine: Engine, event: Event) -> None:
        self._workers = event.get("workers", self._workers)
        self._eligible = event.get("eligible", self._eligible)
        self._affinity.update(event.get("affinity", {}))
        self._affinity = {job: on for job, on in self._affinity.items() if on}
        changes = engine.reallocate(
            self._workers, event["time"], eligible=self._eligible, affinity=self._affinity
        )
        self.decisions += 1
        recorded = event["grants"]
        replayed = {job: grant_to_dict(grant) for job, grant in changes.items()}
        found = _first_difference(recorded, replayed)
        if found is None:
            self.reproduced += 1
        elif self.difference is None:
            self.difference = Difference(self.decisions, event["time"], *found)


def replay(events: Iterable[Any]) -> Replay:
    """Replay all events of a log. See `Replay.feed`."""
    found = Replay()
    for event in events:
        found.feed(event)
    return found


def _apply(engine: Engine, kind: str, event: Event) -> None:
    """Apply an event other than a decision to an engine."""
    if kind in ("taken", "recomputed"):  # of earlier releases, without an effect now
        return
    if (call := CALLS.get(kind)) is not None:
        fields = call.fields.items()
        given = {name: of.read(event.get(name, of.unless)) for name, of in fields}
        getattr(engine, call.method)(**given)
        return
    job = event["job"]
    if kind == "arrive":
        given = {**read_settings(event), "reports": event["reports"]}
        if "kind" in event:
            given["kind"] = kind_from_dict(event["kind"])
        whose = {name: event.get(name, "") for name in ("owner", "search")}
        engine.add_job(job, event["time"], **whose, **given)
    elif kind == "tasks":
        engine.observe_task(job, event["seconds"], event["at_once"])
    elif kind == "report":
        loss = math.nan if event["loss"] is None else event["loss"]
        engine.report(job, loss, event["time"], event.get("step"))
    elif kind == "set":
        engine.set_job(
            job, **{name: _removed(name, value) for name, value in read_settings(event).items()}
        )
    elif kind == "kind":
        engine.set_kind(job, kind_from_dict(event["kind"]))
    else:
        engine.remove_job(job, event["time"], event.get("outcome"))


def _infinite(value: float | None) -> float:
    return math.inf if value is None else value


def _removed(name: str, value: Any) -> Any:
    """Return the value of a setting for a change; None stands for what removes it, if any does."""
    empty = JOB_SETTINGS[name].empty
    return empty if value is None and not math.isnan(empty) else value


def _first_difference(
    recorded: dict[str, Any], replayed: dict[str, Any]
) -> tuple[str, str, Any, Any] | None:
    """Return job, field and both values of the first difference by name; None if there is none."""
    for job in sorted({*recorded, *replayed}):
        was, now = recorded.get(job), replayed.get(job)
        if was is None or now is None:
            return job, "grant", was, now
        for field, value in now.items():
            there = was.get(field)
            if there != value and not (there != there and value != value):  # nan is nan
                return job, field, there, value
    return None
