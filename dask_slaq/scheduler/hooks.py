"""Boundary between Dask and this package: by `ENTRIES` alone Dask and its event loop enter it.

An error in one makes the plugin fall back, or what `safely` guards, or a page, fail alone.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from distributed import Scheduler

#: All guarded methods, by how Dask or its event loop comes to call them.
ENTRIES = {
    "hook": (
        *("SlaqPlugin.update_graph", "SlaqPlugin._follow", "SlaqPlugin.add_worker"),
        *("SlaqPlugin.remove_worker", "SlaqPlugin.remove_client", "SlaqPlugin.log_event"),
        *("SlaqPlugin.restart", "SlaqPlugin.valid_workers_downscaling"),
        *("SlaqPlugin._task_stolen", "SlaqPlugin._worker_changed"),  # which `log_event` tells
    ),
    "message": (
        *("SlaqPlugin._task_secedes", "SlaqPlugin._task_seceded"),
        "SlaqPlugin._task_errs",
        *("SlaqPlugin._client_publishes", "SlaqPlugin._worker_publishes", "Messages._take"),
    ),
    "request": ("Messages._act",),
    "override": (
        *(
            "SchedulerPatch.ask",
            "SchedulerPatch.is_held",
            "SchedulerPatch.send_at_once",
            "Scaling.limit",
            "Scaling.closable",
        ),
    ),
    "loop": (
        *("SlaqPlugin.run_once", "SlaqPlugin.reallocate", "SlaqPlugin._limit", "SlaqPlugin._keep"),
        *("SlaqPlugin._keep_waiting", "SlaqPlugin._keep_open", "SlaqPlugin.changed"),
        "SlaqPlugin.enter",  # all that other parts put on the loop
    ),
    "page": ("SlaqMetrics.families",),
}

#: Messages of a worker about one of its tasks.
OF_TASKS = ("long-running", "task-erred")


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


def precede(scheduler: Scheduler, checks: Iterable[str], before: Callable[[], None]) -> None:
    """Call `before` right before each periodic check of Dask's with these names, however late."""
    for name in checks:
        timer = scheduler.periodic_callbacks[name]
        plain = timer.callback
        if isinstance(plain, functools.partial) and plain.func is _check:
            plain = plain.args[1]  # of an earlier registration
        timer.callback = functools.partial(_check, before, plain)


def _check(before: Callable[[], None], plain: Callable[[], Any]) -> Any:
    before()
    return plain()


def surround(
    scheduler: Scheduler,
    op: str,
    before: Callable[..., Any],
    drop: Callable[[str, Exception], None],
) -> None:
    """Call `before` with each message or request `op`, and what it returns afterwards.

    It may return None, or False: then the message is dropped. One of a task without a worker, or a
    key that may be one, ends with `drop`. The handler may be a coroutine function.
    """

    def first(message: dict[str, Any]) -> Any:
        if op in OF_TASKS:
            try:
                hash(message["key"])
                if not isinstance(message["worker"], str):
                    raise TypeError("the worker must be an address")
            except (KeyError, TypeError) as error:
                drop(op, error)
                return False
        return before(**message)

    @contextlib.contextmanager
    def entered(message: dict[str, Any]) -> Iterator[bool]:
        """Yield whether Dask is to handle the message."""
        then = first(message)
        try:
            yield then is not False
        finally:
            if callable(then):
                then()

    def around(handler: Callable[..., Any]) -> Callable[..., Any]:
        async def wait_for(**message: Any) -> None:
            with entered(message) as goes_on:
                if goes_on:
                    await handler(**message)

        def call(**message: Any) -> None:
            with entered(message) as goes_on:
                if goes_on:
                    handler(**message)

        return wait_for if inspect.iscoroutinefunction(handler) else call

    for handlers in (scheduler.stream_handlers, scheduler.handlers):
        if op in handlers:  # without work stealing there is none for it
            handlers[op] = replace(handlers[op], around)
