"""Accounts of a scheduler in the file of its memory."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.safely import safely
from dask_slaq.core.usage import DAY, Usage
from dask_slaq.core.usage_sums import decayed
from dask_slaq.scheduler.accounts import Accounts, UsageByOwner

if TYPE_CHECKING:
    from dask_slaq.memory import RunStore

__all__ = ["FiledAccounts"]


class FiledAccounts(Accounts):
    """Accounts that are kept in a `store`. See `Accounts`."""

    store: RunStore

    def __init__(self, store: RunStore, *given: Any) -> None:
        super().__init__(*given)
        self.store, self.loaded = store, False
        self._written = UsageByOwner()
        found = self._loop.run_in_executor(None, store.usage, ("owner", "day"))
        found.add_done_callback(self._load)

    @safely
    def _load(self, found: asyncio.Future[dict[tuple[Any, ...], Usage] | None]) -> None:
        """Add what the store has."""
        for (owner, day), usage in (found.result() or {}).items():
            self._totals.of(owner).add(usage)
            self._written.of(owner).add(usage)
            self.spent.add(day, owner, usage.core_seconds)
            if self.half_life is not None:
                used = decayed(day, usage.core_seconds, self._faded, self.half_life)
                self._used_lately(owner, used)
        self.loaded = True
        self._ticked()

    def _write(self) -> None:
        """Write what is new. What falls short of what was charged ahead is kept until it does not.

        So the counters never fall.
        """
        today, rows = int(time() // DAY), []
        for key, usage in self.ledger.drain():
            if usage.core_seconds >= 0:
                rows.append((key, usage))
            elif key.day == today:
                self.ledger.rows[key] = usage
        if not rows:
            return
        if self.store.add_usage(rows, lambda: self._acknowledge(rows)):
            return
        self.ledger.rows.update(rows)

    def _acknowledge(self, rows: Sequence[Any]) -> None:
        """Count rows as written. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._wrote, rows)

    @safely
    def _wrote(self, rows: Sequence[Any]) -> None:
        for key, usage in rows:
            self._written.of(key.owner).add(usage)

    def counters(self) -> UsageByOwner | None:
        """Return totals that never fall; None until they are known. See `Accounts`."""
        return super().counters() if self.loaded or self.store.failed is not None else None

    def _counted(self) -> UsageByOwner:
        return self._written if self.store.failed is None else self.totals
