"""Ends that were in their band or not, as rows of the file, and back."""

from __future__ import annotations

import sqlite3
from math import isfinite

from dask_slaq.core.ends import HITS


def insert_end(connection: sqlite3.Connection, held: bool, score: float) -> None:
    """Insert whether a job ended in its band, and its score; delete all but the newest rows."""
    connection.execute("INSERT INTO foretold (held, score) VALUES (?, ?)", (int(held), score))
    connection.execute(
        "DELETE FROM foretold WHERE number <= (SELECT max(number) FROM foretold) - ?", (HITS,)
    )


def select_ends(connection: sqlite3.Connection) -> list[tuple[bool, float]]:
    """Return which of the last jobs ended in their band, and their scores, oldest first.

    Damaged rows are left out.
    """
    rows = connection.execute("SELECT held, score FROM foretold ORDER BY number").fetchall()
    return [
        (bool(held), score)
        for held, score in rows
        if held in (0, 1) and isinstance(score, float) and isfinite(score)
    ][-HITS:]
