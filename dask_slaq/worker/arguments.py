"""Parameters of the model that a task trains, read from the call that the task makes."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task
from dask.utils import apply

from dask_slaq.core.trials import arguments, as_parameters, bounded

logger = logging.getLogger(__name__)

#: Functions that only put values into containers, by name.
CONTAINERS = frozenset({"dict", "list", "tuple", "set", "to_container", "_identity_cast"})


def parameters_of(task: Any) -> dict[str, Any]:
    """Return the plain arguments of the function that a task calls; empty if they are unknown.

    Results of other tasks are not among them, and nothing is computed.
    """
    try:
        function, args, kwargs = task.func, list(task.args), dict(task.kwargs)
        if function is apply:
            function, args, kwargs = _value(args[0]), _value(args[1]), {}
            kwargs = _value(task.args[2]) if len(task.args) > 2 else {}
        names = {name: _value(value) for name, value in kwargs.items()}
        return bounded(as_parameters(arguments(function, map(_value, args), names)))
    except Exception:
        logger.debug("the arguments of a task are unknown: %r", task, exc_info=True)
        return {}


def _value(part: Any) -> Any:
    """Return a part of a task, with the containers in it made; parts of other tasks stay."""
    if isinstance(part, DataNode):
        return part.value
    if not isinstance(part, GraphNode) or part.dependencies or not _only_holds(part):
        if isinstance(part, Mapping) and isinstance(part, GraphNode):
            return {name: _value(part[name]) for name in part}
        return part
    return part({})


def _only_holds(part: Any) -> bool:
    """Return whether a part of a task consists of nothing but values and containers."""
    if isinstance(part, DataNode) or not isinstance(part, GraphNode):
        return True
    if not isinstance(part, Task) or getattr(part.func, "__name__", "") not in CONTAINERS:
        return False
    return all(map(_only_holds, _parts(part.args)))


def _parts(args: Any) -> Any:
    for arg in args:
        if isinstance(arg, list | tuple):
            yield from _parts(arg)
        else:
            yield arg
