"""Hooks around what Dask's scheduler calls: an error in one makes the plugin fall back."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["follow", "guarded", "precede", "replace", "screen", "surround"]


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


def replace(plain: Any, make: Callable[[Any], Any]) -> Any:
    """Return `make(plain)` to be used instead of a function of Dask.

    If `plain` is what an earlier plugin used instead of one, it is replaced in turn.
    """
    plain = getattr(plain, "replaced", plain)
    new: Any = functools.wraps(plain)(make(plain))
    new.replaced = plain
    return new


def surround(
    scheduler: Scheduler, op: str, context: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    """Call the stream handler `op` within a context manager, which is made with its message.

    The handler may be a coroutine function.
    """

    def around(handler: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(handler):

            async def wait_for(**message: Any) -> None:
                with context(**message):
                    await handler(**message)

            return wait_for

        def call(**message: Any) -> None:
            with context(**message):
                handler(**message)

        return call

    scheduler.stream_handlers[op] = replace(scheduler.stream_handlers[op], around)


def follow(scheduler: Scheduler, op: str, then: Callable[..., Any]) -> None:
    """Call `then` after the stream handler `op`, with its message. See `surround`."""

    @contextlib.contextmanager
    def context(**message: Any) -> Iterator[None]:
        yield
        then(**message)

    surround(scheduler, op, context)


def screen(scheduler: Scheduler, op: str, passes: Callable[..., bool]) -> None:
    """Call the stream handler `op` only with messages that pass."""

    def around(handler: Callable[..., Any]) -> Callable[..., Any]:
        def call(**message: Any) -> None:
            if passes(**message):
                handler(**message)

        return call

    scheduler.stream_handlers[op] = replace(scheduler.stream_handlers[op], around)


def precede(scheduler: Scheduler, name: str, first: Callable[[], None]) -> None:
    """Call `first` before the periodic callback `name`."""

    def around(callback: Callable[[], Any]) -> Callable[[], None]:
        def call() -> None:
            first()
            callback()

        return call

    periodic = scheduler.periodic_callbacks[name]
    periodic.callback = replace(periodic.callback, around)
