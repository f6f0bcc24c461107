"""What people and programs read of running jobs: status, reasons, usage, metrics, pages."""

from dask_slaq.scheduler.views.curves import curves_to_come
from dask_slaq.scheduler.views.ends import in_words
from dask_slaq.scheduler.views.explain import explain, positions, reason
from dask_slaq.scheduler.views.json_page import add_json
from dask_slaq.scheduler.views.metrics import add_metrics
from dask_slaq.scheduler.views.status import (
    etas,
    owners_of_jobs,
    status_of_job,
    values_of_jobs,
)
from dask_slaq.scheduler.views.usage import UnownedUsage, UsageByOwner

__all__ = [
    "UnownedUsage",
    "UsageByOwner",
    "add_json",
    "add_metrics",
    "curves_to_come",
    "etas",
    "explain",
    "in_words",
    "owners_of_jobs",
    "positions",
    "reason",
    "status_of_job",
    "values_of_jobs",
]
