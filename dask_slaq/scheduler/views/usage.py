"""Usage of the cluster by owner, which outlives the jobs, and outside of jobs."""

from __future__ import annotations

from collections import deque

from dask_slaq.core.usage import OTHERS, Usage

__all__ = ["UnownedUsage", "UsageByOwner", "in_short"]

#: Maximum number of owners. Usage of further ones is added up under `OTHERS`.
MOST_OWNERS = 1000


class UsageByOwner(dict[str, Usage]):
    """Mapping of owner to `Usage`, bounded in size."""

    def of(self, owner: str) -> Usage:
        """Return the usage of an owner, to be added to."""
        if owner not in self and len(self) >= MOST_OWNERS:
            owner = OTHERS
        return self.setdefault(owner, Usage())


def in_short(usage: Usage) -> dict[str, float]:
    """Return core-seconds, jobs that ended, and the losses' normalized reduction."""
    return {
        "core_seconds": usage.core_seconds,
        "finished_jobs": usage.jobs,
        "loss_reduction": usage.loss_reduction,
    }


class UnownedUsage:
    """Core-seconds of tasks outside jobs, in the newest epochs. They count only while jobs run.

    `epochs` has the Unix seconds of each, and the core-seconds used until then; `ended` is what
    the tasks that have ended used.
    """

    def __init__(self, most: int) -> None:
        self.ended = 0.0
        self.epochs: deque[tuple[float, float]] = deque(maxlen=most)
        self._seen = 0.0

    def record(self, now: float, running: float, threads: int) -> None:
        """Add an epoch: Unix seconds, core-seconds of tasks that run, threads of the cluster."""
        before, total = self.epochs[-1] if self.epochs else (now, 0.0)
        # Tasks that ran before the first job bring seconds of earlier epochs with them.
        grown = min(max(self.ended + running - self._seen, 0.0), threads * (now - before))
        self._seen = self.ended + running
        self.epochs.append((now, total + grown))
