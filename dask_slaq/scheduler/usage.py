"""Usage of the cluster by owner, which outlives the jobs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["Usage", "UsageByOwner"]

#: Maximum number of owners. Usage of further ones is added up under `OTHERS`.
MOST_OWNERS = 1000
OTHERS = "(others)"


@dataclass
class Usage:
    """Usage of one owner: core-seconds, jobs that ended, and the losses' normalized reduction."""

    core_seconds: float = 0.0
    finished_jobs: int = 0
    loss_reduction: float = 0.0


class UsageByOwner(dict[str, Usage]):
    """Mapping of owner to `Usage`, bounded in size."""

    def of(self, owner: str) -> Usage:
        """Return the usage of an owner, to be added to."""
        if owner not in self and len(self) >= MOST_OWNERS:
            owner = OTHERS
        return self.setdefault(owner, Usage())

    def as_dict(self) -> dict[str, dict[str, float]]:
        """Return all usage as plain values."""
        return {owner: asdict(usage) for owner, usage in self.items()}
