"""Memory of past runs: what a job's like runs tell about it before its own reports do."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later
from dask_slaq.core.memory.curves import MIDDLES, N_BINS, Traces
from dask_slaq.core.memory.kinds import Kind, check_kind, distance, kind_of_name, read_kind
from dask_slaq.core.memory.runs import (
    MOST_KINDS,
    MOST_LIKE,
    MOST_POINTS,
    ExpectedTime,
    PastRun,
    PastRuns,
    expected_time,
    kernel,
    thinned,
)

if TYPE_CHECKING:
    from dask_slaq.core.memory.shapes import shape_of as shape_of
    from dask_slaq.core.memory.stages import MOST_STAGED as MOST_STAGED
    from dask_slaq.core.memory.stages import ExpectedStages as ExpectedStages
    from dask_slaq.core.memory.stages import PastStages as PastStages
    from dask_slaq.core.memory.stages import StagedRun as StagedRun
    from dask_slaq.core.memory.stages import check_times as check_times

__all__ = [
    "MIDDLES",
    "MOST_KINDS",
    "MOST_LIKE",
    "MOST_POINTS",
    "N_BINS",
    "ExpectedTime",
    "Kind",
    "PastRun",
    "PastRuns",
    "Traces",
    "check_kind",
    "distance",
    "expected_time",
    "kernel",
    "kind_of_name",
    "read_kind",
    "thinned",
]

_STAGES = ("MOST_STAGED", "ExpectedStages", "PastStages", "StagedRun", "check_times")
# Most jobs have no stages, and many no past run like them.
__getattr__ = later(__name__, {"shapes": ("shape_of",), "stages": _STAGES})
