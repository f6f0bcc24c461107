"""A library's training loop, and how one run of it is watched.

A loop is never edited. Inside an open block a copy of its function runs: the same code object over
a private copy of its module's globals, in which a few names (``compute``, ...) are replaced by a
`LoopObserver` that sees what the loop computes anyway. The module itself stays as it is, so other
threads cannot notice.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, FunctionType
from typing import Any

from dask_slaq.adapters.observing.session import ReportSession, current, expect, warn_once

#: Parameters of loops that limit their iterations.
LIMITS = ("max_iter", "num_boost_round")


class LoopObserver:
    """One run of a training loop under watch.

    Subclasses define an attribute for each name in `stands_in`; the loop finds it in place of the
    global of that name. They call the true one, ``self.library[name]``, with the same arguments,
    return what the loop expects, and do everything of their own through `safely`.

    Parameters
    ----------
    library : Mapping of str to object
        The globals of the loop's module.
    arguments : dict of str to object
        The arguments of this run, by name, defaults included. What a subclass puts there when it
        is made, the loop gets instead.
    block : Block
        Where losses go.

    Attributes
    ----------
    stands_in : tuple of str
        Globals of the loop that are replaced.
    needs : tuple of str
        Parameters of the loop that the watch reads.
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

    def finish(self) -> None:
        """Report what is left; called when the loop has returned."""

    def around(self, run: Callable[[], Any]) -> Any:
        """Run the loop."""
        result = run()
        self.safely(self.finish)
        return result

    def report(self, loss: Any) -> None:
        """Pass on a loss, a Python, NumPy or CuPy scalar."""
        value = float(loss.item() if hasattr(loss, "item") else loss)
        if math.isfinite(value):
            self._block.report(value)
        else:
            warn_once("not finite", f"a loss of {value} was not reported", self._block.said)

    def safely(self, step: Callable[..., Any], *args: Any, default: Any = None) -> Any:
        """Return ``step(*args)``; if it raises, `default` from then on, after one warning."""
        if self._blind:
            return default
        try:
            return step(*args)
        except Exception as error:
            self._blind = True
            name = type(error).__name__
            message = f"losses are no longer reported in this fit: {name}: {error}"
            warn_once(name, message, self._block.said)
            return default


@dataclass(frozen=True)
class Loop:
    """A function of a library that holds a training loop.

    Attributes
    ----------
    module : str
        Full name of the module.
    name : str
        Name of the function there.
    watch : type of Watch
        What observes it.
    cell : str or None
        Where the module's function is a decorator's wrapper: the name under which the wrapper's
        closure keeps the loop. Replacing it there reaches names that were imported before.
    """

    module: str
    name: str
    watch: type[LoopObserver]
    cell: str | None = None

    def __str__(self) -> str:
        return f"{self.module}.{self.name}"

    def mismatch(self, function: Any) -> str | None:
        """Say in which way `function` is not the loop that the watch was written for."""
        if not isinstance(function, FunctionType):
            return "is no plain function"
        lost = [p for p in self.watch.needs if p not in inspect.signature(function).parameters]
        if lost:
            return f"has no parameter {', '.join(lost)}"
        used = names_used(function.__code__)
        lost = [n for n in self.watch.stands_in if n not in used or n not in function.__globals__]
        return f"does not use {', '.join(lost)}" if lost else None

    def observed(self, function: FunctionType) -> Callable[..., Any]:
        """Return what replaces `function`: itself, but watched inside a block."""

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
        except Exception as error:  # a wrong call complains by itself when it is really made
            warn_once(str(self), f"{self} is not observed: {error!r}", block.said)
            return function(*args, **kwargs)
        expect(next((bound.arguments[name] for name in LIMITS if name in bound.arguments), None))
        return watch.around(lambda: run(*bound.args, **bound.kwargs))


class Proxy:
    """A module or class with some of its functions replaced, for whoever is handed it."""

    def __init__(self, original: Any, **functions: Any) -> None:
        self._original = original
        self.__dict__.update(functions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._original, name)


def names_used(code: CodeType) -> set[str]:
    """Names of globals and attributes in a function's code, and in the functions inside it."""
    inner = [names_used(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*inner)


def with_globals(function: FunctionType, names: Mapping[str, Any]) -> FunctionType:
    """Return `function` with other values for some of its globals, and for it alone.

    Examples
    --------
    >>> def area(r):
    ...     return round(3.14159 * r * r)
    >>> twin(area, {"round": lambda x: f"about {x:.1f}"})(2), area(2)
    ('about 12.6', 13)
    """
    copy = FunctionType(
        function.__code__,
        {**function.__globals__, **names},
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy
