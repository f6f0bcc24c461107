"""Ends of joblib's calls under its Dask backend, such as a grid search of scikit-learn.

Their tasks are fits that report no loss, so no report can stop them: the call itself raises
`StopTraining`, and its tasks are cancelled.
"""

from __future__ import annotations

import logging
from asyncio import CancelledError
from collections.abc import Callable
from types import FunctionType
from typing import Any

from dask_slaq.adapters.observing import Loop, open_blocks, stopped
from dask_slaq.core.errors import StopTraining

logger = logging.getLogger(__name__)


class Backend(Loop):
    """Coroutine of the backend that prepares the arguments of a task, right before it is sent.

    It runs in the client's event loop, in a copy of the context in which joblib was called.
    """

    def replacement(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement that ends the calls of a stopped block."""

        async def prepare(backend: Any, *args: Any, **kwargs: Any) -> Any:
            if not can_end(backend):
                return await function(backend, *args, **kwargs)
            for block in open_blocks():
                # In the event loop of its client, which brings their results.
                block.when_stopped(backend, lambda b, why: b.client.loop.add_callback(end, b, why))
            if not stopped():
                prepared = await function(backend, *args, **kwargs)
            if stopped():  # maybe while it sent data to the workers
                raise CancelledError
            return prepared

        return prepare


def can_end(backend: Any) -> bool:
    """Return whether `end` finds the pending calls: with joblib 1.4, not if they are unordered."""
    parallel = getattr(backend, "parallel", None)
    ordered = getattr(parallel, "return_ordered", False) or hasattr(parallel, "_jobs_set")
    return ordered and getattr(backend, "supports_retrieve_callback", False)


async def end(backend: Any, why: str) -> None:
    """Let the calls of a backend raise `StopTraining`, and cancel their tasks. Never raises."""
    try:
        parallel = backend.parallel
        with parallel._lock:
            calls = [*parallel._jobs, *getattr(parallel, "_jobs_set", ())]
        for call in calls:
            call(StopTraining(why))  # as if it were its result; later ones are ignored
        await backend.client.cancel(list(backend._results), asynchronous=True)
    except Exception as error:
        logger.warning("a call of joblib cannot be stopped and goes on: %r", error)


LOOPS = (Backend("joblib._dask", "DaskDistributedBackend._to_func_args"),)
