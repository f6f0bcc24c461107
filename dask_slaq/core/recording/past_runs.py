"""Past runs in recordings: each one is recorded once, and by its number from then on."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.run_history import MOST_LIKE_RUNS, Kind, PastRun, PastRuns, distance

#: An event is a dict of plain values, as JSON of Python has them, also nan and inf.
Event = dict[str, Any]


class BadEvent(SlaqError, ValueError):
    """Raised for an event that no recorder writes, or that comes in the wrong place."""


class RunNumbers:
    """Numbers of the past runs that a recording holds. Each new one is passed to `write`."""

    def __init__(self, write: Callable[[Event], object]) -> None:
        self._write = write
        # Of those that are remembered still: a log goes on for longer.
        self._number = weakref.WeakKeyDictionary[PastRun, int]()
        self._next = itertools.count()

    def of(self, past_runs: PastRuns | None, kind: Kind) -> list[int]:
        """Return the numbers of the runs in `past_runs` like a `kind`, and record new ones."""
        like = [] if past_runs is None else [run for run, _ in past_runs.like(kind)]
        for run in like:
            if run not in self._number:
                self._number[run] = number = next(self._next)
                curve = {"iteration": run.iteration.tolist(), "loss": run.loss.tolist()}
                about = {**vars(run), "kind": kind_to_dict(run.kind), **curve}
                self._write({"event": "past_run", "run": number, **about})
        return [self._number[run] for run in like]


class Recalled(PastRuns):
    """Past runs of a replay, in which those past runs are like the next job that the log names."""

    def __init__(self) -> None:
        super().__init__()
        self._recorded: dict[int, PastRun] = {}
        self._next: list[PastRun] = []

    def record(self, event: Event) -> None:
        """Take in an event of a past run."""
        about = {name: value for name, value in event.items() if name not in ("event", "run")}
        about["kind"] = kind_from_dict(about["kind"])
        about["iteration"] = np.array(about["iteration"], np.int64)
        about["loss"] = np.array(about["loss"], np.float64)
        about["law"] = about["law"] and tuple(about["law"])
        self._recorded[event["run"]] = PastRun(**about)

    def expect(self, numbers: list[int]) -> None:
        """Set the runs like the job that is added next. Raises `BadEvent` for unknown numbers."""
        if missing := [number for number in numbers if number not in self._recorded]:
            raise BadEvent(f"past run {missing[0]} is missing in the log")
        self._next = [self._recorded[number] for number in numbers]

    def add(self, run: PastRun) -> None:
        """Ignore a run that ended: the log names the runs that later jobs draw on."""

    def like(self, kind: Kind) -> list[tuple[PastRun, float]]:
        """Return the runs that the log names. See `PastRuns.like`."""
        return [(run, distance(kind, run.kind)) for run in self._next[:MOST_LIKE_RUNS]]


def kind_to_dict(kind: Kind) -> Event:
    """Return the fields of a kind that are recorded."""
    return {"name": kind.name, "features": {name: float(x) for name, x in kind.features}}


def kind_from_dict(fields: Event) -> Kind:
    """Return a recorded kind."""
    return Kind(fields["name"], tuple((name, float(x)) for name, x in fields["features"].items()))
