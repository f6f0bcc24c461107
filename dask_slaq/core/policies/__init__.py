"""Scheduling policies, which turn a `Snapshot` of the jobs into an `Allocation` of threads."""

from dask_slaq.core.policies.quality_driven import (
    Policy,
    Traits,
    traits_of,
    with_efficiency_cap,
)
from dask_slaq.core.policies.registry import POLICIES, policy
from dask_slaq.core.policies.snapshot import Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors

__all__ = [
    "POLICIES",
    "Allocation",
    "Policy",
    "Snapshot",
    "Traits",
    "fair_fill",
    "fit_floors",
    "policy",
    "traits_of",
    "with_efficiency_cap",
]
