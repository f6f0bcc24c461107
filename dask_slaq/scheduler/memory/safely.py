"""Methods that never raise: without memory, jobs are scheduled as well as without past runs."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Protocol


class Fallible(Protocol):
    """What can be broken."""

    broken: str | None

    def fail(self, error: Exception) -> None:
        """Become broken, and log the error once."""


def safely(method: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method so that it never raises: its object fails, and does nothing from then on."""

    @functools.wraps(method)
    def call(self: Fallible, *args: Any, **kwargs: Any) -> Any:
        if self.broken is None:
            try:
                return method(self, *args, **kwargs)
            except Exception as error:
                self.fail(error)
        return None

    return call
