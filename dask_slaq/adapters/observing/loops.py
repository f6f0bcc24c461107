"""Training loops of libraries, and observers of their runs.

A loop is never edited. Inside an open block a copy of its function runs: the same code object over
a private copy of its module's globals, in which a few names (``compute``, ...) are replaced by
attributes of a `LoopObserver`, which sees what the loop computes anyway. The module's own globals
stay unchanged, so other threads are not affected.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import FunctionType
from typing import Any

from dask_slaq.adapters.observing.functions import names_used, with_globals
from dask_slaq.adapters.observing.kinds import describe, kind_of, sizes_of
from dask_slaq.adapters.observing.session import (
    ReportSession,
    current,
    expect,
    log_stop,
    warn_once,
)
from dask_slaq.core.errors import StopTraining

#: Parameters of loops that limit the number of iterations.
LIMITS = ("max_iter", "num_boost_round")


class LoopObserver:
    """Observer of one run of a training loop.

    A subclass defines an attribute for each name in `stands_in`; the loop uses it in place of the
    global of that name. The attribute must call the original, ``self.library[name]``, with the same
    arguments and return what the loop expects. Everything else that it does goes through `safely`.

    Parameters
    ----------
    library : Mapping of str to object
        Globals of the loop's module.
    arguments : dict of str to object
        Arguments of this run by name, including defaults. A subclass may replace values in its
        ``__init__``; the loop then receives the new values.
    block : ReportSession
        Receives the losses.

    Attributes
    ----------
    stands_in : tuple of str
        Globals of the loop to replace.
    needs : tuple of str
        Parameters of the loop that the observer reads.

    Examples
    --------
    An observer of a loop that calls ``evaluate(w)`` once per iteration::

        class Training(LoopObserver):
            stands_in = ("evaluate",)

            def evaluate(self, w):
                loss = self.library["evaluate"](w)
                self.safely(self.report, loss)
                return loss
    """

    stands_in: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()

    def __init__(
        self, library: Mapping[str, Any], arguments: dict[str, Any], block: ReportSession
    ) -> None:
        self.library = library
        self.arguments = arguments
        self._block = block
        self._blind = False
        self._stop: StopTraining | None = None

    def finish(self) -> None:
        """Report losses that are still outstanding. Called after the loop has returned."""

    def kind(self, fit: str) -> Mapping[str, Any]:
        """Return the kind of this fit: what shapes its loss curve.

        Parameters
        ----------
        fit : str
            Library and estimator, which begin its name.
        """
        return kind_of(fit, (), sizes_of(self.arguments.get("X")))

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
            return self._ended(stop)
        with suppress(StopTraining):  # the loop has ended anyway
            self.safely(self.finish)
        return result

    def _ended(self, stop: StopTraining) -> Any:
        try:
            result = self.so_far()
        except Exception:
            raise stop from None
        log_stop(self._block, self.library["__name__"])
        return result

    def report(self, loss: Any) -> None:
        """Pass a loss to the block. Losses that are not finite are dropped with one warning."""
        value = float(loss.item() if hasattr(loss, "item") else loss)
        if math.isfinite(value):
            try:
                self._block.report(value)
            except StopTraining as stop:
                self._block.stop(str(stop))
                raise
        else:
            warn_once("not finite", f"a loss of {value} was not reported", self._block.said)

    def safely(self, step: Callable[..., Any], *args: Any, default: Any = None) -> Any:
        """Call `step` without ever failing the fit, except by a stop.

        If `step` raises, issue one warning and skip every later call in this run. `StopTraining`
        passes through: `around` ends the fit.

        Parameters
        ----------
        step : callable
            Work of the observer, such as `report`.
        *args : object
            Arguments of `step`.
        default : object, optional
            Result if `step` raises or is skipped.

        Returns
        -------
        object
            ``step(*args)`` or `default`.
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
            name = type(error).__name__
            message = f"losses are no longer reported in this fit: {name}: {error}"
            warn_once(name, message, self._block.said)
            return default


@dataclass(frozen=True)
class Loop:
    """Function of a library that contains a training loop.

    Attributes
    ----------
    module : str
        Full name of the module.
    name : str
        Name of the function in the module, or of a method with its class.
    watch : type of LoopObserver
        Class of its observers; one is created per run.
    cell : str or None
        If the module's function is a decorator's wrapper, the name under which the wrapper's
        closure keeps the loop. Replacing the loop there also reaches callers that imported the
        wrapper earlier.
    fit : str or None
        Library and estimator, as people know them; the loop's full name by default.
    """

    module: str
    name: str
    watch: type[LoopObserver]
    cell: str | None = None
    fit: str | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def mismatch(self, function: Any) -> str | None:
        """Compare `function` with the loop that the observer was written for.

        Returns
        -------
        str or None
            How it differs, as the predicate of a sentence; None if the observer fits it.
        """
        if not isinstance(function, FunctionType):
            return "is no plain function"
        lost = [p for p in self.watch.needs if p not in inspect.signature(function).parameters]
        if lost:
            return f"has no parameter {', '.join(lost)}"
        used = names_used(function.__code__)
        lost = [n for n in self.watch.stands_in if n not in used or n not in function.__globals__]
        return f"does not use {', '.join(lost)}" if lost else None

    def observed(self, function: FunctionType) -> Callable[..., Any]:
        """Return a replacement of `function` that is observed inside a block."""

        @functools.wraps(function)
        def dispatch(*args: Any, **kwargs: Any) -> Any:
            block = current()
            if block is None:
                return function(*args, **kwargs)
            return self._run(function, block, args, kwargs)

        dispatch.observed = self  # type: ignore[attr-defined]
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
            watch = self.watch(function.__globals__, bound.arguments, block)
            run = with_globals(function, {name: getattr(watch, name) for name in watch.stands_in})
        except Exception as error:  # a call with wrong arguments raises again below
            warn_once(str(self), f"{self} is not observed: {error!r}", block.said)
            return function(*args, **kwargs)
        expect(next((bound.arguments[name] for name in LIMITS if name in bound.arguments), None))
        with suppress(Exception):  # a model or data of a kind that the observer does not know
            describe(watch.kind(self.fit or str(self)))
        return watch.around(lambda: run(*bound.args, **bound.kwargs))


class Proxy:
    """Stand-in for a module or object in which some functions are replaced.

    Parameters
    ----------
    original : object
        Provides all other attributes.
    **functions : object
        Replacements by name.
    """

    def __init__(self, original: Any, **functions: Any) -> None:
        self._original = original
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)
