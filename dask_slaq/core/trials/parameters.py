"""Parameters of a trial: the plain values with which its function was called."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any

import numpy as np

from dask_slaq.core.text import printable

#: Characters of a text that is a parameter, as the scheduler keeps it.
MOST_TEXT_CHARACTERS = 100
#: Characters of the name of a group, or of a candidate in groups.
MOST_GROUP_CHARACTERS = 5000
#: What stands for an argument that is not known.
UNKNOWN = object()


def arguments(
    function: Callable[..., Any], args: Iterable[Any], kwargs: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the arguments of a call by name; those of `functools.partial` count.

    If just one of them is a dict or a dataclass, its values take its place.

    >>> arguments(lambda params, epochs: None, [{"lr": 0.1}], {"epochs": 5})
    {'lr': 0.1, 'epochs': 5}
    """
    args, kwargs = tuple(args), dict(kwargs)
    while isinstance(function, partial):
        args, kwargs = (*function.args, *args), {**function.keywords, **kwargs}
        function = function.func
    try:
        bound = inspect.signature(function).bind_partial(*args, **kwargs)
        found = dict(bound.arguments)
        for name, parameter in bound.signature.parameters.items():
            if name in found and parameter.kind is parameter.VAR_KEYWORD:
                found.update(found.pop(name))
    except (TypeError, ValueError):
        found = {**{str(i): value for i, value in enumerate(args)}, **kwargs}
    nested = [name for name, value in found.items() if _inner(value) is not None]
    if len(nested) == 1:
        inner = _inner(found[nested[0]]) or {}
        others = {name: value for name, value in found.items() if name != nested[0]}
        found = {**{str(name): value for name, value in inner.items()}, **others}
    return found


def as_parameters(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the plain values in a mapping: numbers, texts, None, and sequences of these.

    Those of nested dicts have names such as ``model.depth``; classes and functions are their
    names. Arrays, models and other data are left out, and what is nested in more than two.
    """
    return dict(_plain_items(given, "", 3))


def bounded(given: Mapping[str, Any], most: int = 32) -> dict[str, Any]:
    """Return the first parameters, `most` at most, with what is long cut, as they are kept."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if len(found) >= most:
            break
        found[_cut(printable(name))] = _cut(value)
    return found


class _Noted(dict[str, Any]):
    """Parameters that note which of them are asked for."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        super().__init__(params)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def group_of(params: Mapping[str, Any], by: str | Callable[[Any], Any]) -> tuple[str, str]:
    """Return the group of a model, and its candidate: its parameters but the group's.

    The group is a parameter, or what a callable makes `by` some of them.

    >>> group_of({"lr": 0.1, "fold": 3}, "fold")
    ('3', 'lr=0.1')
    """
    noted = _Noted(params)
    group = by(noted) if callable(by) else noted[by]
    rest = sorted(params.keys() - noted.asked)
    candidate = ", ".join(f"{name}={params[name]!r}" for name in rest)
    return repr(group)[:MOST_GROUP_CHARACTERS], candidate[:MOST_GROUP_CHARACTERS]


def as_given(found: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments that are plain values or dicts, as they are."""
    return {
        name: value
        for name, value in found.items()
        if _inner(value) is not None or _plain(value) is not UNKNOWN
    }


def _inner(value: Any, most: int = 256) -> Mapping[Any, Any] | None:
    """Return the values in a dict or dataclass; None for others. A dict of more is data."""
    if isinstance(value, dict):
        return value if len(value) <= most else None
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in fields(value)}
    return None


def _plain_items(given: Mapping[Any, Any], prefix: str, depth: int) -> Iterable[tuple[str, Any]]:
    for name, value in given.items():
        inner = _inner(value)
        if inner is not None:
            if depth > 1:
                yield from _plain_items(inner, f"{prefix}{name}.", depth - 1)
            continue
        plain = _plain(value)
        if plain is not UNKNOWN:
            yield f"{prefix}{name}", plain


def _plain(value: Any, widest: int = 16) -> Any:
    """Return a value as a plain one; `UNKNOWN` if it is none, as a sequence of more values."""
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, np.generic | np.ndarray):
        return _plain(value.item()) if value.shape == () else UNKNOWN
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, type) or inspect.isroutine(value):
        return getattr(value, "__name__", UNKNOWN)
    if isinstance(value, list | tuple):
        parts = [_plain(part) for part in value[: widest + 1]]
        if len(value) > widest or any(part is UNKNOWN for part in parts):
            return UNKNOWN
        return tuple(parts)
    return UNKNOWN


def _cut(value: Any) -> Any:
    if isinstance(value, str):
        text = value.encode("utf-8", "backslashreplace").decode()  # which can be sent
        return text if len(text) <= MOST_TEXT_CHARACTERS else f"{text[: MOST_TEXT_CHARACTERS - 1]}…"
    if isinstance(value, int) and abs(value) >= 2**63:
        return float(value) if abs(value) < 10**300 else str(value)[:MOST_TEXT_CHARACTERS]
    return tuple(map(_cut, value)) if isinstance(value, tuple) else value
