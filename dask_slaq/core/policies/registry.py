"""Registry of policies: list a new one of this package here; others are added by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from dask_slaq.core.errors import UnknownPolicy

if TYPE_CHECKING:
    from dask_slaq.core.policies.quality_driven import Policy

#: Classes of all policies by name, each with its module: only those in use are loaded.
_POLICIES = {
    "none": ("quality_driven", "Nothing"),
    "fair": ("quality_driven", "Fair"),
    "max-total": ("quality_driven", "MaxTotal"),
    "max-min": ("quality_driven", "MaxMin"),
    "first-to-target": ("quality_driven", "FirstToTarget"),
    "finish-time-fair": ("baselines", "FinishTimeFair"),
    "fifo": ("baselines", "FirstInFirstOut"),
    "las": ("baselines", "LeastAttainedService"),
    "srtf": ("baselines", "ShortestRemainingTime"),
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
    if name in _POLICIES:
        module, kind = _POLICIES[name]
        found: Policy = getattr(import_module(f"dask_slaq.core.policies.{module}"), kind)()
        return found
    if name in _added:
        return _added[name]()
    known = ", ".join([*POLICIES, *_added])
    raise UnknownPolicy(f"no policy is called {name!r}; choose from {known}")
