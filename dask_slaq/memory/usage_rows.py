"""Usage in the file, in rows that are added to, and added up when they are old; and events."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from datetime import date, timedelta
from typing import Any

from dask_slaq.core.usage import COLUMNS, DAY, EARLIER, OTHERS, OUTCOMES, Usage, UsageKey
from dask_slaq.memory.rows import storable

#: Days for which usage is kept by job, and by kind and day; then only by owner.
BY_JOB, BY_DAY = 90, 730
#: Maximum number of rows; above it, the oldest are kept only by owner.
MOST_ROWS = 200_000
#: Maximum number of events of each table; the oldest are deleted first.
MOST_LINES = {"audit": 10_000, "ended": 1000, "searches": 100}

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
    """Add finite usage to the rows of an open store."""
    connection.executemany(
        _ADD, [(key.day, *map(storable, key[1:]), *astuple(usage)) for key, usage in rows]
    )


def select_usage(
    connection: sqlite3.Connection, by: Sequence[str], since: int | None = None
) -> dict[tuple[str | int, ...], Usage]:
    """Return usage of an open store, see `sum_by`; nothing if an earlier release wrote it.

    `since` is the first day; all days by default.
    """
    if not _has(connection, "usage"):
        return {}
    names = ", ".join(UsageKey._fields[UsageKey._fields.index(name)] for name in by)
    rows = connection.execute(
        f"SELECT {names}, {_SUMS} FROM usage WHERE day >= ? GROUP BY {names}",
        (EARLIER if since is None else since,),
    )
    return {row[: len(by)]: Usage(*row[len(by) :]) for row in rows}


def _has(connection: sqlite3.Connection, table: str) -> bool:
    query = "SELECT 1 FROM sqlite_master WHERE name = ?"
    return connection.execute(query, (table,)).fetchone() is not None


def usage_as_dicts(
    found: Mapping[tuple[str | int, ...], Usage], by: Sequence[str]
) -> list[dict[str, Any]]:
    """Return usage (see `sum_by`) as plain values, by day or from the largest to the smallest.

    A row has the fields in `by` (``day`` as ``YYYY-MM-DD``, or ``earlier``), ``core_seconds``,
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


def _date(day: int) -> str:
    return "earlier" if day == EARLIER else (date(1970, 1, 1) + timedelta(day)).isoformat()


def compact_usage(connection: sqlite3.Connection, now: float) -> None:
    """Add up what is old at `now` (Unix seconds), in a transaction."""
    today = int(now // DAY)
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        _add_up(connection, today - BY_JOB, "day", "kind", f"job NOT IN ('', '{OTHERS}')")
        oldest = today - BY_DAY
        (count,) = connection.execute("SELECT count(*) FROM usage").fetchone()
        if count > MOST_ROWS:
            (day,) = connection.execute(
                "SELECT day FROM usage ORDER BY day DESC LIMIT 1 OFFSET ?", (MOST_ROWS // 2,)
            ).fetchone()
            oldest = max(oldest, day + 1)
        _add_up(connection, oldest, str(EARLIER), _OTHERS, f"day > {EARLIER}")


def _add_up(connection: sqlite3.Connection, before: int, day: str, kind: str, which: str) -> None:
    """Add up the rows of days before `before`: a day and a kind of theirs, and no job."""
    where = f"WHERE day < {before} AND {which}"
    rows = connection.execute(
        f"SELECT {day}, owner, {kind}, {_OTHERS}, {_SUMS} FROM usage {where} GROUP BY 1, 2, 3, 4"
    ).fetchall()
    connection.execute(f"DELETE FROM usage {where}")
    add_usage(connection, ((UsageKey(*row[:4]), Usage(*row[4:])) for row in rows))


def add_event(connection: sqlite3.Connection, table: str, event: Mapping[str, Any]) -> None:
    """Add an event of plain values to a `table` of an open store, one of `MOST_LINES`."""
    text = storable(json.dumps(event, default=str))
    connection.execute(f"INSERT INTO {table} (event) VALUES (?)", (text,))
    connection.execute(
        f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?",
        (MOST_LINES[table],),
    )


def select_events(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    """Return the events of an open store, oldest first; none if an earlier release wrote it."""
    if not _has(connection, table):
        return []
    found = []
    for (text,) in connection.execute(f"SELECT event FROM {table} ORDER BY number"):
        try:
            found.append(dict(json.loads(text)))
        except (ValueError, TypeError):
            continue  # it is damaged
    return found
