"""Bounded curve of the losses of one trial."""

from __future__ import annotations

from array import array

__all__ = ["FEWEST", "MOST", "MOST_IN_ALL", "Curve"]

#: Maximum points of a curve, and of all curves of a search, though each has `FEWEST`. A point takes
#: 16 bytes.
MOST, MOST_IN_ALL, FEWEST = 500, 1_000_000, 20


class Curve:
    """Losses of a trial by step. When there are too many, every second one is dropped.

    The last one is always there.

    >>> curve = Curve()
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

    def add(self, step: int, loss: float, most: int = MOST) -> None:
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
