"""What a store holds, for people and for programs other than its scheduler; and its pruning."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.memory import Run
from dask_slaq.core.usage import Usage
from dask_slaq.memory.audit_rows import select_audit
from dask_slaq.memory.run_rows import COLUMNS, runs_of
from dask_slaq.memory.schema import NotOurs, is_damage, open_to_read, open_to_write
from dask_slaq.memory.usage_rows import select_usage
from dask_slaq.memory.writing import shrink

__all__ = [
    "KindSummary",
    "StoreError",
    "prune",
    "read_audit",
    "read_kinds",
    "read_runs",
    "read_usage",
    "select_runs",
]


#: Steps of SQLite between two calls of a `progress`: some milliseconds.
STEPS = 100_000


class StoreError(SlaqError):
    """A file cannot be read as a store of runs. The text names the file and says why."""


@dataclass(frozen=True)
class KindSummary:
    """Runs of one kind in a store.

    Attributes
    ----------
    kind : str
        Name of the kind.
    runs, done : int
        Number of runs, and of those that ended by themselves.
    least, mean, most : float
        Iterations of its runs.
    last : float
        When the last one ended, in seconds since 1970.
    """

    kind: str
    runs: int
    done: int
    least: int
    mean: float
    most: int
    last: float


def read_kinds(
    path: str | Path, *, progress: Callable[[], object] | None = None
) -> list[KindSummary]:
    """Return a summary of each kind in a store, the last used first.

    Parameters
    ----------
    path : path
    progress : callable, optional
        Called now and then.

    Raises
    ------
    StoreError
    """
    with _explained(Path(path)), closing(open_to_read(Path(path))) as connection:
        _call_now_and_then(connection, progress)
        found = connection.execute(
            "SELECT kind, count(*), sum(outcome = 'done'), min(iterations), avg(iterations),"
            " max(iterations), max(ended) FROM runs GROUP BY kind ORDER BY max(ended) DESC, kind"
        )
        return [KindSummary(*row) for row in found]


def read_runs(
    path: str | Path,
    kind: str | None = None,
    most: int | None = None,
    *,
    progress: Callable[[], object] | None = None,
) -> list[Run]:
    """Return runs of a store, newest first.

    Parameters
    ----------
    path : path
    kind : str, optional
        Name of their kind. Runs of all kinds by default.
    most : int, optional
        Maximum number of runs.
    progress : callable, optional
        Called now and then.

    Raises
    ------
    StoreError
    """
    with _explained(Path(path)), closing(open_to_read(Path(path))) as connection:
        _call_now_and_then(connection, progress)
        return select_runs(connection, kind, most)


def select_runs(connection: sqlite3.Connection, kind: str | None, most: int | None) -> list[Run]:
    """Return runs of an open store. See `read_runs`."""
    which = "" if kind is None else "WHERE kind = ?"
    rows = connection.execute(
        f"SELECT {', '.join(COLUMNS)} FROM runs {which} ORDER BY ended DESC LIMIT ?",
        (*(() if kind is None else (kind,)), -1 if most is None else most),
    )
    return [run for _, run in runs_of(rows)]


def read_usage(
    path: str | Path, by: Sequence[str] = ("owner",), since: int | None = None
) -> dict[tuple[str | int, ...], Usage]:
    """Return usage in a store, see `sum_by`.

    Parameters
    ----------
    path : path
    by : sequence of str
        Some of ``owner``, ``kind``, ``job`` and ``day``.
    since : int, optional
        First day, in days since 1970. All days by default.

    Raises
    ------
    StoreError
    """
    with _explained(Path(path)), closing(open_to_read(Path(path))) as connection:
        return select_usage(connection, by, since)


def read_audit(path: str | Path) -> list[dict[str, Any]]:
    """Return the events of the audit in a store, oldest first.

    Raises
    ------
    StoreError
    """
    with _explained(Path(path)), closing(open_to_read(Path(path))) as connection:
        return select_audit(connection)


def prune(
    path: str | Path,
    *,
    before: float | None = None,
    kind: str | None = None,
    progress: Callable[[], object] | None = None,
) -> int:
    """Delete runs from a store, also while a scheduler writes to it.

    Parameters
    ----------
    path : path
    before : float, optional
        Delete only runs that ended earlier, in seconds since 1970.
    kind : str, optional
        Delete only runs of the kind of this name.
    progress : callable, optional
        Called now and then.

    Returns
    -------
    int
        Number of runs that were deleted.

    Raises
    ------
    StoreError
    """
    path = Path(path)
    with _explained(path):
        open_to_read(path).close()  # rather than create a file or set one aside
        with closing(open_to_write(path)) as connection:
            _call_now_and_then(connection, progress)
            which, values = [], []
            for test, value in (("ended < ?", before), ("kind = ?", kind)):
                if value is not None:
                    which.append(test)
                    values.append(value)
            where = f"WHERE {' AND '.join(which)}" if which else ""
            deleted = connection.execute(f"DELETE FROM runs {where}", values).rowcount
            shrink(connection)
            return deleted


def _call_now_and_then(
    connection: sqlite3.Connection, progress: Callable[[], object] | None
) -> None:
    if progress is not None:
        connection.set_progress_handler(progress, STEPS)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into a `StoreError`."""
    try:
        yield
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
