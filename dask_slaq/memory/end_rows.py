"""Ends that were in their band or not, as rows of the file, and back."""

from __future__ import annotations

import sqlite3

from dask_slaq.core.ends import HITS

__all__ = ["insert_end", "select_ends"]


def insert_end(connection: sqlite3.Connection, held: bool) -> None:
    """Insert whether a job ended in its band, and delete all but the newest rows."""
    connection.execute("INSERT INTO ends (held) VALUES (?)", (int(held),))
    connection.execute(
        "DELETE FROM ends WHERE number <= (SELECT max(number) FROM ends) - ?", (HITS,)
    )


def select_ends(connection: sqlite3.Connection) -> list[bool]:
    """Return which of the last jobs ended in their band, oldest first, without damaged rows."""
    rows = connection.execute("SELECT held FROM ends ORDER BY number").fetchall()
    return [bool(held) for (held,) in rows if held in (0, 1)][-HITS:]
