"""What a file of past runs holds, for people and for other programs; and its pruning."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.memory import PastRun
from dask_slaq.core.usage import Usage
from dask_slaq.memory.file import NotOurs, is_damage, open_to_read, open_to_write
from dask_slaq.memory.rows import select_events, select_runs, select_usage, shrink


class StoreError(SlaqError):
    """A file cannot be read as a store of runs. The text names the file and says why."""


@dataclass(frozen=True)
class KindSummary:
    """Runs of one kind in a store: their number, iterations, and the end of the last one."""

    kind: str
    runs: int
    done: int  # runs that ended by themselves
    least: int  # iterations
    mean: float
    most: int
    last: float  # seconds since 1970


@contextmanager
def _opened(
    path: str | Path,
    open_file: Callable[[Path], sqlite3.Connection] = open_to_read,
) -> Iterator[sqlite3.Connection]:
    """Open a store. What SQLite raises becomes a `StoreError`."""
    path = Path(path)
    try:
        with closing(open_file(path)) as connection:
            yield connection
    except (NotOurs, sqlite3.Error) as error:
        if not path.exists():
            why = "there is no such file"
        elif path.is_dir():
            why = "it is a directory"
        elif is_damage(error) and not isinstance(error, NotOurs):
            why = f"it is damaged, or not a store of runs ({error})"
        else:
            why = str(error)
        raise StoreError(f"cannot use {str(path)!r} as a store of runs: {why}") from None


def read_kinds(path: str | Path) -> list[KindSummary]:
    """Return a summary of each kind in a store, the last used first. Raises `StoreError`."""
    with _opened(path) as connection:
        found = connection.execute(
            "SELECT kind, count(*), sum(outcome = 'done'), min(iterations), avg(iterations),"
            " max(iterations), max(ended) FROM runs GROUP BY kind ORDER BY max(ended) DESC, kind"
        )
        return [KindSummary(*row) for row in found]


def read_runs(path: str | Path) -> list[PastRun]:
    """Return the runs of a store, newest first. Raises `StoreError`."""
    with _opened(path) as connection:
        return select_runs(connection, None, None)


def read_usage(
    path: str | Path, by: Sequence[str] = ("owner",), since: int | None = None
) -> dict[tuple[str | int, ...], Usage]:
    """Return usage in a store from a day on, see `sum_by`. Raises `StoreError`."""
    with _opened(path) as connection:
        return select_usage(connection, by, since)


def read_audit(path: str | Path) -> list[dict[str, Any]]:
    """Return the events of the audit in a store, oldest first. Raises `StoreError`."""
    with _opened(path) as connection:
        return select_events(connection, "audit")


def prune(path: str | Path, *, before: float | None = None, kind: str | None = None) -> int:
    """Delete runs, their stages and searches that ended `before` a Unix time, of a `kind`.

    Returns the number of runs. Raises `StoreError`.
    """
    with _opened(path):
        pass  # rather than create a file or set one aside
    with _opened(path, open_to_write) as connection:
        tests = {"ended < ?": before, "kind = ?": kind}
        chosen = {test: value for test, value in tests.items() if value is not None}
        where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
        deleted = connection.execute(f"DELETE FROM runs {where}", [*chosen.values()]).rowcount
        connection.execute(f"DELETE FROM stages {where}", [*chosen.values()])
        for number, text in connection.execute("SELECT number, event FROM searches").fetchall():
            search = json.loads(text)  # not by SQLite, which knows no nan
            if kind in (None, search["kind"]) and (before is None or search["ended"] < before):
                connection.execute("DELETE FROM searches WHERE number = ?", (number,))
        shrink(connection)
        return deleted
