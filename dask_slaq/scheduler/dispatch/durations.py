"""Compute times of a job's tasks, by prefix and size of their inputs.

An operation may be heavy on a block of data and trivial on a vector, such as the ``sum`` of a
gradient and the ``sum`` of its norm, and heavier in one job than in another. So the mean over all
tasks of a prefix, which Dask keeps, does not describe any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

# Weight of the newest task in the running mean, as in Dask.
NEWEST = 0.5
#: Number of finished tasks after which their mean is trusted.
ENOUGH = 3
#: Seconds below which tasks are trivial. Trivial tasks are sent ahead until they take as long in
#: total: a worker reports finished tasks every two milliseconds, and would idle in between.
TRIVIAL = 0.001


@dataclass(slots=True)
class Like:
    """Compute times of similar tasks.

    Attributes
    ----------
    mean, deviation : float
        Running mean of the compute times and of their absolute deviations, in seconds. The mean is
        infinite until the first task ends.
    count : int
        Number of tasks that have ended.
    elsewhere : Like, optional
        Compute times of similar tasks of all jobs. They decide whether tasks are trivial until
        `ENOUGH` tasks of this job have ended: with many jobs, most jobs have hardly any of their
        own.
    """

    mean: float = math.inf
    deviation: float = 0.0
    count: int = 0
    elsewhere: Like | None = None

    def observe(self, seconds: float) -> None:
        """Record the compute time of a finished task, in seconds."""
        if not self.count:
            self.mean = seconds
        off = seconds - self.mean
        self.mean += NEWEST * off
        self.deviation += NEWEST * (abs(off) - self.deviation)
        self.count += 1
        if self.elsewhere is not None:
            self.elsewhere.observe(seconds)

    @property
    def is_trivial(self) -> bool:
        """Whether such a task usually takes less than `TRIVIAL` seconds."""
        if self.count >= ENOUGH or self.elsewhere is None:
            return self.at_most < TRIVIAL
        return self.elsewhere.at_most < TRIVIAL and (not self.count or self.mean < TRIVIAL)

    @property
    def typical(self) -> float:
        """Typical compute time in seconds; infinite if unknown."""
        if self.count or self.elsewhere is None or not self.is_trivial:
            return self.mean
        return self.elsewhere.mean

    @property
    def at_most(self) -> float:
        """Usual upper bound of the compute time in seconds; infinite until `ENOUGH` tasks ended."""
        return self.mean + self.deviation if self.count >= ENOUGH else math.inf

    @property
    def soonest(self) -> float:
        """Plausible lower bound of the compute time in seconds; infinite until a task ended."""
        return max(self.mean - 2 * self.deviation, 0.0)


class Durations:
    """Compute times of all tasks of a job, grouped by prefix and input size.

    Parameters
    ----------
    everywhere : Durations, optional
        Compute times of the tasks of all jobs.

    Attributes
    ----------
    shortest : float
        Least `Like.at_most` of all groups, in seconds; infinite without any.
    """

    def __init__(self, everywhere: Durations | None = None) -> None:
        self._groups: dict[tuple[str, int], Like] = {}
        self._everywhere = everywhere
        self.shortest = math.inf

    def like(self, ts: TaskState) -> Like:
        """Return the compute times of tasks similar to this one."""
        inputs = 0
        for dep in ts.dependencies:
            if dep.nbytes > 0:
                inputs += dep.nbytes
        return self._like((ts.prefix.name, inputs.bit_length() // 2))

    def _like(self, key: tuple[str, int]) -> Like:
        found = self._groups.get(key)
        if found is None:
            elsewhere = None if self._everywhere is None else self._everywhere._like(key)
            found = self._groups[key] = Like(elsewhere=elsewhere)
        return found

    def observe(self, like: Like, seconds: float) -> None:
        """Record the compute time of a finished task.

        Parameters
        ----------
        like : Like
            Group of the task, see `like`.
        seconds : float
            Compute time.
        """
        before = like.at_most
        like.observe(seconds)
        now = like.at_most
        if now < self.shortest:
            self.shortest = now
        elif now != before == self.shortest:
            self.shortest = min((g.at_most for g in self._groups.values()), default=now)
