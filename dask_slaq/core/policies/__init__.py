"""Scheduling policies, which turn a `Snapshot` of the jobs into an `Allocation` of threads."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later
from dask_slaq.core.policies.quality_driven import Policy, Traits, traits_of, with_efficiency_cap
from dask_slaq.core.policies.registry import POLICIES, add_policy, added_policies, policy
from dask_slaq.core.policies.snapshot import ARRAYS, Allocation, Snapshot
from dask_slaq.core.policies.water_filling import fair_fill, fit_floors

if TYPE_CHECKING:
    from dask_slaq.core.policies.guarded import GuardedPolicy as GuardedPolicy
    from dask_slaq.core.policies.guarded import broken_rule as broken_rule

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

# What guards policies of others.
__getattr__ = later(__name__, {"guarded": ("GuardedPolicy", "broken_rule")})
