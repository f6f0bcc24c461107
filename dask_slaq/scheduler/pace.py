"""Pace of a job: how often it reports."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Pace"]

#: Weight of the newest interval in the running mean.
NEWEST = 0.2


@dataclass(slots=True)
class Pace:
    """Running mean of the seconds per iteration, 0 before the second report.

    Attributes
    ----------
    last : float
        Time of the last report, monotonic seconds.
    seconds : float
        Seconds per iteration.
    """

    last: float
    seconds: float = 0.0

    def step(self, now: float) -> None:
        """Record a report at `now`."""
        passed = now - self.last
        if passed > 0:
            self.seconds += (NEWEST if self.seconds else 1.0) * (passed - self.seconds)
        self.last = now
