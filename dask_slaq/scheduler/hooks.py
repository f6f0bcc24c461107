"""Hears of what the scheduler has no plugin hook for: stream handlers and periodic callbacks."""

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
    """Call `then` after a stream handler, with its message.

    What followed before, of a plugin that was registered earlier, is replaced.
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
    """Call a stream handler within a context that is made from its message; as `follow`."""
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
    """Call `first` before one of the scheduler's periodic callbacks; as `follow`."""
    periodic = scheduler.periodic_callbacks[name]
    callback = getattr(periodic.callback, "preceded", periodic.callback)

    def preceded() -> None:
        first()
        callback()

    preceded.preceded = callback  # type: ignore[attr-defined]
    periodic.callback = preceded
