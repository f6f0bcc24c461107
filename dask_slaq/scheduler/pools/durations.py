"""Compute times of a job's tasks, by prefix and size of their inputs.

An operation may be heavy on a block of data and trivial on a vector, such as the ``sum`` of a
gradient and the ``sum`` of its norm, and heavier in one job than in another. So the mean over all
tasks of a prefix, which Dask keeps, does not describe any of them.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from dask_slaq.scheduler.pools.constants import BETWEEN_MESSAGES

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

#: Weight of the newest task in the running mean, as in Dask; seconds below which tasks are trivial.
NEWEST, TRIVIAL = 0.5, BETWEEN_MESSAGES / 2
#: Maximum number of groups of similar tasks that are remembered, of one job or of all: some 0.5 MB.
MOST_GROUPS = 1000

T = TypeVar("T")


def group_of(ts: TaskState, nbytes: int) -> tuple[str, int]:
    """Return the group of the tasks that are similar to one with `nbytes` of inputs."""
    return ts.prefix.name, nbytes.bit_length() // 2


class ByGroup(OrderedDict[tuple[str, int], T]):
    """What is known of groups of similar tasks. Those not asked for longest are forgotten.

    Keys and names of tasks may be new in each step of a program that runs for weeks.
    """

    def of(self, group: tuple[str, int], make: Callable[[], T]) -> T:
        """Return what is known of a group, or what `make` returns for a new one."""
        found = self.get(group)
        if found is not None:
            self.move_to_end(group)
            return found
        new = self[group] = make()
        if len(self) > MOST_GROUPS:
            self.popitem(last=False)
        return new


@dataclass(slots=True, eq=False)
class Like:
    """Compute times of similar tasks of one job: running mean in seconds, and mean deviation."""

    mean: float = math.inf
    deviation: float = 0.0
    # Those of all jobs, used until a task of this job has ended: most of many jobs have hardly any.
    everywhere: Like | None = None

    def observe(self, seconds: float) -> None:
        """Record the compute time of a finished task, in seconds."""
        if math.isinf(self.mean):
            self.mean = seconds
        off = seconds - self.mean
        self.mean += NEWEST * off
        self.deviation += NEWEST * (abs(off) - self.deviation)
        if self.everywhere is not None:
            self.everywhere.observe(seconds)

    @property
    def known(self) -> bool:
        """Whether a similar task of this job has ended."""
        return self.mean < math.inf

    @property
    def is_trivial(self) -> bool:
        """Whether such a task usually takes less than `TRIVIAL` seconds."""
        if not self.known and self.everywhere is not None:
            return self.everywhere.is_trivial
        return self.mean + self.deviation < TRIVIAL

    @property
    def expected(self) -> float:
        """Expected compute time in seconds; infinite if unknown."""
        if not self.known and self.everywhere is not None and self.is_trivial:
            return self.everywhere.mean
        return self.mean

    @property
    def soonest(self) -> float:
        """Plausible lower bound of the compute time in seconds; infinite until a task ended."""
        return max(self.mean - 2 * self.deviation, 0.0)


class Durations:
    """Compute times of the tasks of a job, or of all jobs if there is no `everywhere`."""

    def __init__(self, everywhere: Durations | None = None) -> None:
        self._groups = ByGroup[Like]()
        self._everywhere = everywhere

    def like(self, ts: TaskState, nbytes: int) -> Like:
        """Return the compute times of tasks similar to one with `nbytes` of inputs."""
        return self._like(group_of(ts, nbytes))

    def _like(self, group: tuple[str, int]) -> Like:
        found = self._groups.of(group, Like)
        if self._everywhere is not None:  # each time, so that it is not forgotten there either
            found.everywhere = self._everywhere._like(group)
        return found
