"""Registry of policies: list a new one of this package here; others are added by name."""

from __future__ import annotations

from collections.abc import Callable

from dask_slaq.core.errors import UnknownPolicy
from dask_slaq.core.policies.baselines import (
    FirstInFirstOut,
    LeastAttainedService,
    ShortestRemainingTime,
)
from dask_slaq.core.policies.quality_driven import (
    Fair,
    FirstToTarget,
    MaxMin,
    MaxTotal,
    Nothing,
    Policy,
)
from dask_slaq.core.policies.themis import FinishTimeFair

__all__ = ["POLICIES", "add_policy", "added_policies", "policy"]

_POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind
    for kind in (
        *(Nothing, Fair, MaxTotal, MaxMin, FirstToTarget),
        *(FinishTimeFair, FirstInFirstOut, LeastAttainedService, ShortestRemainingTime),
    )
}
#: Names of all policies.
POLICIES = tuple(_POLICIES)


_added: dict[str, Callable[[], Policy]] = {}


def add_policy(name: str, make: Callable[[], Policy]) -> None:
    """Let `policy` find a policy by `name`, which `make` returns; names of ours stay ours."""
    if name not in _POLICIES:
        _added[name] = make


def added_policies() -> dict[str, Callable[[], Policy]]:
    """Return how policies that were added are made, by name."""
    return dict(_added)


def policy(name: str) -> Policy:
    """Return a new policy by its name, or raise `UnknownPolicy`, which lists the names."""
    make = _POLICIES.get(name) or _added.get(name)
    if make is None:
        known = ", ".join([*POLICIES, *_added])
        raise UnknownPolicy(f"no policy is called {name!r}; choose from {known}")
    return make()
