"""Runtime models: speed of each job as a function of its threads, observed and by Ernest's law."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later
from dask_slaq.core.runtime.job_speeds import Progress, Speeds, among, waves
from dask_slaq.core.runtime.observed import SPREAD, Runtimes
from dask_slaq.core.runtime.prior import clearly_better
from dask_slaq.core.runtime.worker_speeds import Known, WorkerSpeeds

if TYPE_CHECKING:
    from dask_slaq.core.runtime.least_squares import nnls as nnls

__all__ = [
    "SPREAD",
    "Known",
    "Progress",
    "Runtimes",
    "Speeds",
    "WorkerSpeeds",
    "among",
    "clearly_better",
    "waves",
]

# Jobs that were observed on several numbers of threads are fitted by it.
__getattr__ = later(__name__, {"least_squares": ("nnls",)})
