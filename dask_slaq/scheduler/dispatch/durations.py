"""How long the tasks of a job take, by prefix and size of their inputs.

One operation is heavy on a block of data and trivial on a vector, as the ``sum`` of a gradient and
the ``sum`` of its norm are, and heavier in one job than in another: the mean over all tasks of a
prefix, which is what Dask keeps, says nothing of any of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

# Weight of the newest task in the running mean, as in Dask's own.
NEWEST = 0.5
#: Tasks of a kind after which its mean is trusted.
ENOUGH = 3
#: Tasks that take less, in seconds, are sent ahead until they take as long together: a worker
#: reports those that end every two milliseconds, and would wait for more in between.
TRIVIAL = 0.001


@dataclass(slots=True)
class Like:
    """Compute times of tasks that are alike.

    Attributes
    ----------
    mean, deviation : float
        Running means of the times, and of how far they are off, in seconds; the mean is infinite
        before the first of them has ended.
    count : int
        Tasks that have ended.
    elsewhere : Like, optional
        The same of all jobs. Until several of this job have ended it is believed if it says that
        they are trivial: with many jobs, hardly anything else is known of most of them.
    """

    mean: float = math.inf
    deviation: float = 0.0
    count: int = 0
    elsewhere: Like | None = None

    def observe(self, seconds: float) -> None:
        """Take in the compute time of a task that has ended."""
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
        """Whether one takes next to no time, as a rule."""
        if self.count >= ENOUGH or self.elsewhere is None:
            return self.at_most < TRIVIAL
        return self.elsewhere.at_most < TRIVIAL and (not self.count or self.mean < TRIVIAL)

    @property
    def typical(self) -> float:
        """How long one takes, infinite where that is not known."""
        if self.count or self.elsewhere is None or not self.is_trivial:
            return self.mean
        return self.elsewhere.mean

    @property
    def at_most(self) -> float:
        """How long one takes at most, as a rule; infinite until several have ended."""
        return self.mean + self.deviation if self.count >= ENOUGH else math.inf

    @property
    def soonest(self) -> float:
        """When one may well end; infinite before the first of them."""
        return max(self.mean - 2 * self.deviation, 0.0)


class Durations:
    """Running means of compute times, in seconds.

    Parameters
    ----------
    everywhere : Durations, optional
        The same of all jobs.

    Attributes
    ----------
    shortest : float
        The least `Like.at_most` of all tasks, as far as there are any.
    """

    def __init__(self, everywhere: Durations | None = None) -> None:
        self._groups: dict[tuple[str, int], Like] = {}
        self._everywhere = everywhere
        self.shortest = math.inf

    def like(self, ts: TaskState) -> Like:
        """Return what is known of tasks like this one."""
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
        """Take in the compute time of a finished task."""
        before = like.at_most
        like.observe(seconds)
        now = like.at_most
        if now < self.shortest:
            self.shortest = now
        elif now != before == self.shortest:
            self.shortest = min((g.at_most for g in self._groups.values()), default=now)
