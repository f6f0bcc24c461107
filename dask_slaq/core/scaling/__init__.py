"""Workers by their value: how many workers pay for the time that they save."""

from dask_slaq.core.scaling.scaler import GuardedRule as GuardedRule
from dask_slaq.core.scaling.scaler import Scaler as Scaler
from dask_slaq.core.scaling.scaler import ScalingRule as ScalingRule
from dask_slaq.core.scaling.value import Demand as Demand
from dask_slaq.core.scaling.value import Value as Value
from dask_slaq.core.scaling.value import in_words as in_words
from dask_slaq.core.scaling.value import work_left as work_left
