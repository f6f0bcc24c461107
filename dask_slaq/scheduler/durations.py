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


@dataclass
class _Group:
    mean: float = 0.0
    deviation: float = 0.0  # mean absolute deviation
    count: int = 0

    def observe(self, seconds: float) -> None:
        if not self.count:
            self.mean = seconds
        off = seconds - self.mean
        self.mean += NEWEST * off
        self.deviation += NEWEST * (abs(off) - self.deviation)
        self.count += 1


class Durations:
    """Running means of compute times, in seconds.

    Attributes
    ----------
    shortest : float
        The least that `trusted` returns for any task; infinite while it returns None for all.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, int], _Group] = {}
        self.shortest = math.inf

    def observe(self, ts: TaskState, seconds: float) -> None:
        """Take in the compute time of a finished task."""
        self._groups.setdefault(_group(ts), _Group()).observe(seconds)
        self.shortest = min(
            (g.mean + g.deviation for g in self._groups.values() if g.count >= ENOUGH),
            default=math.inf,
        )

    def known(self, ts: TaskState) -> float | None:
        """Return the mean for tasks like this ready one, None before the first of them."""
        group = self._groups.get(_group(ts))
        return None if group is None else group.mean

    def trusted(self, ts: TaskState) -> float | None:
        """Return how long tasks like this one take at most, as a rule, once several have ended."""
        group = self._groups.get(_group(ts))
        if group is None or group.count < ENOUGH:
            return None
        return group.mean + group.deviation

    def soonest(self, ts: TaskState) -> float | None:
        """Return the time after which a task like this one may well end."""
        group = self._groups.get(_group(ts))
        return None if group is None else max(group.mean - 2 * group.deviation, 0.0)


def _group(ts: TaskState) -> tuple[str, int]:
    """Prefix, and bytes of the inputs to a factor of four."""
    inputs = sum(dep.nbytes for dep in ts.dependencies if dep.nbytes > 0)
    return ts.prefix.name, inputs.bit_length() // 2
