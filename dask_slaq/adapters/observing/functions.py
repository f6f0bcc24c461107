"""Functions of libraries: which names they use, and copies that see other values for some."""

from __future__ import annotations

from collections.abc import Mapping
from types import CodeType, FunctionType
from typing import Any

__all__ = ["names_used", "with_globals"]


def names_used(code: CodeType) -> set[str]:
    """Return the global and attribute names that a code object and its nested functions use."""
    inner = [names_used(const) for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*inner)


def with_globals(function: FunctionType, names: Mapping[str, Any]) -> FunctionType:
    """Return a copy of `function` that sees other values for some of its globals.

    Parameters
    ----------
    function : function
        Function to copy; it stays unchanged.
    names : Mapping of str to object
        Globals that differ in the copy.

    Returns
    -------
    function

    Examples
    --------
    >>> def area(r):
    ...     return round(3.14159 * r * r)
    >>> with_globals(area, {"round": lambda x: f"about {x:.1f}"})(2), area(2)
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
