"""Dispatch: which ready task takes which slot. Pure: nothing is sent here."""

from dask_slaq.core.dispatch.cluster import Inputs, Pinned
from dask_slaq.core.dispatch.constants import (
    AFTER_JOBS,
    BACK_WITHIN,
    BETWEEN_MESSAGES,
    LINGER,
    LOOKED_AT,
    NARROWER,
    NOT_DATA,
    PATIENCE,
    QUIET,
    SHORT,
    SLACK,
    SOON,
)
from dask_slaq.core.dispatch.contender import Account, Contender, Granted, Group
from dask_slaq.core.dispatch.fill import Choice, Filler, undo
from dask_slaq.core.dispatch.order import OWED, Key, Order
from dask_slaq.core.dispatch.ready import (
    ANY,
    FEW,
    Entry,
    Like,
    Ready,
    TaskKind,
    Waiting,
    supplies,
)
from dask_slaq.core.dispatch.slots import Sent, Slots

__all__ = [
    "AFTER_JOBS",
    "ANY",
    "BACK_WITHIN",
    "BETWEEN_MESSAGES",
    "FEW",
    "LINGER",
    "LOOKED_AT",
    "NARROWER",
    "NOT_DATA",
    "OWED",
    "PATIENCE",
    "QUIET",
    "SHORT",
    "SLACK",
    "SOON",
    "Account",
    "Choice",
    "Contender",
    "Entry",
    "Filler",
    "Granted",
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
    "Waiting",
    "supplies",
    "undo",
]
