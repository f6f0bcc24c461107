"""Guard of what is only remembered or counted: it fails by itself, and nothing else does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method, the attribute ``body``, so that its object fails instead of raising.

    The object has an attribute ``broken``, None or the error, and ``fail``, which sets it.
    """

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.broken is None:
            try:
                return guard.body(self, *args, **kwargs)
            except Exception as error:
                self.fail(error)
        return None

    guard: Any = call
    guard.body = method
    return call
