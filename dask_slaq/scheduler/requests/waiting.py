"""WaitingRequests until something holds, without looking again and again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class WaitingRequests:
    """Those who wait for conditions, which are looked at whenever something may have changed."""

    def __init__(self) -> None:
        self._waiting: dict[asyncio.Future[None], Callable[[], object]] = {}

    async def until(self, holds: Callable[[], object], seconds: float = 2.0) -> None:
        """Wait until a condition holds, or for some `seconds`."""
        if holds():
            return
        future = asyncio.get_running_loop().create_future()
        self._waiting[future] = holds
        try:
            await asyncio.wait([future], timeout=seconds)
        finally:
            del self._waiting[future]

    def look(self) -> None:
        """Let those go on whose condition holds now."""
        for future, holds in list(self._waiting.items()):
            if not future.done() and holds():
                future.set_result(None)
