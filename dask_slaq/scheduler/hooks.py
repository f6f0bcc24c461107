"""Hooks around what Dask's scheduler calls: an error in one makes the plugin fall back."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler

__all__ = ["guarded", "guarded_as", "replace", "surround"]


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a method of the plugin that never raises, and does nothing once the plugin failed."""
    return guarded_as()(method)


def guarded_as(
    *, always: bool = False, otherwise: Callable[..., Any] = lambda *args, **kwargs: None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Return a decorator like `guarded`.

    With `always` the method goes on after a failure. Where it fails, or does nothing, it returns
    what `otherwise` does, with the same arguments. What may fail is the attribute ``body``.
    """

    def decorate(method: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(method)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if always or self.failed is None:
                try:
                    return guard.body(self, *args, **kwargs)
                except Exception as error:
                    self.fall_back(error)
            return otherwise(self, *args, **kwargs)

        guard: Any = call
        guard.body = method
        return call

    return decorate


def replace(plain: Any, make: Callable[[Any], Any]) -> Any:
    """Return `make(plain)` to be used instead of a function of Dask.

    If `plain` is what an earlier plugin used instead of one, it is replaced in turn. What somebody
    else has put around that stays, although `functools.wraps` copies our mark.
    """
    ours, before = getattr(plain, "replaced", (None, None))
    if ours is plain:
        plain = before
    new: Any = functools.wraps(plain)(make(plain))
    new.replaced = new, plain
    return new


def surround(scheduler: Scheduler, op: str, before: Callable[..., Any]) -> None:
    """Call `before` with each message or request `op`, and what it returns afterwards.

    It may return None, or False: then the message is dropped. The handler may be a coroutine
    function.
    """

    def around(handler: Callable[..., Any]) -> Callable[..., Any]:
        if inspect.iscoroutinefunction(handler):

            async def wait_for(**message: Any) -> None:
                then = before(**message)
                if then is False:
                    return
                try:
                    await handler(**message)
                finally:
                    if then is not None:
                        then()

            return wait_for

        def call(**message: Any) -> None:
            then = before(**message)
            if then is False:
                return
            try:
                handler(**message)
            finally:
                if then is not None:
                    then()

        return call

    for handlers in (scheduler.stream_handlers, scheduler.handlers):
        if op in handlers:  # without work stealing there is none for it
            handlers[op] = replace(handlers[op], around)
