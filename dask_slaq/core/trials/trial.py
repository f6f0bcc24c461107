"""Trial of a search: the training of one model, and the row that tells of it."""

from __future__ import annotations

import math
from array import array
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dask_slaq.core.jobs.reports import LOST_REPORTS
from dask_slaq.core.search_settings import FEWEST_REPORTS
from dask_slaq.core.trials.losses import TrialCurve, TrialLosses
from dask_slaq.core.trials.trial_state import CHANGES, TrialState

#: Reports of a turn of a trial after the first one, after which it is compared with others.
TURN_REPORTS = 3
#: Seconds without a report after which what computes may need a lock that a waiting trial holds.
BLOCKED_SECONDS = 5.0

#: Standing of a model without a group, or whose candidate is not known yet; see `Trial`.
UNRANKED = 0.5, 0

#: Color of models by their state, in the order in which they are drawn: the last ones on top.
STATE_COLORS = {
    "pending": "#dddddd",
    "pruned": "#d9b3b3",
    "stopped": "#999999",
    "failed": "#d62728",
    "retried": "#e377c2",
    "waiting": "#ffb347",
    "migrating": "#b39ddb",
    "done": "#2ca02c",
    "training": "#1f77b4",
    "stalled": "#9467bd",
}


@dataclass(slots=True)
class FinalLoss:
    """Predicted final loss of a trial."""

    final: float = math.nan  # nan without a forecast
    low: float = math.nan  # lower end of the 80 % band
    high: float = math.nan
    least: float = -math.inf  # lowest final loss that is in its reach


@dataclass(slots=True)
class TimeSlice:
    """Turn of a trial, in reports."""

    begun_at: int = 0  # reports when the trial last began or went on
    first: int = FEWEST_REPORTS  # length of its first turn
    span: int = TURN_REPORTS  # length of the others
    yields: bool = False  # at its next report the trial waits


@dataclass(slots=True)
class Checkpoint:
    """Last state that a trial has kept."""

    usable: bool = False  # the trial reports states, and goes on from them: it may leave its worker
    reports: int = 0  # before it
    nbytes: int = 0


@dataclass(slots=True)
class Times:
    """Times of a trial, in seconds; `began` and `ended` are Unix times."""

    began: float = math.nan
    ended: float = math.nan
    computed: float = 0.0
    before: float = 0.0  # of these, for curves that no longer count
    waited: float = 0.0
    # Until its first report, and reports by then: its function begins anew where it goes.
    setup: tuple[float, int] = (0.0, 0)


@dataclass(slots=True, eq=False)
class Trial:
    """Training of one model, by reports of a loss that is lower for better models."""

    key: Hashable  # of its task
    worker: str  # that computes it
    name: str
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    params: Mapping[str, Any] = field(default_factory=dict)  # of its model, as far as known
    # Group in which it is compared, and the candidate that it is part of, if models have groups.
    group: str | None = None
    candidate: str | None = None
    hopeless: bool = False  # in its group, while its candidate is not given up
    standing: tuple[float, int] = UNRANKED  # mean rank of its candidate, and its steps
    reports: int = 0
    step: int = 0  # iterations so far: reports, unless these name their steps
    again: int = 0  # reports to come that it has made before: it goes on from an earlier state
    curve: int = 0  # curves before the present one, which no longer count
    losses: TrialLosses = field(default_factory=TrialLosses)
    others: dict[str, TrialCurve] = field(default_factory=dict)  # of its other metrics, as reported
    forecast: FinalLoss = field(default_factory=FinalLoss)
    score: float = math.inf  # order among the trials of a worker, lowest first
    times: Times = field(default_factory=Times)
    turn: TimeSlice = field(default_factory=TimeSlice)
    heard: float = math.inf  # when it last sent a message, in seconds of the caller's clock
    checkpoint: Checkpoint = field(default_factory=Checkpoint)
    state: TrialState = TrialState.TRAINS  # changed by `become`; `worker` is where it was last
    odd: str = ""  # change of its state that should not have been
    leads: bool = False  # it keeps its thread to its end, whatever others report
    shared: bool = False  # others want its result: it trains on, and is not given up
    verdict: str = ""  # "pruned" or "stopped" once its report has said so
    outcome: str = ""  # how it ended; empty while it has not
    error: str = ""  # with which its task failed
    lost: Trial | None = None  # as it had ended before its result was lost, or it was retried

    def begin_again(self) -> None:
        """Forget what it has reported, which no longer counts."""
        self.reports = self.step = self.again = 0
        self.losses, self.others = TrialLosses(), {}
        self.forecast, self.score = FinalLoss(), math.inf
        self.times.before, self.times.setup = self.times.computed, (0.0, 0)
        self.turn.begun_at, self.turn.yields = 0, False
        self.leads = self.hopeless = False
        self.lost, self.verdict = None, ""
        if not self.state.stays:
            self.become(TrialState.TRAINS)

    def become(self, state: TrialState) -> None:
        """Change the state. A change that `CHANGES` lacks is `odd`, and not made after the end."""
        if state is self.state:
            return
        if state not in CHANGES[self.state]:
            self.odd = f"{self.state.name} does not become {state.name}"
        if not self.state.ended:
            self.state = state

    @property
    def known(self) -> float:
        """Loss with which it had ended before its result was lost; nan if it had not."""
        done = self.lost is not None and self.lost.outcome == "done"
        return self.lost.losses.latest if self.lost is not None and done else math.nan

    @property
    def seconds_per_step(self) -> float:
        """Seconds that it computes per step, with what comes before the first."""
        return (self.times.computed - self.times.before) / max(self.step, 1)

    @property
    def pace(self) -> float:
        """Seconds that it computes per step, without what comes before the first."""
        seconds, steps = self.times.setup
        return (self.times.computed - seconds) / max(self.step - steps, 1)

    @property
    def setup(self) -> float:
        """Seconds that its function computes before the first step, as to load data."""
        seconds, steps = self.times.setup
        return max(seconds - steps * self.pace, 0.0) if self.step > steps else 0.0

    @property
    def doing(self) -> str:
        """What it does, or how it ended, in a word."""
        if self.state in (TrialState.STALLED, TrialState.MIGRATING):
            return self.state.value
        return self.outcome or ("waiting" if self.state.stays else "training")

    @property
    def explored(self) -> bool:
        """Whether it has made enough reports to be compared with others."""
        return self.reports >= self.turn.first

    @property
    def diverges(self) -> bool:
        """Whether it has no usable loss, or has had none for long."""
        return self.losses.missed > 0 and (
            self.losses.missed >= LOST_REPORTS or not self.losses.count
        )

    @property
    def in_turn(self) -> bool:
        """Whether it trains, and began or went on only few reports ago."""
        turn = self.turn
        span = turn.span if turn.begun_at else turn.first
        return self.reports - turn.begun_at < span and not self.state.waits

    def stalls(self, now: float, limit: float, slow: float = 10.0) -> bool:
        """Return whether it has made no report for more than `limit` seconds, as it had before.

        Nor for `slow` times the mean seconds of a report.
        """
        if not self.state.trains:
            return False
        before, silence = self.state, now - self.heard
        if not self.reports or silence <= slow * self.times.computed / self.reports:
            self.become(TrialState.TRAINS)
        elif silence > limit:
            self.become(TrialState.STALLED)
        else:
            self.become(TrialState.BLOCKED if silence > BLOCKED_SECONDS else TrialState.TRAINS)
        return self.state is TrialState.STALLED and before is not self.state


#: Times of a trial that its row has as they are.
_TIMES = ("computed", "waited", "began", "ended")


def row_of(trial: Trial, sign: float = 1.0, *, curves: bool = False) -> dict[str, Any]:
    """Return what clients see of a trial, with its losses times `sign`.

    With `curves`, there are their ``steps`` and ``losses``, as bytes of int64 and floats, and both
    of ``others`` by name.
    """
    known = math.nan if trial.state.ended else sign  # what has ended has no forecast any more
    losses, forecast = trial.losses, trial.forecast
    low, high = sorted((known * forecast.low, known * forecast.high))
    row = {name: getattr(trial.times, name) for name in _TIMES} | {
        "key": trial.key,
        "worker": trial.worker,
        "trial": trial.number,
        "iteration": trial.step,
        "loss": sign * losses.latest,
        "lowest": sign * losses.lowest,
        "lowest_step": losses.lowest_step,
        **{"predicted": known * forecast.final, "low": low, "high": high},
        "state": trial.doing,
        "error": trial.error,
        "params": dict(trial.params),
        "metrics": {name: curve.losses[-1] for name, curve in trial.others.items()},
    }
    if curves:
        row["steps"] = losses.curve.steps.tobytes()
        row["losses"] = (np.array(losses.curve.losses, float) * sign).tobytes()
        row["others"] = {
            name: (curve.steps.tobytes(), curve.losses.tobytes())
            for name, curve in trial.others.items()
        }
    return row


def trial_of(row: Mapping[str, Any], name: str, sign: float = 1.0) -> Trial:
    """Return a trial that has ended, from its row with curves."""
    trial = Trial(row["key"], row["worker"], name, row["trial"], row["params"])
    trial.reports = trial.step = row["iteration"]
    curve = _curve_of(row["steps"], row["losses"], sign)
    last = curve.steps[-1] if curve else 0
    trial.losses = TrialLosses(
        first=curve.losses[0] if curve else math.nan,
        latest=sign * row["loss"],
        lowest=sign * row["lowest"],
        lowest_step=row["lowest_step"],
        count=len(curve),
        last_step=last,
        missed=trial.step - last,
        curve=curve,
    )
    trial.others = {name: _curve_of(*parts) for name, parts in row["others"].items()}
    trial.times = Times(**{name: row[name] for name in _TIMES})
    trial.state, trial.outcome, trial.error = TrialState.ENDED, row["state"], row["error"]
    return trial


def _curve_of(steps: bytes, losses: bytes, sign: float = 1.0) -> TrialCurve:
    """Return a curve from its bytes, with losses times `sign`."""
    curve = TrialCurve()
    for step, loss in zip(array("q", steps), array("d", losses), strict=True):
        curve.add(step, sign * loss)
    return curve
