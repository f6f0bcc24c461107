"""Hooks around stream handlers and periodic callbacks, for which Dask has no plugin hook."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["follow", "precede", "surround"]


def follow(scheduler: Scheduler, op: str, then: Callable[..., Any]) -> None:
    """Call a function after a stream handler, with the handler's message.

    A function that an earlier plugin installed is replaced.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    op : str
        Name of the stream handler.
    then : callable
        Called with the keywords of the message.
    """
    handlers = scheduler.stream_handlers
    handler = getattr(handlers[op], "followed", handlers[op])

    @functools.wraps(handler)
    def followed(**message: Any) -> None:
        handler(**message)
        then(**message)

    followed.followed = handler  # type: ignore[attr-defined]
    handlers[op] = followed


def surround(
    scheduler: Scheduler, op: str, context: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    """Call a stream handler within a context manager. Replaces that of an earlier plugin.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    op : str
        Name of the stream handler; it may be a coroutine function.
    context : callable
        Returns the context manager; called with the keywords of the message.
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


def precede(scheduler: Scheduler, name: str, first: Callable[[], None]) -> None:
    """Call a function before a periodic callback. Replaces that of an earlier plugin.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    name : str
        Name of the periodic callback.
    first : callable
        Called without arguments.
    """
    periodic = scheduler.periodic_callbacks[name]
    callback = getattr(periodic.callback, "preceded", periodic.callback)

    def preceded() -> None:
        first()
        callback()

    preceded.preceded = callback  # type: ignore[attr-defined]
    periodic.callback = preceded
