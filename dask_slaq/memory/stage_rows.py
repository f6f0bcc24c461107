"""Stages of past runs as rows of the file, and back."""

from __future__ import annotations

import json
import sqlite3

from dask_slaq.core.memory import MOST_STAGED, Kind, StagedRun, check_times
from dask_slaq.memory.rows import storable

#: Maximum number of rows: the oldest are deleted.
MOST_ROWS = 20_000


def insert_stages(connection: sqlite3.Connection, run: StagedRun) -> None:
    """Insert the stages of a run, and delete the oldest rows of its kind, and of all."""
    kind = storable(run.kind.name)
    times = {storable(name): time for name, time in run.times.items()}
    connection.execute(
        "INSERT INTO stages (kind, features, times, ended) VALUES (?, ?, ?, ?)",
        (kind, json.dumps(dict(run.kind.features)), json.dumps(times), float(run.ended)),
    )
    connection.execute(
        "DELETE FROM stages WHERE kind = ? AND number NOT IN"
        " (SELECT number FROM stages WHERE kind = ? ORDER BY number DESC LIMIT ?)",
        (kind, kind, MOST_STAGED),
    )
    connection.execute(
        "DELETE FROM stages WHERE number <= (SELECT max(number) FROM stages) - ?", (MOST_ROWS,)
    )


def select_stages(connection: sqlite3.Connection, kind: str) -> list[StagedRun]:
    """Return the stages of runs of the kind of a name, oldest first, without damaged rows."""
    found = []
    for features, times, ended in connection.execute(
        "SELECT features, times, ended FROM stages WHERE kind = ? ORDER BY number", (kind,)
    ):
        try:
            numbers = tuple(sorted((str(k), float(v)) for k, v in json.loads(features).items()))
            run = StagedRun(Kind(kind, numbers), check_times(json.loads(times)), float(ended))
        except (ValueError, TypeError, AttributeError):
            continue
        found.append(run)
    return found
