"""Terms, grants and standings of owners and teams: plain values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import NamedTuple

from dask_slaq.core.usage import DAY

#: Name of the settings for all owners that are not listed; ``team/default`` for those of a team.
DEFAULT = "default"
#: Ways of an owner over its budget: new jobs wait, or all run on what nobody else wants.
WAIT, ON_SPARE = "wait", "spare"


class OwnerTerms(NamedTuple):
    """Settings of one owner or team."""

    weight: float = 1.0
    max_threads: float = math.inf
    latest: float | None = None  # factor of their fair time at which its jobs end at the latest
    max_jobs: float = math.inf  # jobs and searches at once; others wait for their end
    core_hours: float = math.inf  # budget: core-hours of the last days
    period: float = 30 * DAY  # seconds of these, whole days
    over: str = ON_SPARE  # what happens above it: `WAIT` or `ON_SPARE`
    max_resources: Mapping[str, float] | None = None  # most of each resource in use by its jobs
    worth_per_hour: float | None = None  # of an hour of its jobs' time, in the unit of a price

    @property
    def has_budget(self) -> bool:
        """Whether the core-hours are limited."""
        return self.core_hours < math.inf


class OwnerGrant(NamedTuple):
    """Grant of one owner, or of a team, until the next decision."""

    deserved: float  # threads, whether the owner has tasks for them or not
    tokens: float  # core-seconds to be served before any index
    max_threads: float  # hard limit; inf for none
    got: float  # threads used, mean of recent epochs
    factor: float = 1.0  # by which its weight counts, because of what it used lately
    lately: float = 1.0  # what it used lately, over its share of what all owners did
    spare: bool = False  # whether it runs on what nobody else wants
    max_resources: Mapping[str, float] | None = None  # hard limits
    team: str = ""  # that it is in; see `Owners.line`


def standings(
    deserved: Mapping[str, float], got: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return the threads that each of several deserved, got, lent, borrowed and left idle.

    Threads are lent only as far as others borrowed; what is left of those not used is idle.

    >>> standings({"ann": 3.0, "bob": 1.0}, {"ann": 1.0, "bob": 2.0})["ann"]
    {'deserved': 3.0, 'got': 1.0, 'lent': 1.0, 'borrowed': 0.0, 'idle': 1.0}
    """
    more = {name: max(got[name] - deserved[name], 0.0) for name in deserved}
    less = {name: max(deserved[name] - got[name], 0.0) for name in deserved}
    part = min(sum(more.values()) / max(sum(less.values()), 1e-9), 1.0)
    return {
        name: {
            "deserved": deserved[name],
            "got": got[name],
            "lent": part * less[name],
            "borrowed": more[name],
            "idle": (1 - part) * less[name],
        }
        for name in deserved
    }
