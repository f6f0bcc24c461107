"""Dispatch: which ready task takes which slot. Pure: `decide` sends nothing."""

from typing import TYPE_CHECKING

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
from dask_slaq.core.dispatch.contender import Contender, Gaps, Group
from dask_slaq.core.dispatch.decide import Choice, Inputs, Pinned, Turn, decide, undo
from dask_slaq.core.dispatch.like import Like
from dask_slaq.core.dispatch.order import OWED, Key, Order
from dask_slaq.core.dispatch.overload import Look, Overload
from dask_slaq.core.dispatch.places import Place, Sent
from dask_slaq.core.dispatch.ready import ANY, FEW, GROWS, Entry, Ready, TaskKind, supplies
from dask_slaq.core.dispatch.waiting import Waiting
from dask_slaq.core.later import later

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.stored import Stored as Stored

__all__ = [
    "AFTER_JOBS",
    "ANY",
    "BACK_WITHIN",
    "BETWEEN_MESSAGES",
    "FEW",
    "GROWS",
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
    "Gaps",
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
    "Waiting",
    "decide",
    "supplies",
    "undo",
]

# Memory of owners that is limited.
__getattr__ = later(__name__, {"stored": ("Stored",)})
