"""Registry of policies: list a new one of this package here; others are added by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from dask_slaq.core.errors import BROKEN, UnknownPolicy
from dask_slaq.core.policies.quality_driven import Policy
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fit_floors

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
    "slaq2017": ("slaq2017", "Slaq2017"),
    "slaq2017-min": ("slaq2017", "Slaq2017Min"),
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
        return getattr(import_module(f"dask_slaq.core.policies.{module}"), kind)()
    if name in _added:
        return _added[name]()
    known = ", ".join([*POLICIES, *_added])
    raise UnknownPolicy(f"no policy is called {name!r}; choose from {known}")


class GuardedPolicy:
    """A policy called `name`: `made`, until it breaks a rule, which is told; then `instead`."""

    def __init__(
        self, name: str, made: Policy, instead: Policy, tell: Callable[[str], object]
    ) -> None:
        #: Name in settings; once the policy has broken a rule, also that of the other.
        self.name = name
        self._policy, self._instead, self._tell = made, instead, tell

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_policy"], name)

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Return the allocation for a snapshot. See `Policy`."""
        if self._policy is self._instead:
            return self._instead(snapshot)
        try:
            found = self._policy(snapshot)
            wrong = broken_rule(snapshot, found)
        except BROKEN as error:
            wrong = f"{type(error).__name__}: {error}"
        if wrong is None:
            return found
        self._policy, self.name = self._instead, f"{self._instead.name} (instead of {self.name})"
        self._tell(wrong)
        return self._instead(snapshot)


def broken_rule(snapshot: Snapshot, allocation: Allocation) -> str | None:
    """Return which rule an allocation of any policy breaks, in words; None if it keeps all."""
    share, index = allocation.share, allocation.index
    array: Any
    for array in (share, index):
        if not isinstance(array, np.ndarray):
            return f"share and index are arrays, not {type(array).__name__}"
    shape = (len(snapshot.jobs),)
    if share.shape != shape or index.shape != shape:
        return f"share and index have shapes {share.shape} and {index.shape} for {shape[0]} jobs"
    if not (np.isfinite(share).all() and np.isfinite(index).all()):
        return "a share or index is not finite"
    cap = np.minimum(snapshot.cap, snapshot.capacity)
    floor = fit_floors(np.minimum(snapshot.floor, cap), snapshot.capacity)
    # Threads by which a share may be off, by rounding.
    close = 1e-6
    if (share < floor - close).any():
        return "a share is below the floor of its job"
    if (share > cap + close).any():
        return "a share is above the cap of its job, or all threads"
    given, room = float(share.sum()), min(float(cap.sum()), float(snapshot.capacity))
    if given > room + close * max(1, shape[0]):
        return f"shares add up to {given:.6g} of {room:.6g} threads"
    if given < room - close * max(1, shape[0]):
        return f"{room - given:.3g} threads are left over while jobs are below their caps"
    return None
