"""Names of a package that are loaded when they are first needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from typing import Any


def lazy(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: names by the module that defines or is them."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = import_module(f"{package}.{module_of[name]}")
        return module if name == module_of[name] else getattr(module, name)

    return find
