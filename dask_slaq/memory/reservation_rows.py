"""Reservations as rows of the file, and back."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Iterable

from dask_slaq.core.reservations import Reservation
from dask_slaq.memory.rows import storable


def replace_reservations(connection: sqlite3.Connection, all_: Iterable[Reservation]) -> None:
    """Put reservations in place of those of an open store."""
    connection.execute("DELETE FROM reservations")
    connection.executemany(
        "INSERT INTO reservations (number, owner, threads, begin, ends) VALUES (?, ?, ?, ?, ?)",
        [(each.number, storable(each.owner), *map(float, each[2:])) for each in all_],
    )


def select_reservations(connection: sqlite3.Connection) -> list[Reservation]:
    """Return the reservations of an open store, without damaged rows."""
    found = []
    rows = connection.execute("SELECT number, owner, threads, begin, ends FROM reservations")
    for number, owner, *numbers in rows:
        try:
            each = Reservation(int(number), str(owner), *map(float, numbers))
        except (ValueError, TypeError):
            continue
        if 0 < each.threads < math.inf and each.begin < each.end < math.inf:
            found.append(each)
    return found
