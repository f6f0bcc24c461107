"""What a policy is written with. ``docs/write-a-policy.md`` shows how."""

from dask_slaq.core.policies import Allocation as Allocation
from dask_slaq.core.policies import GreedyPolicy as GreedyPolicy
from dask_slaq.core.policies import Policy as Policy
from dask_slaq.core.policies import Snapshot as Snapshot
from dask_slaq.core.policies import Traits as Traits
from dask_slaq.core.policies import add_policy as add_policy
from dask_slaq.core.policies import fair_fill as fair_fill
from dask_slaq.core.policies import policy as policy
from dask_slaq.core.policies import with_forecasts as with_forecasts
