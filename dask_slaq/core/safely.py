"""Guard of what is only remembered or counted: it fails by itself, and nothing else does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it never raises: its object fails, and does nothing from then on.

    Without memory, jobs are scheduled as well as without past runs. The object has an attribute
    ``broken``, None or the error that ended it, and a method ``fail``, which sets it. What may fail
    is the attribute ``body``.
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
