"""Dispatch: which ready task takes which slot. Pure: `decide` sends nothing."""

from dask_slaq.core.dispatch.constants import (
    AFTER_JOBS,
    BACK_WITHIN,
    BETWEEN_MESSAGES,
    LINGER,
    LOOK,
    LOOKED_AT,
    MOST_REST,
    NARROWER,
    NOT_DATA,
    PATIENCE,
    QUIET,
    REST,
    SHORT,
    SLACK,
    SOON,
    TOGETHER,
)
from dask_slaq.core.dispatch.contender import Contender, Group
from dask_slaq.core.dispatch.decide import Choice, Inputs, Pinned, Turn, decide, undo
from dask_slaq.core.dispatch.like import Like
from dask_slaq.core.dispatch.order import OWED, Key, Order
from dask_slaq.core.dispatch.overload import Look, Overload
from dask_slaq.core.dispatch.places import Place, Sent
from dask_slaq.core.dispatch.ready import ANY, FEW, Entry, Ready, TaskKind, supplies

__all__ = [
    "AFTER_JOBS",
    "ANY",
    "BACK_WITHIN",
    "BETWEEN_MESSAGES",
    "FEW",
    "LINGER",
    "LOOK",
    "LOOKED_AT",
    "MOST_REST",
    "NARROWER",
    "NOT_DATA",
    "OWED",
    "PATIENCE",
    "QUIET",
    "REST",
    "SHORT",
    "SLACK",
    "SOON",
    "TOGETHER",
    "Choice",
    "Contender",
    "Entry",
    "Group",
    "Inputs",
    "Key",
    "Like",
    "Look",
    "Order",
    "Overload",
    "Pinned",
    "Place",
    "Ready",
    "Sent",
    "TaskKind",
    "Turn",
    "decide",
    "supplies",
    "undo",
]
