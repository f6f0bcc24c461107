"""What people and programs read of running jobs: status, reasons, usage, metrics, pages."""

from dask_slaq.scheduler.views.explain import explain, positions, reason
from dask_slaq.scheduler.views.forecasts import curves_to_come, in_words
from dask_slaq.scheduler.views.metrics import add_metrics
from dask_slaq.scheduler.views.shown import Shown
from dask_slaq.scheduler.views.status import (
    etas,
    owners_of_jobs,
    stage_of,
    status_of_jobs,
    teams_of_jobs,
    values_of_jobs,
)
from dask_slaq.scheduler.views.web import add_web_pages
from dask_slaq.scheduler.views.workers import speeds_in_words, workers_of

__all__ = [
    "Shown",
    "add_metrics",
    "add_web_pages",
    "curves_to_come",
    "etas",
    "explain",
    "in_words",
    "owners_of_jobs",
    "positions",
    "reason",
    "speeds_in_words",
    "stage_of",
    "status_of_jobs",
    "teams_of_jobs",
    "values_of_jobs",
    "workers_of",
]
