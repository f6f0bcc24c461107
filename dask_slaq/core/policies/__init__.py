"""Scheduling policies, which turn a `Snapshot` of the jobs into an `Allocation` of threads."""

from dask_slaq.core.policies.base import GreedyPolicy as GreedyPolicy
from dask_slaq.core.policies.base import with_forecasts as with_forecasts
from dask_slaq.core.policies.quality_driven import EXCHANGE_RATE as EXCHANGE_RATE
from dask_slaq.core.policies.quality_driven import Policy as Policy
from dask_slaq.core.policies.quality_driven import Traits as Traits
from dask_slaq.core.policies.quality_driven import traits_of as traits_of
from dask_slaq.core.policies.quality_driven import with_efficiency_cap as with_efficiency_cap
from dask_slaq.core.policies.registry import POLICIES as POLICIES
from dask_slaq.core.policies.registry import GuardedPolicy as GuardedPolicy
from dask_slaq.core.policies.registry import add_policy as add_policy
from dask_slaq.core.policies.registry import added_policies as added_policies
from dask_slaq.core.policies.registry import broken_rule as broken_rule
from dask_slaq.core.policies.registry import policy as policy
from dask_slaq.core.policies.snapshot import ARRAYS as ARRAYS
from dask_slaq.core.policies.snapshot import Allocation as Allocation
from dask_slaq.core.policies.snapshot import Snapshot as Snapshot
from dask_slaq.core.policies.water_filling import fair_fill as fair_fill
from dask_slaq.core.policies.water_filling import fit_floors as fit_floors
