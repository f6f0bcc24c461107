"""Past runs in recordings: each one is recorded once, and by its number from then on."""

from __future__ import annotations

import itertools
import math
import weakref
from collections.abc import Callable

import numpy as np

from dask_slaq.core.memory import MOST_LIKE, Kind, PastRun, PastRuns, distance
from dask_slaq.core.recording.events import BadEvent, Event

__all__ = ["Recalled", "RunNumbers", "kind_from_dict", "kind_to_dict"]


class RunNumbers:
    """Numbers of the past runs that a recording holds. Each new one is passed to `write`."""

    def __init__(self, write: Callable[[Event], object]) -> None:
        self._write = write
        # Of those that are remembered still: a log goes on for longer.
        self._number = weakref.WeakKeyDictionary[PastRun, int]()
        self._next = itertools.count()

    def of(self, memory: PastRuns | None, kind: Kind) -> list[int]:
        """Return the numbers of the runs in `memory` like a `kind`, and record new ones."""
        like = [] if memory is None else [run for run, _ in memory.like(kind)]
        for run in like:
            if run not in self._number:
                self._number[run] = number = next(self._next)
                self._write({"event": "past_run", "run": number, **_run_to_dict(run)})
        return [self._number[run] for run in like]


class Recalled(PastRuns):
    """Memory of a replay: of the past runs in a log, those that the next job drew on are like it.

    What was remembered besides them when the log was written does not matter, so a log can be
    replayed without the store of runs.
    """

    def __init__(self) -> None:
        super().__init__()
        self._recorded: dict[int, PastRun] = {}
        self._next: list[PastRun] = []

    def record(self, event: Event) -> None:
        """Take in an event of a past run."""
        self._recorded[event["run"]] = _run_from_dict(event)

    def expect(self, numbers: list[int]) -> None:
        """Set the runs like the job that is added next. Raises `BadEvent` for unknown numbers."""
        if missing := [number for number in numbers if number not in self._recorded]:
            raise BadEvent(f"past run {missing[0]} is missing in the log")
        self._next = [self._recorded[number] for number in numbers]

    def add(self, run: PastRun) -> None:
        """Ignore a run that ended: the log names the runs that later jobs draw on."""

    def like(self, kind: Kind) -> list[tuple[PastRun, float]]:
        """Return the runs that the log names. See `PastRuns.like`."""
        return [(run, distance(kind, run.kind)) for run in self._next[:MOST_LIKE]]


def kind_to_dict(kind: Kind) -> Event:
    """Return the fields of a kind that are recorded."""
    return {"name": kind.name, "features": {name: float(x) for name, x in kind.features}}


def kind_from_dict(fields: Event) -> Kind:
    """Return a recorded kind."""
    return Kind(fields["name"], tuple((name, float(x)) for name, x in fields["features"].items()))


def _run_to_dict(run: PastRun) -> Event:
    return {
        "job": run.job,
        "kind": kind_to_dict(run.kind),
        "iteration": run.iteration.tolist(),
        "loss": run.loss.tolist(),
        "iterations": run.iterations,
        "outcome": run.outcome,
        "work": None if math.isnan(run.work) else run.work,
        "tasks": None if math.isnan(run.tasks) else run.tasks,
        "law": None if run.law is None else list(run.law),
        "ended": run.ended,
    }


def _run_from_dict(fields: Event) -> PastRun:
    return PastRun(
        fields["job"],
        kind_from_dict(fields["kind"]),
        np.array(fields["iteration"], np.int64),
        np.array(fields["loss"], np.float64),
        fields["iterations"],
        fields["outcome"],
        math.nan if fields["work"] is None else fields["work"],
        math.nan if fields["tasks"] is None else fields["tasks"],
        None if fields["law"] is None else tuple(fields["law"]),
        fields["ended"],
    )
