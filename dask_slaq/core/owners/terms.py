"""Terms, grants and standings of owners and teams: plain values."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.usage import DAY_SECONDS, MOST_DAYS
from dask_slaq.core.settings import (
    check_max_slowdown,
    check_owner,
    check_resources,
    check_value_per_hour,
    is_number,
    is_whole,
    require,
    shown,
)

#: Name of the settings for all owners that are not listed; ``team/default`` for those of a team.
DEFAULT = "default"
#: Ways of an owner over its budget: new jobs wait, or all run on what nobody else wants.
WAIT, ON_SPARE = "wait", "spare"


class OwnerTerms(NamedTuple):
    """Settings of one owner or team."""

    weight: float = 1.0
    max_threads: float = math.inf
    max_slowdown: float | None = None  # factor of their fair time within which its jobs end
    max_jobs: float = math.inf  # jobs and searches at once; others wait for their end
    core_hours: float = math.inf  # budget: core-hours of the last days
    period: float = 30 * DAY_SECONDS  # seconds of these, whole days
    over: str = ON_SPARE  # what happens above it: `WAIT` or `ON_SPARE`
    max_resources: Mapping[str, float] | None = None  # most of each resource in use by its jobs
    value_per_hour: float | None = None  # of an hour of its jobs' time, in the unit of a price

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
    on_leftovers: bool = False  # whether it runs on what nobody else wants
    max_resources: Mapping[str, float] | None = None  # hard limits
    team: str = ""  # that it is in; see `Owners.line`


def standings(
    deserved: Mapping[str, float], got: Mapping[str, float]
) -> dict[str, dict[str, float]]:
    """Return the threads that each of several deserved, got, lent, borrowed and left idle."""
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


def check_owners(value: Any) -> dict[str, OwnerTerms]:
    """Return the owners' terms by name, from their configuration, or raise `InvalidSetting`."""
    require("owners", value, isinstance(value, Mapping), "a mapping of owner to settings")
    found = {}
    for owner, given in value.items():
        if not (isinstance(owner, str) and isinstance(given, Mapping | None)):
            raise InvalidSetting(
                "owners must map each owner to settings such as {'weight': 2, 'max-threads': 8}, "
                f"not {shown(owner)} to {shown(given)}"
            )
        owner = check_owner(owner)
        parts = owner.split("/")
        if not all(parts) or DEFAULT in parts[:-1]:
            raise InvalidSetting(
                f"owners must have names like ann, ann@desk, team/ann or team/{DEFAULT}, not "
                f"{shown(owner)}"
            )
        terms = flat_terms(owner, given or {})
        for key, number in terms.items():
            if key not in OwnerTerms._fields:
                raise InvalidSetting(
                    f"{shown(key)} is not a setting of an owner; allowed are: weight, max-threads, "
                    "max-jobs, max-resources, max-slowdown, value-per-hour, and budget with "
                    "core-hours, period and over"
                )
            terms[key] = _checked(owner, key, number)
        found[owner] = OwnerTerms(**terms)
    return found


def _checked(owner: str, key: str, value: Any) -> Any:
    """Return a setting of an owner as it is kept, or raise `InvalidSetting`."""
    name = f"{key.replace('_', '-')} of owner {shown(owner)}"
    if key == "over":
        must = f"{WAIT} or {ON_SPARE}: what happens above its budget"
        return require(name, value, value in (WAIT, ON_SPARE), must)
    if key == "max_resources":
        return check_resources(value)
    if key == "period":
        days = re.fullmatch(r"\s*(\d+)\s*d(ays?)?\s*", value) if isinstance(value, str) else None
        seconds = float(days[1]) * DAY_SECONDS if days else value
        ok = is_number(seconds) and DAY_SECONDS <= seconds < MOST_DAYS * DAY_SECONDS
        require(name, value, ok, f"a number of days from 1d to {MOST_DAYS - 1}d")
        return float(seconds)
    if key == "max_slowdown":
        check_max_slowdown(value)
    elif key == "value_per_hour":
        check_value_per_hour(value)
    elif value != math.inf or key == "weight":  # else there is no limit
        if key == "max_jobs":
            require(name, value, is_whole(value, 1), "a whole number of jobs")
        most = 1e9 if key == "core_hours" else 1e6
        ok = is_number(value) and 0 < value <= most
        require(name, value, ok, f"a number > 0 and at most {most:g}")
    return float(value)


def flat_terms(owner: str, given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return settings of an owner, with those of its budget, by the names in `OwnerTerms`."""
    terms = {str(key).replace("-", "_"): value for key, value in given.items()}
    budget = terms.pop("budget", {})
    must = "a mapping such as {'core-hours': 2000, 'period': '30d'}"
    require(f"budget of owner {shown(owner)}", budget, isinstance(budget, Mapping), must)
    return terms | {str(key).replace("-", "_"): value for key, value in budget.items()}
