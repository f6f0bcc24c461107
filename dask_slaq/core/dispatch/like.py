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
        like: Like | None = self
        while like is not None:
            if like.mean == math.inf:
                like.mean = seconds
            off = seconds - like.mean
            like.mean += NEWEST * off
            like.deviation += NEWEST * (abs(off) - like.deviation)
            like = like.everywhere

    @property
    def is_trivial(self) -> bool:
        """Whether such a task usually takes less than `TRIVIAL` seconds."""
        like = self if self.mean < math.inf or self.everywhere is None else self.everywhere
        return like.mean + like.deviation < TRIVIAL

    @property
    def expected(self) -> float:
        """Expected compute time in seconds; infinite if unknown."""
        if self.mean < math.inf or self.everywhere is None or not self.is_trivial:
            return self.mean
        return self.everywhere.mean

    @property
    def usual(self) -> float:
        """Compute time in seconds here, or else in all jobs; infinite if unknown."""
        if self.mean < math.inf or self.everywhere is None:
            return self.mean
        return self.everywhere.mean

    @property
    def soonest(self) -> float:
        """Plausible lower bound of the compute time in seconds; infinite until a task ended."""
        return max(self.mean - 2 * self.deviation, 0.0)

    def outlook(self) -> tuple[float, float]:
        """Return what is `expected`, and `soonest`."""
        if self.mean == math.inf:
            return self.expected, math.inf
        return self.mean, max(self.mean - 2 * self.deviation, 0.0)
