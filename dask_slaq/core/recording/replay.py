"""Replaying: recorded events drive a fresh engine, and its decisions are compared."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import LossPredictor
from dask_slaq.core.recording.events import VERSION, BadEvent, Event, check
from dask_slaq.core.recording.recorder import grant_to_dict

__all__ = ["Difference", "Replay", "replay"]

#: The default predictor, and the name that it has in logs up to version 4.
_OWN = (
    f"{LossPredictor.__module__}.{LossPredictor.__qualname__}",
    "dask_slaq.core.loss.LossPredictor",
)


@dataclass(frozen=True)
class Difference:
    """Where a replayed decision is not the recorded one.

    Attributes
    ----------
    decision : int
        Its number, from 1.
    time : float
        Seconds, on the clock of the recording.
    job : str
    field : str
        Of the grant; `grant` where only one of both granted the job something new.
    recorded, replayed : object
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
    """Feeds events to a fresh engine, one after another.

    Attributes
    ----------
    decisions, reproduced, skipped : int
        Decisions that were replayed, those of them that came out as recorded, and those that
        could not be replayed.
    why : str
        Why they could not.
    difference : Difference or None
        The first one.
    version : int
        The oldest version of the log among its recordings.
    """

    def __init__(self) -> None:
        self.decisions = self.reproduced = self.skipped = 0
        self.why = ""
        self.version = VERSION
        self.difference: Difference | None = None
        self._begun = False
        self._engine: Engine | None = None
        self._time = 0.0
        self._workers: dict[str, int] = {}
        self._eligible: dict[str, list[str]] = {}
        self._affinity: dict[str, dict[str, float]] = {}

    def feed(self, event: Any) -> None:
        """Take the next event.

        Raises
        ------
        SlaqError
            `BadEvent`, or what the engine raises: no recorder wrote it there.
        """
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
        else:
            _tell(self._engine, kind, event)

    def _start(self, event: Event) -> None:
        if event["version"] > VERSION:
            raise BadEvent(f"version {event['version']} of the log is newer than {VERSION}")
        self.version = min(self.version, event["version"])
        if event.get("continued"):  # another file of the same recording
            if not self._begun:
                self.why = "the beginning of the recording is gone"
            self._begun = True
            return
        self._begun, self._engine, self._time = True, None, event["time"]
        self._workers, self._eligible, self._affinity = {}, {}, {}
        if event["predictor"] not in _OWN:
            self.why = f"they were made with the predictor {event['predictor']}"
            return
        self._engine = Engine(
            event["policy"],
            epoch=event["epoch"],
            normalizer=event["normalizer"],
            floor=event["floor"],
            move_pause=event["move_pause"],
            strict=event["strict"],
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
    """Replay all events.

    Raises
    ------
    SlaqError
        Where an event is not one that a recorder writes.
    """
    found = Replay()
    for event in events:
        found.feed(event)
    return found


def _tell(engine: Engine, kind: str, event: Event) -> None:
    """Tell an engine what happened between two decisions."""
    if kind == "taken":  # nobody tells it any more
        return
    job = event["job"]
    if kind == "arrive":
        names = ("weight", "min_share", "max_share", "target", "reports")
        engine.add_job(job, event["time"], **{name: event[name] for name in names})
    elif kind == "tasks":
        engine.observe_task(job, event["seconds"], event["at_once"])
    elif kind == "report":
        engine.report(job, event["loss"], event["time"])
    elif kind == "floor":
        engine.set_floor(job, event["threads"])
    elif kind == "max_iter":
        engine.set_max_iter(job, event["max_iter"])
    elif kind == "demand":
        engine.observe_demand(job, event["tasks"])
    else:
        engine.remove_job(job, event["time"])


def _first_difference(
    recorded: dict[str, Any], replayed: dict[str, Any]
) -> tuple[str, str, Any, Any] | None:
    """Job, field and both values of where two decisions differ first, by name."""
    for job in sorted({*recorded, *replayed}):
        was, now = recorded.get(job), replayed.get(job)
        if was is None or now is None:
            return job, "grant", was, now
        for field, value in now.items():
            there = was.get(field)
            if there != value and not (there != there and value != value):  # nan is nan
                return job, field, there, value
    return None
