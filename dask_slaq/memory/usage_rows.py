"""Usage in the store: rows that are added to, and added up when they are old."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import date, timedelta
from typing import Any

from dask_slaq.core.usage import COLUMNS, DAY, EARLIER, OTHERS, OUTCOMES, Usage, UsageKey
from dask_slaq.memory.run_rows import storable

__all__ = ["add_usage", "compact_usage", "select_usage", "usage_as_dicts"]

#: Days for which usage is kept by job, and by kind and day; then only by owner.
BY_JOB, BY_DAY = 90, 730
#: Maximum number of rows; above it, the oldest are kept only by owner.
MOST_ROWS = 200_000

_KEY, _SUMS = ", ".join(UsageKey._fields), ", ".join(f"sum({name})" for name in COLUMNS)
#: Name of jobs and kinds that are added up. Work outside of jobs has none.
_OTHERS = f"CASE kind WHEN '' THEN '' ELSE '{OTHERS}' END"
_ADD = (
    f"INSERT INTO usage ({_KEY}, {', '.join(COLUMNS)})"
    f" VALUES ({', '.join('?' * (len(UsageKey._fields) + len(COLUMNS)))})"
    f" ON CONFLICT ({_KEY}) DO UPDATE SET "
    + ", ".join(f"{name} = {name} + excluded.{name}" for name in COLUMNS)
)


def add_usage(connection: sqlite3.Connection, rows: Iterable[tuple[UsageKey, Usage]]) -> None:
    """Add to the rows of a store.

    Parameters
    ----------
    connection : sqlite3.Connection
    rows : iterable of (UsageKey, Usage)
        What to add, finite.
    """
    connection.executemany(
        _ADD, [(key.day, *map(storable, key[1:]), *astuple(usage)) for key, usage in rows]
    )


def select_usage(
    connection: sqlite3.Connection, by: Sequence[str], since: int | None = None
) -> dict[tuple[str | int, ...], Usage]:
    """Return usage of an open store, see `sum_by`; nothing if an earlier release wrote it.

    Parameters
    ----------
    connection : sqlite3.Connection
    by : sequence of str
        Fields of `UsageKey`.
    since : int, optional
        First day. All days by default.
    """
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'usage'").fetchone():
        return {}
    names = ", ".join(UsageKey._fields[UsageKey._fields.index(name)] for name in by)
    rows = connection.execute(
        f"SELECT {names}, {_SUMS} FROM usage WHERE day >= ? GROUP BY {names}",
        (EARLIER if since is None else since,),
    )
    return {row[: len(by)]: Usage(*row[len(by) :]) for row in rows}


def usage_as_dicts(
    found: Mapping[tuple[str | int, ...], Usage], by: Sequence[str]
) -> list[dict[str, Any]]:
    """Return usage as plain values, by day or from the largest to the smallest.

    Parameters
    ----------
    found : mapping of tuple to Usage
        See `sum_by`.
    by : sequence of str

    Returns
    -------
    list of dict
        The fields in `by` (``day`` as ``YYYY-MM-DD``, or ``earlier``), ``core_seconds``,
        ``waited`` (seconds in which jobs had tasks to run and no thread), ``jobs`` (number that
        ended), and of these ``done``, ``stopped``, ``failed`` and ``lost``.
    """
    numbers = ("core_seconds", "waited", "jobs", *OUTCOMES)
    rows = []
    for key, usage in sorted(found.items(), key=lambda item: -item[1].core_seconds):
        row = dict(zip(by, key, strict=True)) | {name: getattr(usage, name) for name in numbers}
        rows.append(row)
    rows.sort(key=lambda row: row.get("day", 0))
    return [row | {"day": _date(row["day"])} if "day" in row else row for row in rows]


def _date(day: Any) -> str:
    return "earlier" if day == EARLIER else (date(1970, 1, 1) + timedelta(day)).isoformat()


def compact_usage(connection: sqlite3.Connection, now: float) -> None:
    """Add up what is old, in a transaction.

    Parameters
    ----------
    connection : sqlite3.Connection
    now : float
        Seconds since 1970.
    """
    today = int(now // DAY)
    connection.execute("BEGIN IMMEDIATE")
    try:
        _add_up(connection, today - BY_JOB, "day", "kind", f"job NOT IN ('', '{OTHERS}')")
        oldest = today - BY_DAY
        (count,) = connection.execute("SELECT count(*) FROM usage").fetchone()
        if count > MOST_ROWS:
            (day,) = connection.execute(
                "SELECT day FROM usage ORDER BY day DESC LIMIT 1 OFFSET ?", (MOST_ROWS // 2,)
            ).fetchone()
            oldest = max(oldest, day + 1)
        _add_up(connection, oldest, str(EARLIER), _OTHERS, f"day > {EARLIER}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _add_up(connection: sqlite3.Connection, before: int, day: str, kind: str, which: str) -> None:
    """Add up the rows of days before `before`: a day and a kind of theirs, and no job."""
    where = f"WHERE day < {before} AND {which}"
    rows = connection.execute(
        f"SELECT {day}, owner, {kind}, {_OTHERS}, {_SUMS} FROM usage {where} GROUP BY 1, 2, 3, 4"
    ).fetchall()
    connection.execute(f"DELETE FROM usage {where}")
    add_usage(connection, ((UsageKey(*row[:4]), Usage(*row[4:])) for row in rows))
