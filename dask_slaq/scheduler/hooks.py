"""Hooks around what Dask's scheduler calls: an error in one makes the plugin fall back."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["follow", "guarded", "precede", "surround"]


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of the plugin that never raises, and does nothing once the plugin failed."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.failed is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.fall_back(error)
        return None

    return call


def surround(
    scheduler: Scheduler, op: str, context: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    """Call the stream handler `op` within a context manager, which is made with its message.

    That of an earlier plugin is replaced. The handler may be a coroutine function.
    """
    handlers = scheduler.stream_handlers
    handler = getattr(handlers[op], "surrounded", handlers[op])

    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def surrounded(**message: Any) -> None:
            with context(**message):
                await handler(**message)

    else:

        @functools.wraps(handler)
        def surrounded(**message: Any) -> None:
            with context(**message):
                handler(**message)

    surrounded.surrounded = handler  # type: ignore[attr-defined]
    handlers[op] = surrounded


def follow(scheduler: Scheduler, op: str, then: Callable[..., Any]) -> None:
    """Call `then` after the stream handler `op`, with its message. See `surround`."""

    @contextlib.contextmanager
    def context(**message: Any) -> Iterator[None]:
        yield
        then(**message)

    surround(scheduler, op, context)


def precede(scheduler: Scheduler, name: str, first: Callable[[], None]) -> None:
    """Call `first` before the periodic callback `name`. That of an earlier plugin is replaced."""
    periodic = scheduler.periodic_callbacks[name]
    callback = getattr(periodic.callback, "preceded", periodic.callback)

    def preceded() -> None:
        first()
        callback()

    preceded.preceded = callback  # type: ignore[attr-defined]
    periodic.callback = preceded
