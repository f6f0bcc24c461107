"""Compute times of a job's tasks, by prefix and size of their inputs.

An operation may be heavy on a block of data and trivial on a vector, such as the ``sum`` of a
gradient and the ``sum`` of its norm, and heavier in one job than in another. So the mean over all
tasks of a prefix, which Dask keeps, does not describe any of them.
"""

from __future__ import annotations

from itertools import islice

from distributed.scheduler import TaskPrefix, TaskState

from dask_slaq.core.dispatch import DurationEstimate

#: Maximum number of groups of similar tasks that are remembered, of one job or of all: some 0.5 MB.
MOST_GROUPS = 1000


def input_bytes(ts: TaskState) -> int:
    """Return the bytes of the inputs of a task."""
    nbytes = 0
    for dep in ts.dependencies:
        if dep.nbytes > 0:
            nbytes += dep.nbytes
    return nbytes


class Learned:
    """What Dask learns of the durations of models, which wait in their reports: without that.

    By its mean over tasks of a prefix, Dask places tasks and asks for workers.
    """

    def __init__(self) -> None:
        # By prefix of models: the mean as Dask counts it, -1 while unknown, and the longest known.
        self.usual: dict[TaskPrefix, float] = {}
        self._longest: dict[TaskPrefix, float] = {}

    def begin(self, ts: TaskState) -> None:
        """Follow the prefix of a model that is sent to a worker."""
        self.usual.setdefault(ts.prefix, ts.prefix.duration_average)
        self._longest.setdefault(ts.prefix, ts.prefix.max_exec_time)

    def seceded(self, ts: TaskState) -> None:
        """Forget that a model has ended, for which Dask takes one that begins to wait."""
        self._restore(ts.prefix)

    def ended(self, ts: TaskState, seconds: float, waited: float) -> None:
        """Take out what a task has waited that was on its worker for some seconds."""
        if (usual := self.usual.get(ts.prefix)) is None:
            return
        if ts.state == "memory":
            for each in (ts.group, ts.prefix):
                each._duration_us -= round(waited * 1e6)
                each._all_durations_us["compute"] -= round(waited * 1e6)
        seconds = max(seconds - waited, 0.0)
        self._longest[ts.prefix] = max(self._longest[ts.prefix], seconds)
        if ts.state == "memory":
            self.usual[ts.prefix] = seconds if usual < 0 else (usual + seconds) / 2
        self._restore(ts.prefix)

    def _restore(self, prefix: TaskPrefix) -> None:
        # A heartbeat of a worker counts a model that waits as one that computes.
        if prefix in self.usual:
            prefix.duration_average = self.usual[prefix]
            prefix.max_exec_time = self._longest[prefix]

    def clear(self) -> None:
        """Follow no prefix any more."""
        for prefix in self.usual:
            self._restore(prefix)
        self.usual.clear()
        self._longest.clear()


class Durations:
    """Compute times of the tasks of a job, or of all jobs if there is no `everywhere`.

    Keys and names of tasks may be new in each step of a program that runs for weeks. So when there
    are many, those not asked for again are forgotten.
    """

    def __init__(self, everywhere: Durations | None = None) -> None:
        self._groups: dict[tuple[str, int], DurationEstimate] = {}
        self._everywhere = everywhere

    def like(self, ts: TaskState, nbytes: int | None = None) -> DurationEstimate:
        """Return the compute times of tasks similar to one with `nbytes` of inputs, if known."""
        nbytes = input_bytes(ts) if nbytes is None else nbytes
        group = ts.prefix.name, nbytes.bit_length() // 2
        found = self._groups.get(group)
        if found is None:
            return self._add(group)
        found.again = True
        if found.everywhere is not None:
            found.everywhere.again = True
        return found

    def _add(self, group: tuple[str, int]) -> DurationEstimate:
        if len(self._groups) >= MOST_GROUPS:
            self._forget()
        everywhere: DurationEstimate | None = None
        if self._everywhere is not None:
            everywhere = self._everywhere._groups.get(group) or self._everywhere._add(group)
        self._groups[group] = new = DurationEstimate(everywhere=everywhere)
        return new

    def _forget(self) -> None:
        kept = {group: like for group, like in self._groups.items() if like.again}
        self._groups = dict(islice(kept.items(), max(len(kept) - MOST_GROUPS // 2, 0), None))
        for like in self._groups.values():
            like.again = False
