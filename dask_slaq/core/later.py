"""What is loaded when it is first needed: names of a package, and parts that most never use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from copy import copy
from functools import partial
from importlib import import_module
from typing import Any

__all__ = ["Absent", "later"]


def later(package: str, modules: Mapping[str, Collection[str]]) -> Callable[[str], Any]:
    """Return the ``__getattr__`` of a package: names by the module in it that defines them."""
    module_of = {name: module for module, names in modules.items() for name in names}

    def find(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(import_module(f"{package}.{module_of[name]}"), name)

    return find


class Absent:
    """Stand-in for a part until it is needed. It is false, and knows what there is to say.

    `methods` are their answers by name, whatever the arguments: a new list or dict at each call.
    `values` are its attributes.

    >>> nobody = Absent({"count": 0}, names=())
    >>> bool(nobody), nobody.count, nobody.names("ann")
    (False, 0, ())
    """

    def __init__(self, values: Mapping[str, Any] | None = None, **methods: Any) -> None:
        vars(self).update(values or {})
        for name, answer in methods.items():
            give = _copied if isinstance(answer, list | dict) else _answer
            setattr(self, name, partial(give, answer))

    def __bool__(self) -> bool:
        return False


def _answer(answer: Any, *args: Any, **kwargs: Any) -> Any:
    return answer


def _copied(answer: Any, *args: Any, **kwargs: Any) -> Any:
    return copy(answer)
