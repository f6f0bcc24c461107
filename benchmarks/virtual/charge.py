"""Real work of the scheduler, charged to the virtual clock.

Code that computes takes no virtual time by itself, so that results repeat. Charged, a slow
scheduler shows in the results: what it does for a message, and what the plugin does by itself,
takes as much virtual time as CPU time. Workers share the clock, so they wait for the scheduler a
little more than they would in processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from benchmarks.virtual.clock import charged

if TYPE_CHECKING:
    from distributed import Scheduler

#: Where the plugin's own callbacks of the event loop are from.
OURS = "dask_slaq.scheduler"


@contextlib.contextmanager
def charge_scheduler(scheduler: Scheduler, factor: float) -> Iterator[None]:
    """Charge the work of a scheduler, and of a plugin that is registered in this block.

    With a `factor` of zero nothing is charged; two stand for a machine of half the speed. Charged
    are messages of workers and clients, graphs, and what the plugin does on timers: decisions and
    dispatches.
    """
    if not factor:
        yield
        return
    from dask_slaq.scheduler.plugin import SlaqPlugin

    with contextlib.ExitStack() as stack:
        handlers = scheduler.stream_handlers
        scheduler.stream_handlers = _Handlers(handlers, factor)
        stack.callback(setattr, scheduler, "stream_handlers", handlers)
        for owner, name in (
            (type(scheduler), "_create_taskstate_from_graph"),
            (SlaqPlugin, "run_once"),
        ):
            plain = vars(owner)[name]
            setattr(owner, name, _charged(plain, factor))
            stack.callback(setattr, owner, name, plain)
        run = asyncio.Handle._run

        def run_charged(handle: asyncio.Handle) -> None:
            callback = getattr(handle._callback, "func", handle._callback)
            if (getattr(callback, "__module__", None) or "").startswith(OURS):
                with charged(factor):
                    run(handle)
            else:
                run(handle)

        asyncio.Handle._run = run_charged  # type: ignore[method-assign]
        stack.callback(setattr, asyncio.Handle, "_run", run)
        yield


def _charged(function: Callable[..., Any], factor: float) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with charged(factor):
            return function(*args, **kwargs)

    return call


class _Handlers(dict[str, Callable[..., Any]]):
    """Handlers of messages by operation, whose work is charged."""

    def __init__(self, handlers: dict[str, Callable[..., Any]], factor: float) -> None:
        super().__init__(handlers)
        self._factor = factor

    def __getitem__(self, op: str) -> Callable[..., Any]:
        handler = super().__getitem__(op)
        if inspect.iscoroutinefunction(handler):
            return handler
        return _charged(handler, self._factor)
