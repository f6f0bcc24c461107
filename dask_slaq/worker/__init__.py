"""What runs in tasks on workers: reports of trials, which wait while other models train."""

from dask_slaq.worker.reports import (
    Reporter,
    in_trial,
    job_of_task,
    report_trial,
    resume_trial,
    waited,
)
from dask_slaq.worker.trainings import Training, begin_training, on_cpu, steps

__all__ = [
    "Reporter",
    "Training",
    "begin_training",
    "in_trial",
    "job_of_task",
    "on_cpu",
    "report_trial",
    "resume_trial",
    "steps",
    "waited",
]
