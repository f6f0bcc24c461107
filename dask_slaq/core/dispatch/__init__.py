"""Dispatch: which ready task takes which slot. Pure: nothing is sent here."""

from dask_slaq.core.dispatch.cluster import Inputs, Pinned
from dask_slaq.core.dispatch.contender import Account, Contender, Group
from dask_slaq.core.dispatch.fill import Choice, Filler, undo
from dask_slaq.core.dispatch.order import OWED, Key, Order
from dask_slaq.core.dispatch.ready import (
    ANY,
    Entry,
    Like,
    Ready,
    TaskKind,
    supplies,
)
from dask_slaq.core.dispatch.slots import Sent, Slots

__all__ = [
    "ANY",
    "OWED",
    "Account",
    "Choice",
    "Contender",
    "Entry",
    "Filler",
    "Group",
    "Inputs",
    "Key",
    "Like",
    "Order",
    "Pinned",
    "Ready",
    "Sent",
    "Slots",
    "TaskKind",
    "supplies",
    "undo",
]
