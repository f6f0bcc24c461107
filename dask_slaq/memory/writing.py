"""Statements that change the file of a store, within the transaction of their caller."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dask_slaq.memory.run_rows import COLUMNS, row_of, runs_of

__all__ = ["insert", "is_sound", "let_lapse", "prune_to", "shrink"]

#: Fraction of the maximum that is left after the oldest runs were deleted.
LEFT = 0.95


def insert(connection: sqlite3.Connection, row: Sequence[Any], *owner: str) -> None:
    """Insert a run, in place of one of its key.

    Parameters
    ----------
    connection : sqlite3.Connection
    row : sequence
        Values of `COLUMNS`.
    owner : str, optional
        Makes it an unfinished run.
    """
    names = [*COLUMNS, *(["owner"] if owner else [])]
    table, places = "unfinished" if owner else "runs", ", ".join("?" * len(names))
    connection.execute(
        f"INSERT OR REPLACE INTO {table} ({', '.join(names)}) VALUES ({places})", (*row, *owner)
    )


def let_lapse(connection: sqlite3.Connection, before: float) -> None:
    """Mark runs on `connection` that are unfinished since `before` (Unix seconds) as failed."""
    rows = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM unfinished WHERE ended < ?", (before,)
    ).fetchall()
    for key, run in runs_of(rows):
        insert(connection, row_of(key, replace(run, outcome="failed")))
    connection.execute("DELETE FROM unfinished WHERE ended < ?", (before,))


def prune_to(connection: sqlite3.Connection, most_runs: int, most_bytes: int) -> None:
    """Delete the oldest runs if there are too many, or the file is too large.

    Parameters
    ----------
    connection : sqlite3.Connection
    most_runs, most_bytes : int
    """
    (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    size = page * (pages - free)
    if count <= most_runs and size <= most_bytes:
        return
    left = min(count, most_runs, count * most_bytes / size)
    surplus = count - math.floor(LEFT * left)
    connection.execute(
        "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY ended LIMIT ?)", (surplus,)
    )
    shrink(connection)


def shrink(connection: sqlite3.Connection) -> None:
    """Give the space of deleted rows back to the file system."""
    # A script, as `execute` would free a single page.
    connection.executescript("PRAGMA incremental_vacuum")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def is_sound(connection: sqlite3.Connection) -> bool:
    """Return whether a file is sound after all: it may have been replaced since a complaint."""
    return bool(connection.execute("PRAGMA quick_check(1)").fetchone() == ("ok",))
