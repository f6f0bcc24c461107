"""Speeds of hosts as rows of the file, and back."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Mapping

from dask_slaq.core.usage import DAY
from dask_slaq.memory.rows import storable

__all__ = ["insert_hosts", "select_hosts"]

#: Seconds after which a speed is forgotten: another machine may have the name now; and maximum
#: number of hosts.
KEPT, MOST_HOSTS = 30 * DAY, 10_000


def insert_hosts(
    connection: sqlite3.Connection, hosts: Mapping[str, tuple[float, float]], now: float
) -> None:
    """Insert factor and error of hosts, and delete those that are old or too many."""
    connection.executemany(
        "INSERT OR REPLACE INTO hosts (host, factor, error, seen) VALUES (?, ?, ?, ?)",
        [(storable(host), *map(float, known), float(now)) for host, known in hosts.items()],
    )
    connection.execute("DELETE FROM hosts WHERE seen < ?", (now - KEPT,))
    connection.execute(
        "DELETE FROM hosts WHERE host NOT IN (SELECT host FROM hosts ORDER BY seen DESC LIMIT ?)",
        (MOST_HOSTS,),
    )


def select_hosts(connection: sqlite3.Connection) -> dict[str, tuple[float, float]]:
    """Return factor and error by host, without damaged rows."""
    found = {}
    for host, *numbers in connection.execute("SELECT host, factor, error FROM hosts"):
        try:
            factor, error = map(float, numbers)
        except (ValueError, TypeError):
            continue
        if 0 < factor < math.inf and 0 <= error < math.inf:
            found[str(host)] = factor, error
    return found
