"""Audit in the store: who changed what on its schedulers. The oldest lines are deleted first."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from typing import Any

from dask_slaq.memory.run_rows import storable

__all__ = ["add_audit", "select_audit"]

#: Maximum number of lines in the store.
MOST_LINES = 10_000


def add_audit(connection: sqlite3.Connection, event: Mapping[str, Any]) -> None:
    """Add an `event`, a mapping of plain values, to the store on `connection`."""
    text = storable(json.dumps(event, default=str))
    connection.execute("INSERT INTO audit (event) VALUES (?)", (text,))
    connection.execute(
        "DELETE FROM audit WHERE number <= (SELECT max(number) FROM audit) - ?", (MOST_LINES,)
    )


def select_audit(connection: sqlite3.Connection) -> list[dict[str, Any]]:
    """Return the events in an open store, oldest first; none if an earlier release wrote it."""
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'audit'").fetchone():
        return []
    found = []
    for (text,) in connection.execute("SELECT event FROM audit ORDER BY number"):
        try:
            found.append(dict(json.loads(text)))
        except (ValueError, TypeError):
            continue  # it is damaged
    return found
