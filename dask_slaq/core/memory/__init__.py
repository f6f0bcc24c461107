"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.memory.curves import MIDDLES as MIDDLES
from dask_slaq.core.memory.curves import N_BINS as N_BINS
from dask_slaq.core.memory.curves import Traces as Traces
from dask_slaq.core.memory.curves import shape_of as shape_of
from dask_slaq.core.memory.kinds import Kind as Kind
from dask_slaq.core.memory.kinds import check_kind as check_kind
from dask_slaq.core.memory.kinds import distance as distance
from dask_slaq.core.memory.kinds import kind_of_name as kind_of_name
from dask_slaq.core.memory.kinds import read_kind as read_kind
from dask_slaq.core.memory.runs import MOST_KINDS as MOST_KINDS
from dask_slaq.core.memory.runs import MOST_LIKE as MOST_LIKE
from dask_slaq.core.memory.runs import ExpectedTime as ExpectedTime
from dask_slaq.core.memory.runs import PastRun as PastRun
from dask_slaq.core.memory.runs import PastRuns as PastRuns
from dask_slaq.core.memory.runs import expected_time as expected_time
from dask_slaq.core.memory.runs import kernel as kernel
from dask_slaq.core.memory.runs import thinned as thinned
