"""What people and programs read of running jobs: status, reasons, usage, metrics, pages."""

from dask_slaq.scheduler.views.everything import core_seconds_by_day as core_seconds_by_day
from dask_slaq.scheduler.views.everything import overview as overview
from dask_slaq.scheduler.views.everything import speeds_in_words as speeds_in_words
from dask_slaq.scheduler.views.everything import usage_of as usage_of
from dask_slaq.scheduler.views.everything import workers_of as workers_of
from dask_slaq.scheduler.views.explanation import explain as explain
from dask_slaq.scheduler.views.explanation import in_words as in_words
from dask_slaq.scheduler.views.metrics import add_metrics
from dask_slaq.scheduler.views.reasons import positions as positions
from dask_slaq.scheduler.views.reasons import reason as reason
from dask_slaq.scheduler.views.status import curves_to_come as curves_to_come
from dask_slaq.scheduler.views.status import owners_of_jobs as owners_of_jobs
from dask_slaq.scheduler.views.status import status_of_jobs as status_of_jobs

__all__ = ["add_metrics"]
