"""A clock that jumps to the next timer, and the event loop that runs on it.

The functions of the `time` module are replaced, also in modules that have imported them by name.
The replacements read the virtual clock during a virtual run and the real clock otherwise.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import gc
import selectors
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, TypeVar

from benchmarks.virtual.latency import messages_take
from benchmarks.virtual.reproducible import reproducible
from benchmarks.virtual.threads import in_thread, run_in_thread, synchronous_calls

T = TypeVar("T")

#: Virtual time in seconds at which a run starts. Not a Unix time: added to a number that large,
#: the shortest steps would be lost in rounding and the loop would not advance.
BEGINNING = 1000.0
#: Seconds by which every turn of the event loop advances the clock. Asyncio fires a timer up to the
#: resolution of its clock early; code that then checks the time and waits again would never end.
_SHORTEST = 1e-10
#: Seconds by which reading the clock in a thread advances it. Code that computes takes no virtual
#: time, but Dask's work stealing asserts that tasks have taken some.
_READING = 1e-6

#: Virtual seconds that cancelled tasks have for their cleanup at the end of a run.
LEAVE = 60.0

_READ = ("time", "monotonic", "perf_counter", "process_time", "thread_time")
_READ_NS = tuple(f"{name}_ns" for name in _READ)
_REAL: dict[str, Any] = {name: getattr(time, name) for name in (*_READ, *_READ_NS, "sleep")}
#: Packages whose modules may have imported functions of `time` by name, and the script that runs.
_BINDERS = (
    *("dask", "distributed", "tornado", "zict", "locket"),
    *("dask_slaq", "benchmarks", "tests", "__main__"),
)


class Stuck(RuntimeError):
    """Deadlock of a virtual run: no callback is ready and no timer is set."""


class _Clock:
    """The virtual time in seconds, None while no virtual run lasts.

    While code runs that is charged, `since` is the CPU time of its thread up to which it has been.
    """

    now: float | None = None
    since: float | None = None
    factor = 0.0
    charged = 0.0


def now() -> float:
    """Return the virtual time in seconds from `BEGINNING` on; the real time outside a run."""
    return _REAL["time"]() if _Clock.now is None else _Clock.now


def _reader(name: str) -> Callable[[], float]:
    real = _REAL[name]
    unit = 10**9 if name.endswith("_ns") else None

    of_thread = name.startswith("thread_time")

    def read() -> float:
        if _Clock.now is None:
            return real()
        if in_thread():
            _Clock.now += _READING
        elif _Clock.since is not None:
            _settle()
        # What computes takes as long as it is charged for; what takes no time in threads does.
        found = _Clock.charged if of_thread and not in_thread() else _Clock.now
        return int(found * unit) if unit else found

    read.__name__ = read.__qualname__ = name
    return read


def _settle() -> None:
    """Advance the clock by what has been computed since it was last charged."""
    spent = _REAL["thread_time"]()
    seconds = _Clock.factor * (spent - _Clock.since)
    _Clock.now += seconds
    _Clock.charged += seconds
    _Clock.since = spent


@contextlib.contextmanager
def charged(factor: float) -> Iterator[None]:
    """Advance the virtual clock by the CPU time of the block, times a factor.

    Code that reads the clock meanwhile sees it advance. Blocks may be nested.
    """
    if _Clock.since is not None or _Clock.now is None or in_thread():
        yield
        return
    _Clock.since, _Clock.factor = _REAL["thread_time"](), factor
    try:
        yield
    finally:
        _settle()
        _Clock.since = None


def seconds_charged() -> float:
    """Return the virtual seconds that the present or last run was charged."""
    return _Clock.charged


def _sleep(seconds: float) -> None:
    """Advance the clock for the whole run: a blocking sleep stalls the event loop."""
    if _Clock.now is None:
        _REAL["sleep"](seconds)
    else:
        _Clock.now += max(seconds, _SHORTEST)


_VIRTUAL: dict[str, Any] = {name: _reader(name) for name in (*_READ, *_READ_NS)}
_VIRTUAL["sleep"] = _sleep
_REPLACEMENT = {_REAL[name]: _VIRTUAL[name] for name in _REAL}


#: Modules that `install` has been through, by name.
_rebound: dict[str, ModuleType] = {}


def install() -> None:
    """Replace the functions of `time`, also where loaded modules have imported them by name."""
    for name, function in _VIRTUAL.items():
        setattr(time, name, function)
    for name, module in list(sys.modules.items()):
        ours = name.partition(".")[0] in _BINDERS and isinstance(module, ModuleType)
        if ours and _rebound.get(name) is not module:
            _rebind(module)
            _rebound[name] = module


def _rebind(module: ModuleType) -> None:
    for name, value in list(vars(module).items()):
        if _is_real(value):
            setattr(module, name, _REPLACEMENT[value])
        elif isinstance(value, FunctionType):
            _rebind_defaults(_innermost(value))
        elif isinstance(value, type) and value.__module__ == module.__name__:
            for member in list(vars(value).values()):
                if isinstance(member, FunctionType):
                    _rebind_defaults(_innermost(member))


def _innermost(function: FunctionType) -> FunctionType:
    """Return the function under its decorators: the one that has the defaults."""
    while isinstance(wrapped := vars(function).get("__wrapped__"), FunctionType):
        function = wrapped
    return function


def _rebind_defaults(function: FunctionType) -> None:
    if any(_is_real(default) for default in function.__defaults__ or ()):
        function.__defaults__ = tuple(
            _REPLACEMENT[d] if _is_real(d) else d for d in function.__defaults__ or ()
        )


def _is_real(value: object) -> bool:
    return isinstance(value, BuiltinFunctionType) and value in _REPLACEMENT


class _JumpingSelector(selectors.DefaultSelector):
    """Selector that only polls, and advances the virtual clock instead of waiting."""

    def select(self, timeout: float | None = None) -> Any:
        events = super().select(0)
        if _Clock.now is None or (timeout is None and not events):
            raise Stuck("every task of the event loop waits, and no timer is set")
        _Clock.now += _SHORTEST if events else max(timeout or 0.0, _SHORTEST)
        return events


class _VirtualLoop(asyncio.SelectorEventLoop):
    """Event loop on the virtual clock that never runs at the same time as another thread."""

    def __init__(self) -> None:
        super().__init__(_JumpingSelector())
        self._clock_resolution = _SHORTEST

    def time(self) -> float:
        return time.monotonic()

    def call_at(self, when: float, callback: Any, *args: Any, context: Any = None) -> Any:
        """Set a timer that does not fire before the clock has advanced.

        Code that waits for a time which rounding has put just ahead sets its timer again. Several
        such timers in turn would keep the loop from calling the selector, and the clock would stop.
        """
        when = max(when, self.time() + 2 * _SHORTEST)
        return super().call_at(when, callback, *args, context=context)

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:
        """Run the function before virtual time advances."""
        from distributed.utils import _offload_executor

        if executor is not None and executor is not _offload_executor:
            return run_in_thread(self, functools.partial(func, *args))
        future = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


def run(main: Callable[..., Awaitable[T]], *args: Any, seed: int = 0, limit: float = 86400.0) -> T:
    """Run the coroutine function `main` with `args` on the virtual clock. Returns its result.

    `seed` is that of `random` and `uuid` during the run. The order of sets of strings depends on
    hashes: for equal runs, start both processes with the same ``PYTHONHASHSEED``, or use `pool`.
    Raises TimeoutError after `limit` virtual seconds, `Stuck` if no callback is ready and no timer
    is set, and RuntimeError if another virtual run or event loop is active in this thread.
    """
    if _Clock.now is not None:
        raise RuntimeError("a virtual run is active already: one at a time in a process")
    import distributed  # noqa: F401  (`install` rebinds only modules that are loaded)

    install()
    with (
        _virtual_time(),
        reproducible(seed),
        synchronous_calls(),
        messages_take(),
        contextlib.closing(_VirtualLoop()) as loop,
    ):
        asyncio.set_event_loop(loop)
        try:
            return loop.run_until_complete(asyncio.wait_for(_awaited(main, args), limit))
        finally:
            _cancel_all(loop)
            asyncio.set_event_loop(None)


async def _awaited(main: Callable[..., Awaitable[T]], args: tuple[Any, ...]) -> T:
    return await main(*args)


def _cancel_all(loop: asyncio.AbstractEventLoop) -> None:
    tasks = asyncio.all_tasks(loop)
    for task in tasks:
        task.cancel()
    if tasks:
        # A task may wait forever for something that is gone, as a client for its cluster.
        loop.run_until_complete(asyncio.wait(tasks, timeout=LEAVE))
    loop.run_until_complete(loop.shutdown_asyncgens())


@contextlib.contextmanager
def _virtual_time() -> Iterator[None]:
    """Turn on virtual time, and turn off the cyclic garbage collector.

    The collector would release futures at times that depend on what the process did before. What
    an earlier run left is young, since nothing was collected during it; to look at all that the
    process holds would take longer than many a run.
    """
    collecting = gc.isenabled()
    gc.collect(1)
    gc.disable()
    _Clock.now, _Clock.since, _Clock.charged = BEGINNING, None, 0.0
    try:
        yield
    finally:
        _Clock.now = None
        if collecting:
            gc.enable()
