"""Threads of a virtual run: one runs at a time, and the event loop waits for it.

A function on a worker's executor runs in its own thread. The loop goes on only when the function
ends or itself waits for the loop, as P2P shuffles and `worker_client` do. So nothing waits in real
time, and every run interleaves threads in the same way.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

_current = threading.local()


class _Thread:
    """Function in a thread that takes turns with the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, call: Callable[[], None]) -> None:
        self.loop = loop
        self._call = call
        self._turn_of_thread = threading.Event()
        self._turn_of_loop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="virtual-executor", daemon=True)

    def start(self) -> None:
        """Run until the function ends or waits. Called by the event loop."""
        self._thread.start()
        self._turn_of_loop.wait()

    def _run(self) -> None:
        _current.thread = self
        self._call()
        self._turn_of_loop.set()

    def wait_for(self, func: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Let the event loop await a coroutine function. Called by the thread.

        Returns the result of `func`, or raises its exception.
        """
        outcome: list[Any] = []

        async def call() -> None:
            try:
                outcome.append((await func(*args, **kwargs), None))
            except BaseException as error:
                outcome.append((None, error))
            self.loop.call_soon(self._resume)

        self.loop.call_soon(lambda: asyncio.ensure_future(call()))
        self._turn_of_loop.set()
        self._turn_of_thread.wait()
        self._turn_of_thread.clear()
        result, error = outcome[0]
        if error is not None:
            raise error
        return result

    def _resume(self) -> None:
        self._turn_of_loop.clear()
        self._turn_of_thread.set()
        self._turn_of_loop.wait()


def in_thread() -> bool:
    """Return whether the caller runs in a thread that takes turns with the event loop."""
    return hasattr(_current, "thread")


def run_in_thread(loop: asyncio.AbstractEventLoop, func: Callable[[], Any]) -> Any:
    """Start `func` in a thread; the `loop` waits until it ends or waits for the loop.

    Returns a future of its result or exception.
    """
    future = loop.create_future()

    def call() -> None:
        try:
            result = func()
        except BaseException as error:
            loop.call_soon(_settle, future, None, error)
        else:
            loop.call_soon(_settle, future, result, None)

    _Thread(loop, call).start()
    return future


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)


@contextlib.contextmanager
def synchronous_calls() -> Iterator[None]:
    """Let threads that wait for the event loop take turns with it.

    Replaces `distributed.utils.sync` in all loaded modules of `distributed`.
    """
    from distributed import utils

    original = utils.sync

    def sync(
        loop: Any, func: Callable[..., Any], *args: Any, callback_timeout: Any = None, **kwargs: Any
    ) -> Any:
        thread = getattr(_current, "thread", None)
        if thread is None:
            return original(loop, func, *args, callback_timeout=callback_timeout, **kwargs)
        return thread.wait_for(func, args, kwargs)

    bound = [
        module
        for name, module in list(sys.modules.items())
        if name.startswith("distributed") and getattr(module, "sync", None) is original
    ]
    for module in bound:
        module.sync = sync  # type: ignore[attr-defined]
    try:
        yield
    finally:
        for module in bound:
            module.sync = original  # type: ignore[attr-defined]
