"""What runs in tasks on workers: reports of trials, which wait while other models train."""

from dask_slaq.worker.carrying import CARRIES as CARRIES
from dask_slaq.worker.carrying import as_carried as as_carried
from dask_slaq.worker.reports import in_trial as in_trial
from dask_slaq.worker.reports import job_of_task as job_of_task
from dask_slaq.worker.reports import part_of_cross_validation as part_of_cross_validation
from dask_slaq.worker.reports import report_trial as report_trial
from dask_slaq.worker.reports import resume as resume
from dask_slaq.worker.reports import waited as waited
from dask_slaq.worker.trainings import TrainingRecord as TrainingRecord
from dask_slaq.worker.trainings import begin_training as begin_training
from dask_slaq.worker.trainings import on_cpu as on_cpu
from dask_slaq.worker.trainings import steps as steps
