"""What the web server shows is made once per decision, however often somebody looks."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any


class Shown:
    """Pages that are kept for `seconds` at most, or until a decision or event drops them.

    They take a walk over all unfinished tasks, and whoever reaches the port may ask for them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._pages: dict[str, tuple[float, Any]] = {}

    def get(self, name: str, make: Callable[[], Any]) -> Any:
        """Return a page, which `make` makes unless there is one."""
        since, page = self._pages.get(name, (-self._seconds, None))
        if monotonic() - since >= self._seconds:
            page = make()
            self._pages[name] = monotonic(), page
        return page

    def drop(self) -> None:
        """Make all pages anew when somebody looks next."""
        self._pages.clear()
