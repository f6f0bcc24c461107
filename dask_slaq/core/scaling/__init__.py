"""Workers by worth: how many workers pay for the time that they save."""

from dask_slaq.core.scaling.scaler import GuardedRule as GuardedRule
from dask_slaq.core.scaling.scaler import Scaler as Scaler
from dask_slaq.core.scaling.scaler import ScalingRule as ScalingRule
from dask_slaq.core.scaling.worth import Demand as Demand
from dask_slaq.core.scaling.worth import Worth as Worth
from dask_slaq.core.scaling.worth import in_words as in_words
from dask_slaq.core.scaling.worth import work_left as work_left
