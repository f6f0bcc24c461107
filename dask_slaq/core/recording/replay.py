"""Replay of recorded events on a new engine, and comparison of its decisions with the recorded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import SlaqError
from dask_slaq.core.forecast import LossPredictor, predictor_named
from dask_slaq.core.owners.terms import OwnerTerms
from dask_slaq.core.recording.past_runs import BadEvent, Event, Recalled, kind_from_dict
from dask_slaq.core.recording.recorder import CALLS, FORMAT_VERSION, grant_to_dict

#: Predictors that an engine can make itself, by what a log calls them.
_OWN = {
    f"{LossPredictor.__module__}.{LossPredictor.__qualname__}": None,
    "dask_slaq.core.forecast.paper.PaperPredictor": "paper",
}
#: How arguments are read back that were not recorded as they are.
READ: dict[str, Callable[[Any], Any]] = {
    "kind": kind_from_dict,
    "terms": lambda terms: OwnerTerms(*terms),
    "seconds": lambda seconds: math.nan if seconds is None else seconds,
}


@dataclass(frozen=True)
class Difference:
    """Difference between a replayed decision, counted from 1, and the recorded one."""

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
    """Replay of a log, event by event: how many decisions were reproduced, and what differs."""

    def __init__(self) -> None:
        self.decisions = self.reproduced = self.skipped = 0
        self.why = ""
        self.difference: Difference | None = None
        self._begun = False
        self._engine: Engine | None = None
        self._past_runs = Recalled()
        self._now = 0.0
        self._inputs: Event = {}

    @property
    def engine(self) -> Engine | None:
        """The engine that replays; None if decisions cannot be replayed."""
        return self._engine

    def feed(self, event: Any) -> None:
        """Replay the next event, or raise a `SlaqError` if no recorder writes this event here."""
        try:
            self._feed(event["event"], event)
        except SlaqError:
            raise
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            words = f"{type(error).__name__}: {error}"
            raise BadEvent(f"no recorder writes {event!r:.60} here ({words:.100})") from error

    def _feed(self, kind: str, event: Event) -> None:
        if kind == "start":
            self._start(event)
            return
        if not self._begun:
            raise BadEvent(f"{kind!r} comes before 'start'")
        now = event.get("now", self._now)
        if not now >= self._now:
            raise BadEvent(f"the time goes back, from {self._now!r} to {now!r} s")
        self._now = now
        if kind == "dropped":
            self._engine, self.why = None, "an event before them could not be recorded"
        elif self._engine is None:
            self.skipped += kind == "decide"
        elif kind == "decide":
            self._decide(self._engine, event)
        elif kind == "past_run":
            self._past_runs.record(event)
        else:
            self._past_runs.expect(event.get("like", []))
            given = {
                name: READ[name](value) if name in READ else value
                for name, value in event.items()
                if name not in ("event", "like", "count")
            }
            getattr(self._engine, CALLS[kind])(**given)

    def _start(self, event: Event) -> None:
        if event["version"] != FORMAT_VERSION:
            raise BadEvent(
                f"the log is of version {event['version']}, and this release reads "
                f"{FORMAT_VERSION}: replay it with the one that recorded it"
            )
        if event.get("continued"):  # another file of one recording
            if not self._begun:
                self.why = "the beginning of the recording is gone"
            self._begun = True
            return
        self._begun, self._engine, self._now = True, None, event["now"]
        self._inputs = {"workers": {}, "eligible": {}, "affinity": {}}
        if event["predictor"] not in _OWN:
            self.why = f"they were made with the predictor {event['predictor']}"
            return
        self._past_runs = Recalled()
        settings = dict(event["settings"])
        settings.pop("strict", None)  # of older versions
        if (owners := settings["owners"]) is not None:
            settings["owners"] = {name: OwnerTerms(*terms) for name, terms in owners.items()}
        made = predictor_named(_OWN[event["predictor"]], self._past_runs)
        self._engine = Engine(**settings, predictor=made, past_runs=self._past_runs)

    def _decide(self, engine: Engine, event: Event) -> None:
        held = self._inputs["affinity"] | event.get("affinity", {})
        self._inputs |= {name: event[name] for name in self._inputs if name in event}
        self._inputs["affinity"] = {job: on for job, on in held.items() if on}
        changes = engine.reallocate(now=event["now"], **self._inputs)
        self.decisions += 1
        replayed = {job: grant_to_dict(grant) for job, grant in changes.items()}
        found = _first_difference(event["grants"], replayed)
        if found is None:
            self.reproduced += 1
        elif self.difference is None:
            self.difference = Difference(self.decisions, event["now"], *found)


def replay(events: Iterable[Any]) -> Replay:
    """Replay all events of a log. See `Replay.feed`."""
    found = Replay()
    for event in events:
        found.feed(event)
    return found


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
