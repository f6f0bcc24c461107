"""Names of a package that are loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy(
    package: str, modules: Mapping[str, Collection[str]], whole: Collection[str] = ()
) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: names by the module in it that defines them.

    Modules that are names themselves are `whole`.
    """
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name in whole:
            return import_module(f"{package}.{name}")
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return find
