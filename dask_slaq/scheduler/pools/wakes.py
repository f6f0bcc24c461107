"""Wakes of the dispatcher: soon after what frees a slot or makes a task ready."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from dask_slaq.core.dispatch import JobQueue, Waiting


class Wakes:
    """The next round of dispatch, and the workers that it looks at: where something has changed.

    One round serves all events of a turn of the event loop. `enter` calls it; see
    `SlaqPlugin.enter`.
    """

    def __init__(
        self,
        waiting: Waiting[JobQueue],
        dispatch: Callable[[], object],
        enter: Callable[..., Any],
    ) -> None:
        self._waiting, self._dispatch, self._enter = waiting, dispatch, enter
        self.look_at: set[str] = set()
        self._next: asyncio.Handle | None = None

    @property
    def due(self) -> bool:
        """Whether a round is scheduled."""
        return self._next is not None

    def soon(self) -> None:
        """Schedule a round after the pending events, if any task waits for a slot."""
        if self._next is None and self._waiting.pools:
            self._next = asyncio.get_running_loop().call_soon(self._enter, self._now)

    def now(self) -> None:
        """Do a round, unless one is scheduled, if any task waits for a slot."""
        if self._next is None and self._waiting.pools:
            self._dispatch()

    def _now(self) -> None:
        self._next = None
        self._dispatch()
