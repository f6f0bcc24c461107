"""Run history: what a job's like runs tell about it before its own reports do."""

from dask_slaq.core.run_history.curves import MIDDLES as MIDDLES
from dask_slaq.core.run_history.curves import N_BINS as N_BINS
from dask_slaq.core.run_history.curves import Traces as Traces
from dask_slaq.core.run_history.curves import shape_of as shape_of
from dask_slaq.core.run_history.kinds import Kind as Kind
from dask_slaq.core.run_history.kinds import check_kind as check_kind
from dask_slaq.core.run_history.kinds import distance as distance
from dask_slaq.core.run_history.kinds import kind_of_name as kind_of_name
from dask_slaq.core.run_history.kinds import read_kind as read_kind
from dask_slaq.core.run_history.runs import MOST_KINDS as MOST_KINDS
from dask_slaq.core.run_history.runs import MOST_LIKE_RUNS as MOST_LIKE_RUNS
from dask_slaq.core.run_history.runs import ExpectedTime as ExpectedTime
from dask_slaq.core.run_history.runs import PastRun as PastRun
from dask_slaq.core.run_history.runs import PastRuns as PastRuns
from dask_slaq.core.run_history.runs import expected_time as expected_time
from dask_slaq.core.run_history.runs import kernel as kernel
from dask_slaq.core.run_history.runs import thinned as thinned
