"""Registry of policies: list a new one here."""

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

__all__ = ["POLICIES", "policy"]

_POLICIES: dict[str, Callable[[], Policy]] = {
    kind.name: kind
    for kind in (
        *(Nothing, Fair, MaxTotal, MaxMin, FirstToTarget),
        *(FinishTimeFair, FirstInFirstOut, LeastAttainedService, ShortestRemainingTime),
    )
}
#: Names of all policies.
POLICIES = tuple(_POLICIES)


def policy(name: str) -> Policy:
    """Return a new policy by its name, or raise `UnknownPolicy`, which lists the names."""
    if name not in _POLICIES:
        raise UnknownPolicy(f"no policy is called {name!r}; choose from {', '.join(POLICIES)}")
    return _POLICIES[name]()
