"""Usage as people ask for it: sums by owner, kind, job or day."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import localtime, strftime, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.usage import DAY, EARLIER, Usage
from dask_slaq.core.usage_sums import sum_by

if TYPE_CHECKING:
    from dask_slaq.scheduler.accounts import Accounts

#: Days whose usage the board shows.
RECENT = 14


async def usage_of(accounts: Accounts, by: Sequence[str], seconds: float | None) -> dict[str, Any]:
    """Return usage by fields of `UsageKey`, of the last `seconds` in whole days, or all.

    It has ``rows`` (see `usage_as_dicts`), ``file``, ``since`` (Unix seconds from which usage
    was counted, None if from the file's beginning) and ``note`` (what is missing, or None).
    """
    from dask_slaq.memory import usage_as_dicts  # and SQLite

    since = EARLIER if seconds is None else int((time() - seconds) // DAY)
    accounts.tick()
    left = [(key, usage) for key, usage in accounts.ledger.rows.items() if key.day >= since]
    found, store, note = sum_by(left, by), accounts.store, accounts.broken
    kept = None
    if store is not None:
        kept = await asyncio.get_running_loop().run_in_executor(None, store.usage, by, since)
        for key, usage in (kept or {}).items():
            found.setdefault(key, Usage()).add(usage)
    begin = strftime("%Y-%m-%d %H:%M:%S", localtime(accounts.begin))
    if note is not None:
        note = f"usage is no longer counted: {note}"
    elif store is None:
        note = f"since the scheduler's start at {begin}: slaq.memory names no file to keep it"
    elif store.failed is not None or kept is None:
        note = f"{store.path} cannot be used, and usage is kept until the scheduler ends"
    return {
        "rows": usage_as_dicts(found, by),
        "file": None if store is None else str(store.path),
        "since": accounts.begin if kept is None else None,
        "note": note,
    }


def core_seconds_by_day(accounts: Accounts) -> dict[tuple[int, str], float]:
    """Return the core-seconds of the last days by day and owner."""
    accounts.settle()
    return {
        (day, owner): seconds
        for day, of_day in accounts.spent.days.items()
        for owner, seconds in of_day.items()
        if day > time() // DAY - RECENT
    }
