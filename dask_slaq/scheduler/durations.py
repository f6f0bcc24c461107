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
    """

    mean: float = math.inf
    deviation: float = 0.0
    count: int = 0

    def observe(self, seconds: float) -> None:
        """Take in the compute time of a task that has ended."""
        if not self.count:
            self.mean = seconds
        off = seconds - self.mean
        self.mean += NEWEST * off
        self.deviation += NEWEST * (abs(off) - self.deviation)
        self.count += 1

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

    Attributes
    ----------
    shortest : float
        The least `Like.at_most` of all tasks, as far as there are any.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], Like] = {}
        self.shortest = math.inf

    def like(self, ts: TaskState) -> Like:
        """Return what is known of tasks like this one."""
        inputs = 0
        for dep in ts.dependencies:
            if dep.nbytes > 0:
                inputs += dep.nbytes
        key = ts.prefix.name, inputs.bit_length() // 2
        found = self._groups.get(key)
        if found is None:
            found = self._groups[key] = Like()
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
