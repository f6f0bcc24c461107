"""Stages of a job: the tasks submitted in each ``job.stage`` block, and what they take.

A task carries a number and the name of every stage in which it was built or submitted. The highest
number is that of the stage entered last, in which it was submitted or, outside of stages, built.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from distributed.scheduler import TaskState

from dask_slaq.core.memory import ExpectedStages

#: Prefix of the annotations with the block of the job and a number.
IN_BLOCK = "slaq_stage:"
#: Maximum number of stages of a job with a name of their own: nobody reads more.
MOST_STAGES = 100


@dataclass(eq=False)
class Stage:
    """Counts of one stage, over all blocks of its name. Tasks outside of stages are one, too."""

    name: str  # empty for tasks outside of stages
    entered: int = 0  # blocks of this name in which tasks were submitted
    submitted: int = 0  # tasks, without those cancelled before they ended
    unfinished: set[TaskState] = field(default_factory=set)
    ended: int = 0  # tasks that have computed
    used: float = 0.0  # core-seconds of these
    # Of the last block: its number, what was used before it, and whether it reported a loss.
    number: int = -1
    ended_before: int = 0
    used_before: float = 0.0
    reports: bool = False
    # Whether tasks came after some of the same block had ended: more may come.
    is_open: bool = False

    def enter(self, number: int) -> None:
        """Begin the block of a `number`, if it is another one."""
        if number != self.number:
            self.number, self.entered = number, self.entered + 1
            self.ended_before, self.used_before = self.ended, self.used
            self.is_open = self.reports = False

    @property
    def counted(self) -> float:
        """Core-seconds that its unfinished tasks take; nan if unknown."""
        if not self.unfinished:
            return 0.0
        return len(self.unfinished) * self.used / self.ended if self.ended else math.nan


class Stages:
    """Stages of one job, from its first task in a stage on; `run` identifies the job's block.

    `before` are the unfinished tasks that were submitted earlier; of all earlier ones, `ended` have
    computed, in `used` core-seconds.
    """

    def __init__(self, run: str, before: Iterable[TaskState], ended: int, used: float) -> None:
        self._prefix = f"{IN_BLOCK}{run}:"
        outside = Stage("", unfinished=set(before), ended=ended, used=used)
        outside.enter(0)
        self.current = outside
        self.named = {"": outside}
        self._of = dict.fromkeys(outside.unfinished, outside)
        self._cancelled: set[TaskState] = set()  # or lost, and may be computed again

    def add(self, ts: TaskState, *, unfinished: bool) -> None:
        """Count a new task in its stage, which is the current one from now on."""
        number, name = self._find(ts.annotations or {})
        if (stage := self.named.get(name)) is None:
            stage = self.named[name] = Stage(name)
        stage.enter(number)
        stage.is_open |= stage.ended > stage.ended_before
        stage.submitted += 1
        self.current = self._of[ts] = stage
        if unfinished:
            stage.unfinished.add(ts)

    def adopt(self, ts: TaskState) -> None:
        """Count an unfinished task that another job submitted in the current stage."""
        self._of[ts] = self.current
        self.current.submitted += 1
        self.current.unfinished.add(ts)

    def _find(self, annotations: Mapping[Any, Any]) -> tuple[int, str]:
        """Return number and name of the stage that annotations tell last; 0 and "" for none."""
        found = 0, ""
        for key, name in annotations.items():
            if isinstance(key, str) and key.startswith(self._prefix) and isinstance(name, str):
                digits = key.removeprefix(self._prefix)
                if digits.isdecimal() and (number := int(digits)) > found[0]:
                    found = number, name
        if found[1] not in self.named and len(self.named) > MOST_STAGES:
            return 0, ""
        return found

    def wait(self, ts: TaskState) -> None:
        """Count a task as unfinished, maybe again."""
        self._of.setdefault(ts, self.named[""]).unfinished.add(ts)
        self._cancelled.discard(ts)

    def finish(self, ts: TaskState, *, cancelled: bool) -> None:
        """Count a task no longer as unfinished; it may have been `cancelled`."""
        if (stage := self._of.get(ts)) is not None:
            stage.unfinished.discard(ts)
            if cancelled:
                self._cancelled.add(ts)

    def charge(self, ts: TaskState, seconds: float, *, ended: bool) -> None:
        """Charge the core-seconds of a task, which `ended` or was lost."""
        stage = self._of.get(ts, self.current)
        stage.ended += ended
        stage.used += seconds

    def drop(self, ts: TaskState) -> None:
        """Forget a task. One that was cancelled counts no longer as submitted."""
        if (stage := self._of.pop(ts, None)) is not None:
            stage.unfinished.discard(ts)
            if ts in self._cancelled:
                self._cancelled.discard(ts)
                stage.submitted -= 1

    def seconds_left(self, past: ExpectedStages) -> tuple[float, float]:
        """Return the core-seconds left of the current stage, and those of the stages to come.

        The former are nan if unknown, or if the stage reports: then its iterations tell. `past`
        tells what like runs took. What was submitted in other stages and is unfinished counts as to
        come.
        """
        here = self.current
        to_come = 0.0
        for name, (seconds, entered) in past.items():
            known = self.named.get(name)
            more = entered - (0 if known is None else known.entered)
            to_come += max(more, 0.0) * seconds / entered
        for stage in self.named.values():
            if stage is not here and not math.isnan(stage.counted):
                to_come += stage.counted
        if here.reports:
            return math.nan, to_come
        if here.name in past:
            seconds, entered = past[here.name]
            rest = seconds / entered - (here.used - here.used_before)
            counted = 0.0 if math.isnan(here.counted) else here.counted
            return max(rest, counted), to_come
        unknown = here.is_open or here.ended == here.ended_before
        return math.nan if unknown else here.counted, to_come

    def times(self) -> dict[str, tuple[float, int]]:
        """Return core-seconds and number of blocks of each stage, by name."""
        return {name: (s.used, s.entered) for name, s in self.named.items() if s.used > 0}

    def check(self, tasks: set[TaskState], unfinished: set[TaskState]) -> None:
        """Raise `AssertionError` unless the counts agree with the tasks of the pool."""
        assert self._of.keys() <= tasks, "a stage counts a task of another pool"
        counted = [ts for stage in self.named.values() for ts in stage.unfinished]
        assert len(counted) == len(set(counted)), "two stages count one task"
        assert set(counted) == unfinished, "tasks of stages"
