"""Progress bars of long commands, on standard error if it is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from time import monotonic
from typing import Any

import click

__all__ = ["Progress", "bars", "spinner"]

#: Called with what is done now, how much of it was done since the last call, and how much there is,
#: 0 if nobody knows.
Progress = Callable[[str, int, int], object]
#: Seconds after which a bar appears.
PATIENCE = 1.0


@contextmanager
def bars() -> Iterator[Progress | None]:
    """Show a bar for each thing that is done, one after another; None without a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    shown = _Bars()
    try:
        yield shown
    finally:
        shown.close()


@contextmanager
def spinner(what: str) -> Iterator[Callable[[], None] | None]:
    """Show that something is done, for how long nobody knows; None without a terminal."""
    with bars() as progress:
        yield None if progress is None else partial(progress, what, 1, 0)


class _Bars:
    def __init__(self) -> None:
        self._begun, self._what, self._done = monotonic(), "", 0
        self._bar: Any = None

    def __call__(self, what: str, done: int, of: int) -> None:
        if what != self._what:
            self.close()
            self._what, self._done = what, 0
        self._done += done
        if self._bar is not None:
            self._bar.update(done)
        elif monotonic() - self._begun >= PATIENCE:
            about = {"length": of} if of else {"iterable": (_ for _ in ())}
            self._bar = click.progressbar(label=f"{what:10}", file=sys.stderr, **about)
            self._bar.__enter__()
            self._bar.update(self._done)

    def close(self) -> None:
        if self._bar is not None:
            self._bar.__exit__(None, None, None)
            self._bar = None
