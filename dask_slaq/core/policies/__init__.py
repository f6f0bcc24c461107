"""Scheduling policies, which turn a `Snapshot` of the jobs into an `Allocation` of threads."""

from dask_slaq.core.policies.guarded import GuardedPolicy as GuardedPolicy
from dask_slaq.core.policies.guarded import broken_rule as broken_rule
from dask_slaq.core.policies.quality_driven import Policy, Traits, traits_of, with_efficiency_cap
from dask_slaq.core.policies.registry import POLICIES, add_policy, added_policies, policy
from dask_slaq.core.policies.snapshot import ARRAYS, Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors

__all__ = [
    "ARRAYS",
    "POLICIES",
    "Allocation",
    "Policy",
    "Snapshot",
    "Traits",
    "add_policy",
    "added_policies",
    "fair_fill",
    "fit_floors",
    "policy",
    "traits_of",
    "with_efficiency_cap",
]
