"""What runs in tasks on workers: reports of trials, which wait while other models train."""

from dask_slaq.worker.desk import KEEP, KEEPING
from dask_slaq.worker.reports import (
    Reporter,
    in_task,
    in_trial,
    job_of_task,
    report_trial,
    resume_trial,
    waited,
)
from dask_slaq.worker.states import Kept, freeze
from dask_slaq.worker.trainings import Training, begin_training, on_cpu, steps

__all__ = [
    "KEEP",
    "KEEPING",
    "Kept",
    "Reporter",
    "Training",
    "begin_training",
    "freeze",
    "in_task",
    "in_trial",
    "job_of_task",
    "on_cpu",
    "report_trial",
    "resume_trial",
    "steps",
    "waited",
]
