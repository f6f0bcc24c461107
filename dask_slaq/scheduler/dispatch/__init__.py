"""Choice of ready tasks for free slots. Only reads the scheduler; `Pools` enacts the choices."""

from dask_slaq.scheduler.dispatch.anticipation import BACK_WITHIN
from dask_slaq.scheduler.dispatch.dispatcher import Dispatcher
from dask_slaq.scheduler.dispatch.durations import Durations, Like
from dask_slaq.scheduler.dispatch.open_workers import LOOKED_AT
from dask_slaq.scheduler.dispatch.pool import Binding, Choice, Group, Pool
from dask_slaq.scheduler.dispatch.ready import Entry, Kind
from dask_slaq.scheduler.dispatch.sent_tasks import blocked, has_thread, load
from dask_slaq.scheduler.dispatch.slots import Slots

__all__ = [
    "BACK_WITHIN",
    "LOOKED_AT",
    "Binding",
    "Choice",
    "Dispatcher",
    "Durations",
    "Entry",
    "Group",
    "Kind",
    "Like",
    "Pool",
    "Slots",
    "blocked",
    "has_thread",
    "load",
]
