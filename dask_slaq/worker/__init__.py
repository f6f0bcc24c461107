"""What runs in tasks on workers: reports of trials, which wait while other models train."""

from dask_slaq.worker.reports import Reporter, in_trial, job_of_task, report_trial, resume_trial

__all__ = ["Reporter", "in_trial", "job_of_task", "report_trial", "resume_trial"]
