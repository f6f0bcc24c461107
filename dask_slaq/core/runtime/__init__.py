"""Runtime models: speed of each job as a function of its threads, observed and by Ernest's law."""

from dask_slaq.core.runtime.ernest import nnls as nnls
from dask_slaq.core.runtime.job_speeds import Progress, Speeds, among, waves
from dask_slaq.core.runtime.observed import SPREAD, Runtimes
from dask_slaq.core.runtime.prior import clearly_better
from dask_slaq.core.runtime.worker_speeds import Known, WorkerSpeeds

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
