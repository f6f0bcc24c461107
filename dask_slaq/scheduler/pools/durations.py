"""Compute times of a job's tasks, by prefix and size of their inputs.

An operation may be heavy on a block of data and trivial on a vector, such as the ``sum`` of a
gradient and the ``sum`` of its norm, and heavier in one job than in another. So the mean over all
tasks of a prefix, which Dask keeps, does not describe any of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TypeVar

from distributed.scheduler import TaskPrefix, TaskState

from dask_slaq.core.dispatch import Like

#: Maximum number of groups of similar tasks that are remembered, of one job or of all: some 0.5 MB.
MOST_GROUPS = 1000

T = TypeVar("T")


def group_of(ts: TaskState, nbytes: int) -> tuple[str, int]:
    """Return the group of the tasks that are similar to one with `nbytes` of inputs."""
    return ts.prefix.name, nbytes.bit_length() // 2


def input_bytes(ts: TaskState) -> int:
    """Return the bytes of the inputs of a task."""
    nbytes = 0
    for dep in ts.dependencies:
        if dep.nbytes > 0:
            nbytes += dep.nbytes
    return nbytes


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


class Learned:
    """What Dask learns of the durations of models, which wait in their reports: without that.

    By its mean over tasks of a prefix, Dask places tasks and asks for workers.
    """

    def __init__(self) -> None:
        # By prefix: the mean as Dask counts it, -1 while unknown, and the longest that is known.
        self._usual: dict[TaskPrefix, float] = {}
        self._longest: dict[TaskPrefix, float] = {}

    def begin(self, ts: TaskState) -> None:
        """Follow the prefix of a model that is sent to a worker."""
        self._usual.setdefault(ts.prefix, ts.prefix.duration_average)
        self._longest.setdefault(ts.prefix, ts.prefix.max_exec_time)

    def seceded(self, ts: TaskState) -> None:
        """Forget that a model has ended, for which Dask takes one that begins to wait."""
        self._restore(ts.prefix)

    def ended(self, ts: TaskState, seconds: float, waited: float) -> None:
        """Take out what a task has waited that was on its worker for some seconds."""
        if (usual := self._usual.get(ts.prefix)) is None:
            return
        if ts.state == "memory":
            for each in (ts.group, ts.prefix):
                each._duration_us -= round(waited * 1e6)
                each._all_durations_us["compute"] -= round(waited * 1e6)
        seconds = max(seconds - waited, 0.0)
        self._longest[ts.prefix] = max(self._longest[ts.prefix], seconds)
        if ts.state == "memory":
            self._usual[ts.prefix] = seconds if usual < 0 else (usual + seconds) / 2
        self._restore(ts.prefix)

    def _restore(self, prefix: TaskPrefix) -> None:
        # A heartbeat of a worker counts a model that waits as one that computes.
        if prefix in self._usual:
            prefix.duration_average = self._usual[prefix]
            prefix.max_exec_time = self._longest[prefix]

    def clear(self) -> None:
        """Follow no prefix any more."""
        for prefix in self._usual:
            self._restore(prefix)
        self._usual.clear()
        self._longest.clear()


class Durations:
    """Compute times of the tasks of a job, or of all jobs if there is no `everywhere`."""

    def __init__(self, everywhere: Durations | None = None) -> None:
        self._groups = ByGroup[Like]()
        self._everywhere = everywhere

    def like(self, ts: TaskState, nbytes: int | None = None) -> Like:
        """Return the compute times of tasks similar to one with `nbytes` of inputs, if known."""
        return self._like(group_of(ts, input_bytes(ts) if nbytes is None else nbytes))

    def _like(self, group: tuple[str, int]) -> Like:
        found = self._groups.of(group, Like)
        if self._everywhere is not None:  # each time, so that it is not forgotten there either
            found.everywhere = self._everywhere._like(group)
        return found
