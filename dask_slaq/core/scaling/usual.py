"""What a job's time is worth where nobody says it."""

from __future__ import annotations

import math

#: Seconds over which the past counts, and job-seconds for which the assumed worth counts.
MEMORY, PRIOR = 3600.0, 600.0
#: Worth of a job's second that is assumed, and the least and most, in seconds of a worker.
ASSUMED, LEAST, MOST = 5.0, 1.0, 10.0


class UsualWorth:
    """Worker-seconds that the cluster has cost per second of a job, of late.

    If a second of a job is worth as much, the number of workers at which time and money cost least
    is the one at which the product of both is: to end 1 % sooner may cost 1 % more.

    >>> usual = UsualWorth()
    >>> usual.per_second
    5.0
    >>> for second in range(3600):
    ...     usual.add(float(second), workers=6, jobs=2)
    >>> round(usual.per_second, 1)
    3.2
    """

    def __init__(self) -> None:
        self._paid = self._spent = 0.0
        self._last: float | None = None

    def add(self, now: float, workers: int, jobs: int) -> None:
        """Count the time since the last call, in which there were some workers and jobs."""
        elapsed = 0.0 if self._last is None else max(now - self._last, 0.0)
        self._last = now
        fades = math.exp(-elapsed / MEMORY)
        self._paid = self._paid * fades + workers * elapsed
        self._spent = self._spent * fades + jobs * elapsed

    @property
    def per_second(self) -> float:
        """Worth of a second of a job, in seconds of a worker."""
        found = (self._paid + ASSUMED * PRIOR) / (self._spent + PRIOR)
        return min(max(found, LEAST), MOST)
