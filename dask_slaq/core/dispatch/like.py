"""Compute times of similar tasks of one job."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_slaq.core.dispatch.constants import NEWEST, TRIVIAL


@dataclass(slots=True, eq=False)
class Like:
    """Compute times of similar tasks of one job: running mean in seconds, and mean deviation."""

    mean: float = math.inf
    deviation: float = 0.0
    # Those of all jobs, used until a task of this job has ended: most of many jobs have hardly any.
    everywhere: Like | None = None

    def observe(self, seconds: float) -> None:
        """Record the compute time of a finished task, in seconds."""
        if math.isinf(self.mean):
            self.mean = seconds
        off = seconds - self.mean
        self.mean += NEWEST * off
        self.deviation += NEWEST * (abs(off) - self.deviation)
        if self.everywhere is not None:
            self.everywhere.observe(seconds)

    @property
    def known(self) -> bool:
        """Whether a similar task of this job has ended."""
        return self.mean < math.inf

    @property
    def is_trivial(self) -> bool:
        """Whether such a task usually takes less than `TRIVIAL` seconds."""
        if not self.known and self.everywhere is not None:
            return self.everywhere.is_trivial
        return self.mean + self.deviation < TRIVIAL

    @property
    def expected(self) -> float:
        """Expected compute time in seconds; infinite if unknown."""
        if not self.known and self.everywhere is not None and self.is_trivial:
            return self.everywhere.mean
        return self.mean

    @property
    def usual(self) -> float:
        """Compute time in seconds here, or else in all jobs; infinite if unknown."""
        if not self.known and self.everywhere is not None:
            return self.everywhere.mean
        return self.mean

    @property
    def soonest(self) -> float:
        """Plausible lower bound of the compute time in seconds; infinite until a task ended."""
        return max(self.mean - 2 * self.deviation, 0.0)
