"""Goals of jobs, and the alerts that a curve tells: reached, late, converged, and others."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.forecast import NOISE_DEVIATIONS, FitStatus, in_logs
from dask_slaq.core.jobs.reports import LOST_REPORTS
from dask_slaq.scheduler.jobs.admission import KnownJobs
from dask_slaq.scheduler.jobs.values import etas

__all__ = ["Goals"]

#: Part of its predicted range below which the fall to come counts as nothing.
NOTHING_PART = 0.01
#: Reports in which a job that is taken to have converged has not fallen, or to have diverged has
#: stayed above its first loss.
SEEN_REPORTS = 32
#: What is said of a job that ended.
_ENDS = {
    "done": "ended",
    "stopped": "was stopped",
    "failed": "failed",
    "lost": "was lost with its client, the scheduler or the plugin",
}
#: What is said of scores instead.
_OF_SCORES = {"losses": "scores", "loss": "score", "above": "below"}
_OF_SCORES |= {"fallen": "risen", "risen": "fallen"}


@dataclass
class JobGoal:
    """Goal of one job."""

    reduction: float | None  # target as a part of the predicted range of the loss, in (0, 1)
    deadline: float | None  # monotonic seconds by which the target should be reached
    stop: bool  # whether to stop the job at its target; otherwise it shrinks to its floor
    reached: bool = False
    most: float | None = None  # cap in threads before it reached its target
    seen: int = 0
    rising: tuple[int, float] | None = None  # reports since when it diverges, and highest level
    flat: tuple[int, float] | None = None  # reports and fall, since when it falls no more
    alerted: set[str] = field(default_factory=set)
    began: float = field(default_factory=monotonic)
    maximizes: bool = False  # its losses are scores, negated

    def say(self, text: str, *losses: float) -> str:
        """Return a text with losses, or with scores where these are what is reported."""
        if self.maximizes:
            text = re.sub("|".join(_OF_SCORES), lambda found: _OF_SCORES[found[0]], text)
            losses = tuple(-loss for loss in losses)
        return text % losses

    @property
    def is_awaited(self) -> bool:
        """Whether the job must be looked at even if its curve shows nothing new."""
        return (self.reduction, self.rising, self.flat) != (None, None, None)


class ForecastedCurves(NamedTuple):
    """Forecasts of some jobs, in raw loss units (n_jobs,), or of one: numbers.

    `target` is nan without one. What fell, remains and is noise is in logs where `in_logs`.
    """

    start: Any
    level: Any
    fallen: Any
    remaining: Any
    status: Any
    noise: Any
    missed: Any  # last reports without a usable loss
    target: Any
    in_logs: Any

    @property
    def span(self) -> Any:
        """Predicted range of the loss."""
        return self.fallen + self.remaining

    @property
    def is_flat(self) -> Any:
        """Whether hardly any fall is to come, of its range or of its noise."""
        size = np.maximum(self.span, NOISE_DEVIATIONS * self.noise)
        return (self.status == FitStatus.OK) & (self.remaining < NOTHING_PART * size)

    @property
    def diverges(self) -> Any:
        """Whether the loss rises above its first one, or can no longer be used."""
        rises = (self.status == FitStatus.DIVERGING) & (self.level > self.start)
        return rises | (self.missed >= LOST_REPORTS)

    @property
    def is_eventful(self) -> Any:
        """Whether there may be something to say of the job."""
        return (self.target == self.target) | self.diverges | self.is_flat

    def of(self, row: int) -> ForecastedCurves:
        """Return the forecast of one job."""
        return ForecastedCurves(*(column[row].item() for column in self))


class Goals:
    """Goals of all jobs that report. Call `check` once per epoch."""

    def __init__(self, jobs: KnownJobs) -> None:
        self._jobs = jobs
        self._goals: dict[str, JobGoal] = {}

    def begin(
        self,
        name: str,
        *,
        target: float | None = None,
        target_kind: str = "loss",
        by: float | None = None,
        stop: bool = False,
    ) -> None:
        """Follow a new job, which should reach its target within `by` seconds.

        The `target_kind` is ``"loss"`` or ``"reduction"``.
        """
        self._goals[name] = JobGoal(
            target if target_kind == "reduction" else None,
            None if by is None else monotonic() + by,
            stop,
        )

    def maximize(self, name: str) -> None:
        """Record that a job, whose losses are negated, has scores: it is of a search of those."""
        self._goals[name].maximizes = True

    def begin_again(self, name: str) -> None:
        """Forget what the loss of a job has been, since its training begins again."""
        goal = self._goals.get(name)
        if goal is not None:
            if self.is_good_enough(name):
                self._jobs.cap(name, goal.most)
            goal.reached, goal.rising, goal.flat = False, None, None
            goal.alerted.clear()

    def end(self, name: str, outcome: str) -> dict[str, Any] | None:
        """Forget a job that ended, and return the alert; None if it was not followed.

        The `outcome` is ``"done"``, ``"stopped"``, ``"failed"`` or ``"lost"``.
        """
        goal = self._goals.pop(name, None)
        if goal is None:
            return None
        job, seconds = self._jobs.engine.jobs[name], monotonic() - goal.began
        loss = job.loss if np.isfinite(job.loss) else None
        message = f"{_ENDS[outcome]} after {job.iteration} iterations and {seconds:.3g} s"
        if loss is not None:
            message += goal.say(" with a loss of %.4g", loss)
            loss = -loss if goal.maximizes else loss
        numbers = {"iteration": job.iteration, "loss": loss, "seconds": seconds}
        return self._alert(name, outcome, message, **numbers)

    def is_good_enough(self, name: str) -> bool:
        """Return whether a job reached its target and was shrunk to its floor for that."""
        goal = self._goals.get(name)
        if goal is None or not goal.reached or goal.stop:
            return False
        most = self._jobs.engine.jobs[name].max_share
        return most is not None and most <= self._shrunk(name)

    def check(self) -> None:
        """Act on reached targets, and send the alerts that are due."""
        reports = self._jobs.reports
        new = [name for name, goal in self._goals.items() if reports.get(name, 0) > goal.seen]
        if not new:
            return
        curves = self._curves(new)
        for row, (name, is_eventful) in enumerate(
            zip(new, curves.is_eventful.tolist(), strict=True)
        ):
            goal = self._goals[name]
            goal.seen = reports[name]
            if is_eventful or goal.is_awaited:
                for kind, message in self._news(name, goal, curves.of(row)):
                    self.tell_once(name, kind, message)

    def tell_once(self, name: str, kind: str, message: str) -> bool:
        """Send an alert of a job, unless it had one of this kind before. Returns whether it did."""
        goal = self._goals[name]
        if kind in goal.alerted:
            return False
        goal.alerted.add(kind)
        self._alert(name, kind, message)
        return True

    def _curves(self, names: list[str]) -> ForecastedCurves:
        """Return what the forecasts say of some jobs. One call, since most say nothing new."""
        forecast = self._jobs.engine.forecaster.forecast(names)
        jobs = self._jobs.engine.jobs
        missed = np.array([jobs[name].missed for name in names])
        target = jobs.column("target", names)
        scaled, _ = in_logs(forecast, target)
        losses = forecast.start, forecast.level, scaled.start - scaled.level, scaled.remaining
        known = forecast.status, scaled.noise, missed, target, scaled.start != forecast.start
        return ForecastedCurves(*losses, *known)

    def _news(self, name: str, goal: JobGoal, curve: ForecastedCurves) -> Iterator[tuple[str, str]]:
        """Yield the kind and text of what is true of a job now."""
        level, target = curve.level, curve.target
        if goal.reduction is not None and curve.status == FitStatus.OK:
            target = self._aim(name, goal.reduction, curve)
        has_target = target == target  # nan without one
        if has_target and not goal.reached and level <= target:
            goal.reached = True
            text = "reached its target %.4g with a loss of about %.4g"
            yield "reached", goal.say(text, target, level)
            self._finish(name, goal)
        awaited = has_target and not goal.reached
        if awaited and goal.deadline is not None and self._is_late(name, goal.deadline):
            yield "late", goal.say("is not expected to reach its target %.4g in time", target)
        since, most = goal.rising or (goal.seen, level)
        if curve.diverges and not level < most and goal.seen - since >= self._lasts(name, curve):
            yield "diverged", self._how_it_diverges(name, goal, curve)
        stays = curve.diverges or (goal.rising is not None and level > curve.start)
        goal.rising = (since, max(most, level)) if stays else None
        if not curve.is_flat or curve.diverges:
            goal.flat = None
        elif goal.flat is None or curve.fallen - goal.flat[1] >= NOTHING_PART * curve.span:
            goal.flat = goal.seen, curve.fallen
        elif (seen := goal.seen - goal.flat[0]) >= SEEN_REPORTS:
            what = "stalled" if awaited else "converged"
            text = "its loss has fallen by less than 1 %% of its range in"
            yield what, f"{goal.say(text)} {seen} reports"

    def _lasts(self, name: str, curve: ForecastedCurves) -> float:
        """Return the reports in which a job that has diverged does not come back."""
        if curve.missed >= LOST_REPORTS:
            return 1
        # Losses of networks that are fine-tuned, or warm up, rise first.
        return max(SEEN_REPORTS, 0.25 * (self._jobs.engine.jobs[name].max_iter or 0))

    def _how_it_diverges(self, name: str, goal: JobGoal, curve: ForecastedCurves) -> str:
        if np.isnan(self._jobs.engine.jobs[name].loss):
            return goal.say("all its losses are nan or infinite")
        if curve.missed >= LOST_REPORTS:
            return goal.say(f"its last {curve.missed} losses are nan or infinite")
        text = "its loss has risen to %.4g, above its first one of %.4g"
        return goal.say(text, curve.level, curve.start)

    def _aim(self, name: str, part: float, curve: ForecastedCurves) -> float:
        """Set the target of a job to `part` of its range, unless it hardly differs; return it."""
        ahead, unit = part * curve.span - curve.fallen, 1.0
        loss: float = curve.level - ahead
        if curve.in_logs:
            loss = unit = curve.level * np.exp(-ahead)
        if np.isfinite(loss) and not abs(loss - curve.target) <= NOTHING_PART * curve.span * unit:
            self._jobs.engine.set_job(name, target=loss)
            return loss
        return float(curve.target)

    def _is_late(self, name: str, deadline: float) -> bool:
        """Return whether even the low end of the expected time is after the deadline."""
        found = etas(self._jobs.engine, self._jobs.pace, [name]).get(name)
        if found is None:
            return monotonic() > deadline
        return found[0] is None or monotonic() + found[0] > deadline

    def _finish(self, name: str, goal: JobGoal) -> None:
        if goal.stop:
            self._jobs.stop(name)
        else:
            goal.most = self._jobs.engine.jobs[name].max_share
            self._jobs.cap(name, self._shrunk(name), gives_way=True)

    def _shrunk(self, name: str) -> float:
        """Return the cap in threads of a job that reached its target."""
        return max(self._jobs.engine.jobs[name].min_share or 0.0, 0.1)

    def _alert(self, name: str, kind: str, message: str, **numbers: Any) -> dict[str, Any]:
        owner, message = self._jobs.owner.get(name, ""), f"{name}: {message}"
        event = {"event": kind, "job": name, "message": message, **numbers, "owner": owner}
        self._jobs.alert(event)
        return event
