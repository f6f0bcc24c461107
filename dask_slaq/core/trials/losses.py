"""Losses that one trial has reported, with their bounded curve."""

from __future__ import annotations

import math
from array import array
from dataclasses import dataclass, field

from dask_slaq.core.jobs.reports import next_stride

#: Maximum points of a curve, and of all curves of a search, though each has the fewest. A point
#: takes 16 bytes.
MOST_POINTS, MOST_POINTS_IN_ALL, FEWEST_POINTS = 500, 1_000_000, 20


class TrialCurve:
    """Losses of a trial by step. When there are too many, every second one is dropped.

    The last one is always there.

    >>> curve = TrialCurve()
    >>> for step in range(1, 11):
    ...     curve.add(step, 1 / step, most=4)
    >>> list(curve.steps)
    [1, 5, 9, 10]
    """

    __slots__ = ("_count", "_every", "losses", "steps")

    def __init__(self) -> None:
        self.steps, self.losses = array("q"), array("d")
        self._count, self._every = 0, 1

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, step: int, loss: float, most: int = MOST_POINTS) -> None:
        """Add the loss of a step, and keep at most `most` points."""
        if self._count and (self._count - 1) % self._every:  # the last one is between two
            del self.steps[-1], self.losses[-1]
        self._count += 1
        self.steps.append(step)
        self.losses.append(loss)
        while len(self.steps) > max(most, 2):
            self._every *= 2
            keep = slice(None, None, 2)
            if (len(self.steps) - 1) % 2:  # the last one stays, between two
                self.steps = self.steps[keep] + self.steps[-1:]
                self.losses = self.losses[keep] + self.losses[-1:]
            else:
                self.steps, self.losses = self.steps[keep], self.losses[keep]


@dataclass(slots=True, eq=False)
class TrialLosses:
    """Usable losses of a trial; nan while there are none."""

    first: float = math.nan  # unless it was huge
    latest: float = math.nan
    lowest: float = math.nan
    lowest_step: int = 0
    count: int = 0
    missed: int = 0  # latest reports without a usable loss
    last_step: int = 0  # step of the latest loss
    stride: float = 1.0  # mean steps between two of them
    noise: float = 0.0  # standard deviation of the latest of them
    left: bool = False  # whether the mean of the last ones is farther from the first level
    leaves: bool = False  # whether the latest one is
    curve: TrialCurve = field(default_factory=TrialCurve)

    def add(self, step: int, loss: float, most: int) -> None:
        """Add the loss of a step; the curve keeps at most `most` points."""
        if not self.count:
            self.first = loss
        else:
            self.stride = next_stride(self.stride, self.count, step - self.last_step)
        self.count, self.last_step, self.missed = self.count + 1, step, 0
        self.latest = loss
        if not self.lowest <= loss:
            self.lowest, self.lowest_step = loss, step
        self.curve.add(step, loss, most)
