"""Training loops of libraries, and observers of their runs.

A loop is never edited: while a block is open, some names in its module are a `StandIn`. Where an
observed loop runs, this is what its `LoopObserver` has of that name, and elsewhere the original.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections import ChainMap
from collections.abc import Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any, ClassVar

from dask_slaq.adapters.observing.session import (
    ReportSession,
    current,
    describe,
    expect,
    kind_of,
    log_stop,
    sizes_of,
    warn_of,
    warn_once,
)
from dask_slaq.core.errors import StopTraining

#: Parameters of loops that limit the number of iterations.
LIMITS = ("max_iter", "num_boost_round")


class LoopObserver:
    """Observer of one run of a training loop. See docs/report-from-your-library.md for an example.

    A subclass defines an attribute for each global of the loop in `stands_in`. It calls the
    original, ``self.library[name]``, with the same arguments and returns what the loop expects.
    Everything else that it does goes through `safely`. In its ``__init__`` it may replace values
    in `arguments`, which are those of this run by name, including defaults.
    """

    #: Globals of the loop to replace.
    stands_in: tuple[str, ...] = ()
    #: Functions of the library that go to its tasks, and what makes others of them, for all fits.
    replaces: ClassVar[Mapping[str, Callable[[Any], Any]]] = {}
    #: Parameters of the loop that the observer reads.
    needs: tuple[str, ...] = ()
    #: Parameters that tell the kind of a fit: its data, choices among ways to fit, and numbers.
    data: str = "X"
    choices: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()

    def __init__(
        self, library: Mapping[str, Any], arguments: dict[str, Any], block: ReportSession
    ) -> None:
        self.library = library
        self.arguments = arguments
        self.given = dict(arguments)  # as the caller gave them
        self._block = block
        self._blind = False
        self._stop: StopTraining | None = None

    def finish(self) -> None:
        """Report losses that are still outstanding. Called after the loop has returned."""

    def kind(self, fit: str) -> Mapping[str, Any]:
        """Return the kind of this fit, what shapes its loss curve; `fit` begins its name."""
        given = self.given
        numbers = {name: given.get(name) for name in self.numbers}
        choices = [given.get(name) for name in self.choices]
        return kind_of(fit, choices, {**sizes_of(given.get(self.data)), **numbers})

    def so_far(self) -> Any:
        """Return what the loop would have returned, if it had ended at its latest report.

        Called when that report raised `StopTraining`. By default, the fit raises it too.
        """
        raise NotImplementedError

    def around(self, run: Callable[[], Any]) -> Any:
        """Return the result of ``run()``, which runs the loop, after calling `finish`.

        If a report of this loop raises `StopTraining`, the result is that of `so_far`.
        """
        try:
            result = run()
        except StopTraining as stop:
            if stop is not self._stop:  # raised by the user's own code
                raise
            try:
                result = self.so_far()
            except Exception:
                raise stop from None
            log_stop(self._block, self.library["__name__"])
            return result
        with suppress(StopTraining):  # the loop has ended anyway
            self.safely(self.finish)
        return result

    def report(self, loss: Any) -> None:
        """Pass a loss to the block."""
        try:
            self._block.report(float(loss.item() if hasattr(loss, "item") else loss))
        except StopTraining as stop:
            self._block.stop(str(stop))
            raise

    def wanted(self) -> tuple[Any, ...]:
        """Return what `compute` computes in addition; by default nothing."""
        return ()

    def computed(self, out: tuple[Any, ...], extra: tuple[Any, ...]) -> None:
        """Receive the results that the loop asked for, and those of what was `wanted`."""

    def compute(self, *args: Any, **kwargs: Any) -> Any:
        """Stand in for Dask's function of this name; the same computation serves the observer."""
        extra = self.safely(self.wanted, default=())
        out = self.library["compute"](*args, *extra, **kwargs)
        self.safely(self.computed, out[: len(args)], out[len(args) :])
        return out[: len(args)]

    def safely(self, step: Callable[..., Any], *args: Any, default: Any = None) -> Any:
        """Return ``step(*args)``, without ever failing the fit except by `StopTraining`.

        If `step` raises, issue one warning, and return `default` here and in every later call of
        this run.
        """
        if self._blind:
            return default
        try:
            return step(*args)
        except StopTraining as stop:
            self._stop = stop
            raise
        except Exception as error:
            self._blind = True
            warn_of(error, "losses are no longer reported in this fit", self._block.warned)
            return default


@dataclass(frozen=True)
class Loop:
    """Function of a library that contains a training loop."""

    #: Full name of the module.
    module: str
    #: Name of the function in the module, or of a method with its class.
    name: str
    #: Class of its observers; one is created per run.
    watch: type[LoopObserver] = LoopObserver
    #: If the module's function is a decorator's wrapper, the name under which the wrapper's closure
    #: keeps the loop. Replacing it there also reaches callers that imported the wrapper earlier.
    cell: str | None = None
    #: Library and estimator, as people know them; the loop's full name by default.
    fit: str | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def mismatch(self, function: Any) -> str | None:
        """Return how `function` differs from the loop that the observer was written for, or None.

        The text is the predicate of a sentence that begins with the loop.
        """
        if not isinstance(function, FunctionType):
            return "is no plain function"
        lost = [p for p in self.watch.needs if p not in inspect.signature(function).parameters]
        if lost:
            return f"has no parameter {', '.join(lost)}"
        used = names_used(function.__code__)
        names = *self.watch.stands_in, *self.watch.replaces
        lost = [n for n in names if n not in used or n not in function.__globals__]
        return f"does not use {', '.join(lost)}" if lost else None

    def observed(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement of `function`, with its name and this loop as an attribute."""
        replacement = functools.wraps(function)(self.replacement(function))
        replacement.observed = self  # type: ignore[attr-defined]
        return replacement

    def replacement(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement of `function` that is observed inside a block."""

        def dispatch(*args: Any, **kwargs: Any) -> Any:
            block = current()
            if block is None:
                return function(*args, **kwargs)
            return self._run(function, block, args, kwargs)

        return dispatch

    def _run(
        self,
        function: FunctionType,
        block: ReportSession,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        try:
            bound = inspect.signature(function).bind(*args, **kwargs)
            bound.apply_defaults()
            names = function.__globals__
            ours = {n: names[n].original for n in names if type(names[n]) is StandIn}
            watch = self.watch(ChainMap(ours, names), bound.arguments, block)
            stands_in = {name: getattr(watch, name) for name in watch.stands_in}
        except Exception as error:  # a call with wrong arguments raises again below
            warn_once(str(self), f"{self} is not observed: {error!r}", block.warned)
            return function(*args, **kwargs)
        expect(next((bound.arguments[name] for name in LIMITS if name in bound.arguments), None))
        with suppress(Exception):  # a model or data of a kind that the observer does not know
            describe(watch.kind(self.fit or str(self)))

        def run() -> Any:
            token = _running.set((codes_of(function.__code__), stands_in))
            try:
                return function(*bound.args, **bound.kwargs)
            finally:
                _running.reset(token)

        return watch.around(run)


def names_used(code: CodeType) -> set[str]:
    """Return the global and attribute names that a code object and its nested functions use."""
    return {name for each in codes_of(code) for name in each.co_names}


def codes_of(code: CodeType) -> set[CodeType]:
    """Return a code object and those of its nested functions."""
    inner = (codes_of(const) for const in code.co_consts if isinstance(const, CodeType))
    return {code}.union(*inner)


#: Code of the observed loop that runs in this context, and what it gets by the names of globals.
_running: ContextVar[tuple[set[CodeType], Mapping[str, Any]] | None] = ContextVar(
    "slaq_loop", default=None
)


class StandIn:
    """Global of a library's module while a block is open; `original` except in observed loops.

    What a loop calls in the same module, such as its line search, gets the original as well.
    """

    def __init__(self, original: Any, name: str) -> None:
        self.original, self._name = original, name

    def _used_in(self, code: CodeType) -> Any:
        loop, found = _running.get() or ((), {})
        return found.get(self._name, self.original) if code in loop else self.original

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._used_in(sys._getframe(1).f_code)(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._used_in(sys._getframe(1).f_code), name)


class Proxy:
    """Stand-in for a module or object in which some functions are replaced, by name."""

    def __init__(self, original: Any, **functions: Any) -> None:
        self._original = original
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
