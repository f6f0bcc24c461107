"""Runtime models: speed of each job as a function of its threads, observed and by Ernest's law."""

from dask_slaq.core.runtime.ernest import fit as fit
from dask_slaq.core.runtime.ernest import fitted_seconds as fitted_seconds
from dask_slaq.core.runtime.job_speeds import Progress as Progress
from dask_slaq.core.runtime.job_speeds import Speeds as Speeds
from dask_slaq.core.runtime.job_speeds import among as among
from dask_slaq.core.runtime.observed import Runtimes as Runtimes
from dask_slaq.core.runtime.worker_speeds import Known as Known
from dask_slaq.core.runtime.worker_speeds import WorkerSpeeds as WorkerSpeeds
