"""Dispatch: which ready task takes which slot. Pure: nothing is sent here."""

from dask_slaq.core.dispatch.cluster import Inputs as Inputs
from dask_slaq.core.dispatch.cluster import Pinned as Pinned
from dask_slaq.core.dispatch.dispatcher import Dispatcher as Dispatcher
from dask_slaq.core.dispatch.job_queue import OWED as OWED
from dask_slaq.core.dispatch.job_queue import Group as Group
from dask_slaq.core.dispatch.job_queue import Guarantee as Guarantee
from dask_slaq.core.dispatch.job_queue import Handover as Handover
from dask_slaq.core.dispatch.job_queue import JobQueue as JobQueue
from dask_slaq.core.dispatch.job_queue import Key as Key
from dask_slaq.core.dispatch.job_queue import Way as Way
from dask_slaq.core.dispatch.order import Order as Order
from dask_slaq.core.dispatch.ready import ANY as ANY
from dask_slaq.core.dispatch.ready import DurationEstimate as DurationEstimate
from dask_slaq.core.dispatch.ready import Ready as Ready
from dask_slaq.core.dispatch.ready import TaskConstraints as TaskConstraints
from dask_slaq.core.dispatch.ready import Waiting as Waiting
from dask_slaq.core.dispatch.slots import Slots as Slots
