"""The file of the store: an SQLite database of runs, usage and audit.

A file that is no such database, is damaged, or was written by a later release is never changed: a
scheduler sets it aside under another name and begins a new one.
"""

from __future__ import annotations

import json
import os
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.owners.usage import Usage
from dask_slaq.core.run_history import PastRun
from dask_slaq.run_history.rows import select_events, select_runs, select_usage, shrink

#: Marks a database as ours (``PRAGMA application_id``), and the version of its tables.
APPLICATION_ID, FORMAT_VERSION = 0x736C6171, 1
#: Seconds to wait for another process that writes to the file.
PATIENCE_SECONDS = 10.0

_SCHEMA = (
    """
    CREATE TABLE runs (
        number INTEGER PRIMARY KEY,
        job TEXT NOT NULL,
        kind TEXT NOT NULL,      -- name of the kind
        features TEXT NOT NULL,  -- JSON, name to order of magnitude
        iteration BLOB NOT NULL, -- unsigned 32-bit integers, little endian
        loss BLOB NOT NULL,      -- 64-bit floats, little endian
        iterations INTEGER NOT NULL,
        outcome TEXT NOT NULL,
        work REAL,
        tasks REAL,
        law TEXT,                -- JSON, or null
        ended REAL NOT NULL      -- seconds since 1970
    )
    """,
    "CREATE INDEX runs_by_kind ON runs (kind, ended)",
    "CREATE INDEX runs_by_age ON runs (ended)",
    """
    CREATE TABLE usage (
        day INTEGER NOT NULL, -- days since 1970, UTC; -1 for all that are long past
        owner TEXT NOT NULL,
        kind TEXT NOT NULL,   -- empty for work outside of jobs
        job TEXT NOT NULL,    -- empty for work outside of jobs
        core_seconds REAL NOT NULL,
        waited REAL NOT NULL, -- seconds
        done INTEGER NOT NULL,
        stopped INTEGER NOT NULL,
        failed INTEGER NOT NULL,
        lost INTEGER NOT NULL,
        loss_reduction REAL NOT NULL,
        PRIMARY KEY (day, owner, kind, job)
    ) WITHOUT ROWID
    """,
    # Threads for an owner from one time to another, in Unix seconds.
    "CREATE TABLE reservations (number INTEGER PRIMARY KEY, owner TEXT NOT NULL,"
    " threads REAL NOT NULL, begin REAL NOT NULL, ends REAL NOT NULL)",
    "CREATE TABLE audit (number INTEGER PRIMARY KEY, event TEXT NOT NULL)",  # JSON
    # Alerts of jobs that ended, with owner, last loss, core-seconds and Unix seconds.
    "CREATE TABLE ended (number INTEGER PRIMARY KEY, event TEXT NOT NULL)",  # JSON
    # Models of searches of an owner and a kind, by parameters and place.
    "CREATE TABLE searches (number INTEGER PRIMARY KEY, event TEXT NOT NULL)",  # JSON
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {FORMAT_VERSION}",
)


class NotOurs(Exception):
    """The file is a database, but not one that this release can use. The text says why."""


def open_to_write(path: Path) -> sqlite3.Connection:
    """Open the file of a store, also a new one. Raises `NotOurs` or an error of SQLite."""
    connection = sqlite3.connect(
        path, timeout=PATIENCE_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if not _is_new(connection):
            _check(connection)
        connection.execute("PRAGMA auto_vacuum = INCREMENTAL")
        connection.execute("PRAGMA journal_mode = WAL")  # others may read meanwhile
        connection.execute("PRAGMA synchronous = FULL")  # what is acknowledged survives power cuts
        # Bytes of the write-ahead log that are kept between two checkpoints of it.
        connection.execute("PRAGMA journal_size_limit = 16000000")
        with connection:
            connection.execute("BEGIN IMMEDIATE")
            for statement in _SCHEMA if _is_new(connection) else ():  # or another was faster
                connection.execute(statement)
    except BaseException:
        connection.close()
        raise
    return connection


def open_to_read(path: Path) -> sqlite3.Connection:
    """Open the file of a store, also while it is written. Raises as `open_to_write`."""
    name = quote(os.fspath(path.absolute()))
    connection = sqlite3.connect(f"file:{name}?mode=ro", uri=True, timeout=PATIENCE_SECONDS)
    try:
        _check(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def is_damage(error: BaseException) -> bool:
    """Return whether an error says that a file is damaged or not ours; others say nothing of it."""
    return isinstance(error, NotOurs) or type(error) is sqlite3.DatabaseError


def set_aside(path: Path) -> Path:
    """Rename a file and its write-ahead log. Returns the new name."""
    new = base = Path(f"{path}.aside-{time.strftime('%Y%m%d-%H%M%S')}")
    number = 1
    while new.exists():
        number += 1
        new = Path(f"{base}-{number}")
    # The log first: beside a new database it would be taken for a part of that.
    log = Path(f"{path}-wal")
    if log.exists():
        log.rename(f"{new}-wal")
    path.rename(new)
    Path(f"{path}-shm").unlink(missing_ok=True)
    return new


def _is_new(connection: sqlite3.Connection) -> bool:
    tables, application, version = _about(connection)
    return not (tables or application or version)


def _check(connection: sqlite3.Connection) -> None:
    """Raise `NotOurs` unless a database is a store of this version."""
    tables, application, version = _about(connection)
    if application != APPLICATION_ID:
        raise NotOurs("it is not a store of runs")
    if version > FORMAT_VERSION:
        raise NotOurs(
            f"its version {version} is later than {FORMAT_VERSION}, which this release writes"
        )
    if "runs" not in tables:
        raise NotOurs("its table of runs is missing")


def _about(connection: sqlite3.Connection) -> tuple[set[str], int, int]:
    with closing(connection.execute("SELECT name FROM sqlite_master")) as cursor:
        tables = {name for (name,) in cursor}
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return tables, application, version


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
    """Delete runs and searches that ended `before` a Unix time, of a `kind`.

    Returns the number of runs. Raises `StoreError`.
    """
    with _opened(path):
        pass  # rather than create a file or set one aside
    with _opened(path, open_to_write) as connection:
        tests = {"ended < ?": before, "kind = ?": kind}
        chosen = {test: value for test, value in tests.items() if value is not None}
        where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
        deleted = connection.execute(f"DELETE FROM runs {where}", [*chosen.values()]).rowcount
        for number, text in connection.execute("SELECT number, event FROM searches").fetchall():
            search = json.loads(text)  # not by SQLite, which knows no nan
            if kind in (None, search["kind"]) and (before is None or search["ended"] < before):
                connection.execute("DELETE FROM searches WHERE number = ?", (number,))
        shrink(connection)
        return deleted
