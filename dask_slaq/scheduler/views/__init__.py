"""What people and programs read of running jobs: status, reasons, usage, metrics, pages."""

from typing import TYPE_CHECKING

from dask_slaq.core.later import later
from dask_slaq.scheduler.views.forecasts import curves_to_come, in_words
from dask_slaq.scheduler.views.metrics import add_metrics
from dask_slaq.scheduler.views.overview import overview
from dask_slaq.scheduler.views.status import owners_of_jobs, status_of_jobs
from dask_slaq.scheduler.views.web import add_web_pages

if TYPE_CHECKING:
    from dask_slaq.scheduler.views.reasons import explain as explain
    from dask_slaq.scheduler.views.reasons import positions as positions
    from dask_slaq.scheduler.views.reasons import reason as reason
    from dask_slaq.scheduler.views.workers import speeds_in_words as speeds_in_words
    from dask_slaq.scheduler.views.workers import workers_of as workers_of

__all__ = [
    "add_metrics",
    "add_web_pages",
    "curves_to_come",
    "in_words",
    "overview",
    "owners_of_jobs",
    "status_of_jobs",
]

# Loaded when somebody asks.
__getattr__ = later(
    __name__,
    {
        "reasons": ("explain", "positions", "reason"),
        "workers": ("speeds_in_words", "workers_of"),
    },
)
