"""Dispatch: which ready task takes which slot. Pure: nothing is sent here."""

from dask_slaq.core.dispatch.cluster import Inputs as Inputs
from dask_slaq.core.dispatch.cluster import Pinned as Pinned
from dask_slaq.core.dispatch.contender import Account as Account
from dask_slaq.core.dispatch.contender import Contender as Contender
from dask_slaq.core.dispatch.contender import Group as Group
from dask_slaq.core.dispatch.fill import Filler as Filler
from dask_slaq.core.dispatch.handover import Handover as Handover
from dask_slaq.core.dispatch.handover import Way as Way
from dask_slaq.core.dispatch.order import OWED as OWED
from dask_slaq.core.dispatch.order import Key as Key
from dask_slaq.core.dispatch.order import Order as Order
from dask_slaq.core.dispatch.ready import ANY as ANY
from dask_slaq.core.dispatch.ready import Like as Like
from dask_slaq.core.dispatch.ready import Ready as Ready
from dask_slaq.core.dispatch.ready import TaskKind as TaskKind
from dask_slaq.core.dispatch.slots import Slots as Slots
