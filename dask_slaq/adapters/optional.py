"""Classes that are made on first access, because their base class is an optional library's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any


def optional(module: str, extra: str) -> Any:
    """Import a module of a library that the extra `extra` of this package installs.

    Raises `ImportError`, which says so, if the library is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        library = module.partition(".")[0]
        message = f"{library} is not installed: pip install dask-slaq[{extra}]"
        raise ImportError(message) from error


def made_on_access(module: str, **makers: Callable[[], Any]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a module: each name is what its maker returns, made once.

    A class is named so that it can be pickled, and with it what uses it.
    """

    @functools.cache
    def make(name: str) -> Any:
        made = makers[name]()
        if isinstance(made, type):
            made.__module__, made.__qualname__ = module, name
        return made

    def get(name: str) -> Any:
        if name in makers:
            return make(name)
        raise AttributeError(f"module {module!r} has no attribute {name!r}")

    return get
