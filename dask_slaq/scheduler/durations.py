"""How long the tasks of a job take, by prefix and size of their inputs.

One operation is heavy on a block of data and trivial on a vector, as the ``sum`` of a gradient and
the ``sum`` of its norm are, and heavier in one job than in another: the mean over all tasks of a
prefix, which is what Dask keeps, says nothing of any of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

# Weight of the newest task in the running mean, as in Dask's own.
NEWEST = 0.5


class Durations:
    """Running means of compute times."""

    def __init__(self) -> None:
        self._means: dict[tuple[str, int], float] = {}

    def observe(self, ts: TaskState, seconds: float) -> None:
        """A task computed for so many seconds."""
        group = _group(ts)
        mean = self._means.get(group, seconds)
        self._means[group] = mean + NEWEST * (seconds - mean)

    def known(self, ts: TaskState) -> float | None:
        """Mean seconds of the job's tasks like this ready one, None before the first of them."""
        return self._means.get(_group(ts))


def _group(ts: TaskState) -> tuple[str, int]:
    """Prefix, and bytes of the inputs to a factor of four."""
    inputs = sum(dep.nbytes for dep in ts.dependencies if dep.nbytes > 0)
    return ts.prefix.name, inputs.bit_length() // 2
