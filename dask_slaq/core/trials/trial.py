"""Trial of a search: the training of one model, and the row that tells of it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_slaq.core.jobs.reports import LOST
from dask_slaq.core.search_settings import EXPLORE
from dask_slaq.core.trials.curve import Curve

__all__ = ["HELD_UP", "TURN", "Trial", "row_of", "trial_of"]

#: Reports of each turn after the first.
TURN = 3
#: Factor of the mean seconds of a report beyond which a trial is silent.
SILENT = 10.0
#: Seconds without a report after which what computes may need a lock that a waiting trial holds.
HELD_UP = 5.0


@dataclass(slots=True, eq=False)
class Trial:
    """Training of one model, by reports of a loss that is lower for better models."""

    key: Hashable  # of its task
    worker: str  # that computes it
    name: str
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    reports: int = 0
    step: int = 0  # iterations so far: reports, unless these name their steps
    missed: int = 0  # latest reports without a usable loss
    first: float = math.nan  # first usable loss, unless it was huge
    loss: float = math.nan  # latest usable loss
    lowest: float = math.nan  # lowest usable loss, and its step
    lowest_step: int = 0
    usable: int = 0  # reports with a usable loss
    noise: float = 0.0  # standard deviation of the latest of these
    left: bool = False  # whether the mean of the last ones is farther from its first level
    leaves: bool = False  # whether the latest one is
    last: int = 0  # step of the latest of them
    stride: float = 1.0  # mean steps between two of them
    computed: float = 0.0  # seconds
    before: float = 0.0  # of these, for curves that no longer count
    waited: float = 0.0  # seconds
    waits: bool = False  # in its report, or has given up its thread by itself
    yields: bool = False  # it was told to wait, and does at its next report
    turn: int = 0  # number of reports when it last began or went on
    predicted: float = math.nan  # final loss; nan without a forecast
    low: float = math.nan  # lower end of the 80 % band of `predicted`
    high: float = math.nan
    score: float = math.inf  # order among the trials of a worker, lowest first
    verdict: str = ""  # "pruned" or "stopped" once its report has said so
    outcome: str = ""  # how it ended; empty while it has not
    least: float = -math.inf  # lowest final loss that is in its reach
    lost: Trial | None = None  # as it had ended before its result was lost, or it was retried
    moves: bool = False  # it may leave its worker: it reports states, and goes on from them
    kept: int = 0  # reports at its last state
    nbytes: int = 0  # of its states
    span: int = TURN  # reports of a turn
    away: bool = False  # on no worker, or on its way to one; `worker` is where it was
    heard: float = math.inf  # when it last sent a message, in seconds of the caller's clock
    silent: bool = False  # it trains, and has sent none for long
    held_up: bool = False  # the same, and others may have its turn
    leads: bool = False  # it keeps its thread to its end, whatever others report
    explore: int = EXPLORE  # reports of its first turn
    shared: bool = False  # others want its result: it trains on, and is not given up
    again: int = 0  # reports to come that it has made before: it goes on from an earlier state
    curve: Curve = field(default_factory=Curve)  # of its losses
    others: dict[str, Curve] = field(default_factory=dict)  # of its other metrics, as reported
    params: Mapping[str, Any] = field(default_factory=dict)  # of its model, as far as known
    began: float = math.nan  # Unix seconds
    ended: float = math.nan
    error: str = ""  # with which its task failed
    # Seconds until its first report, and reports by then: its function begins anew where it goes.
    begin: tuple[float, int] = (0.0, 0)

    @property
    def known(self) -> float:
        """Loss with which it had ended before its result was lost; nan if it had not."""
        done = self.lost is not None and self.lost.outcome == "done"
        return self.lost.loss if self.lost is not None and done else math.nan

    @property
    def pace(self) -> float:
        """Seconds that it computes per step, without what comes before the first."""
        seconds, steps = self.begin
        return (self.computed - seconds) / max(self.step - steps, 1)

    @property
    def setup(self) -> float:
        """Seconds that its function computes before the first step, as to load data."""
        seconds, steps = self.begin
        return max(seconds - steps * self.pace, 0.0) if self.step > steps else 0.0

    @property
    def doing(self) -> str:
        """What it does, in a word, while it has not ended."""
        if self.waits:
            return "away" if self.away else "waiting"
        return "silent" if self.silent else "training"

    @property
    def explored(self) -> bool:
        """Whether it has made enough reports to be compared with others."""
        return self.reports >= self.explore

    @property
    def diverges(self) -> bool:
        """Whether it has no usable loss, or has had none for long."""
        return self.missed > 0 and (self.missed >= LOST or not self.usable)

    @property
    def in_turn(self) -> bool:
        """Whether it trains, and began or went on only few reports ago."""
        span = self.span if self.turn else self.explore
        return not self.waits and self.reports - self.turn < span

    def falls_silent(self, now: float, limit: float) -> bool:
        """Return whether it has been silent for more than `limit` seconds, and was not before."""
        before, self.silent, self.held_up = self.silent, False, False
        if self.waits or self.away or not self.reports:
            return False
        silence = now - self.heard
        if silence <= SILENT * self.computed / self.reports:
            return False
        self.silent = silence > limit
        self.held_up = self.silent or silence > HELD_UP
        return self.silent and not before


#: Attributes of a trial that its row has as they are.
_IN_ROW = ("key", "worker", "lowest_step", "computed", "waited", "began", "ended", "error")


def row_of(trial: Trial, sign: float = 1.0, *, curves: bool = False) -> dict[str, Any]:
    """Return what is told of a trial, with its losses times `sign`.

    With `curves`, there are their ``steps`` and ``losses``, as bytes of int64 and floats, and both
    of ``others`` by name.
    """
    known = math.nan if trial.outcome else sign  # what has ended has no forecast any more
    low, high = sorted((known * trial.low, known * trial.high))
    row = {name: getattr(trial, name) for name in _IN_ROW} | {
        "trial": trial.number,
        "iteration": trial.step,
        "loss": sign * trial.loss,
        "lowest": sign * trial.lowest,
        **{"predicted": known * trial.predicted, "low": low, "high": high},
        "state": trial.outcome or trial.doing,
        "params": dict(trial.params),
        "metrics": {name: curve.losses[-1] for name, curve in trial.others.items()},
    }
    if curves:
        row["steps"] = trial.curve.steps.tobytes()
        row["losses"] = (np.array(trial.curve.losses, float) * sign).tobytes()
        row["others"] = {
            name: (curve.steps.tobytes(), curve.losses.tobytes())
            for name, curve in trial.others.items()
        }
    return row


def trial_of(row: Mapping[str, Any], name: str, sign: float = 1.0) -> Trial:
    """Return a trial that has ended, from its row with curves."""
    trial = Trial(row["key"], row["worker"], name, row["trial"])
    trial.reports = trial.step = row["iteration"]
    trial.curve = _curve_of(row["steps"], row["losses"], sign)
    trial.others = {name: _curve_of(*parts) for name, parts in row["others"].items()}
    trial.usable, trial.loss = len(trial.curve), sign * row["loss"]
    trial.lowest, trial.lowest_step = sign * row["lowest"], row["lowest_step"]
    trial.last = trial.curve.steps[-1] if trial.usable else 0
    trial.missed = trial.step - trial.last
    for each in ("params", "computed", "waited", "began", "ended", "error"):
        setattr(trial, each, row[each])
    trial.outcome = row["state"]
    if trial.usable:
        trial.first = trial.curve.losses[0]
    return trial


def _curve_of(steps: bytes, losses: bytes, sign: float = 1.0) -> Curve:
    """Return a curve from its bytes, with losses times `sign`."""
    curve = Curve()
    for step, loss in zip(array("q", steps), array("d", losses), strict=True):
        curve.add(step, sign * loss)
    return curve
