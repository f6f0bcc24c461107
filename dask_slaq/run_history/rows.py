"""Runs as rows of the file, and back; what is done with these rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import astuple
from datetime import date, timedelta
from typing import Any

import numpy as np

from dask_slaq.core.owners.reservations import Reservation
from dask_slaq.core.owners.usage import (
    COLUMNS,
    DAY_SECONDS,
    EARLIER_DAY,
    OTHERS,
    OUTCOMES,
    Usage,
    UsageKey,
)
from dask_slaq.core.run_history import Kind, PastRun, thinned

#: Columns of the table of runs, in the order of `row_of`.
RUN_COLUMNS = (
    *("job", "kind", "features", "iteration", "loss", "iterations", "outcome"),
    *("work", "tasks", "law", "ended"),
)
_NAMES = ", ".join(RUN_COLUMNS)
#: Types of the blobs.
ITERATION, LOSS = np.dtype("<u4"), np.dtype("<f8")
MOST = np.iinfo(ITERATION).max


def row_of(run: PastRun) -> tuple[Any, ...]:
    """Return the values of `RUN_COLUMNS`."""
    at = thinned(np.asarray(run.iteration))
    return (
        storable(run.job),
        storable(run.kind.name),
        json.dumps(dict(run.kind.features), separators=(",", ":")),
        np.minimum(run.iteration, MOST)[at].astype(ITERATION).tobytes(),
        np.asarray(run.loss)[at].astype(LOSS).tobytes(),
        int(min(run.iterations, MOST)),
        storable(run.outcome),
        _number(run.work),
        _number(run.tasks),
        None if run.law is None else json.dumps([float(term) for term in run.law]),
        float(run.ended),
    )


def _run_of(row: Sequence[Any]) -> PastRun:
    """Return the run of a row. Raises ValueError, TypeError or AttributeError if it is damaged."""
    job, kind, features, iteration, loss, iterations, outcome, work, tasks, law, ended = row
    numbers = tuple(sorted((str(k), float(v)) for k, v in json.loads(features).items()))
    at = np.frombuffer(iteration, ITERATION).astype(np.int64)
    losses = np.frombuffer(loss, LOSS).astype(np.float64)
    if len(at) != len(losses) or (np.diff(at, prepend=0) <= 0).any():
        raise ValueError("the curve is damaged")
    if not np.isfinite(losses).all():
        raise ValueError("a loss is not finite")
    return PastRun(
        job=str(job),
        kind=Kind(str(kind), numbers),
        iteration=at,
        loss=losses,
        iterations=int(iterations),
        outcome=str(outcome),
        work=math.nan if work is None else float(work),
        tasks=math.nan if tasks is None else float(tasks),
        law=None if law is None else tuple(float(term) for term in json.loads(law)),
        ended=float(ended),
    )


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def storable(text: str) -> str:
    """Return a text that can be stored: lone surrogates cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def select_runs(
    connection: sqlite3.Connection, kind: str | None, most: int | None
) -> list[PastRun]:
    """Return runs of an open store, newest first; None for all kinds, and for all runs."""
    which = "" if kind is None else "WHERE kind = ?"
    rows = connection.execute(
        f"SELECT {_NAMES} FROM runs {which} ORDER BY ended DESC LIMIT ?",
        (*(() if kind is None else (kind,)), -1 if most is None else most),
    )
    found = []
    for row in rows:
        with suppress(ValueError, TypeError, AttributeError):  # it is damaged
            found.append(_run_of(row))
    return found


def insert(connection: sqlite3.Connection, row: Sequence[Any]) -> None:
    """Insert a run."""
    places = ", ".join("?" * len(RUN_COLUMNS))
    connection.execute(f"INSERT INTO runs ({_NAMES}) VALUES ({places})", row)


def prune_to(connection: sqlite3.Connection, most_runs: int, most_bytes: int) -> None:
    """Delete the oldest runs if there are too many, or the file is too large."""
    (count,) = connection.execute("SELECT count(*) FROM runs").fetchone()
    (page,) = connection.execute("PRAGMA page_size").fetchone()
    (pages,) = connection.execute("PRAGMA page_count").fetchone()
    (free,) = connection.execute("PRAGMA freelist_count").fetchone()
    size = page * (pages - free)
    if count <= most_runs and size <= most_bytes:
        return
    left = min(count, most_runs, count * most_bytes / size)
    # Fraction of the maximum that is left after the oldest runs were deleted.
    surplus = count - math.floor(0.95 * left)
    connection.execute(
        "DELETE FROM runs WHERE number IN (SELECT number FROM runs ORDER BY ended LIMIT ?)",
        (surplus,),
    )
    shrink(connection)


def shrink(connection: sqlite3.Connection) -> None:
    """Give the space of deleted rows back to the file system."""
    # A script, as `execute` would free a single page.
    connection.executescript("PRAGMA incremental_vacuum")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _insert(connection: sqlite3.Connection, table: str, most: int, **values: Any) -> None:
    """Insert a row into a table of numbered rows, and delete all but the newest `most`."""
    names, places = ", ".join(values), ", ".join("?" * len(values))
    row = tuple(values.values())
    connection.execute(f"INSERT INTO {table} ({names}) VALUES ({places})", row)
    connection.execute(
        f"DELETE FROM {table} WHERE number <= (SELECT max(number) FROM {table}) - ?", (most,)
    )


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
    """Return usage of an open store from a day on, see `sum_by`."""
    names = ", ".join(UsageKey._fields[UsageKey._fields.index(name)] for name in by)
    rows = connection.execute(
        f"SELECT {names}, {_SUMS} FROM usage WHERE day >= ? GROUP BY {names}",
        (EARLIER_DAY if since is None else since,),
    )
    return {row[: len(by)]: Usage(*row[len(by) :]) for row in rows}


def usage_as_dicts(
    found: Mapping[tuple[str | int, ...], Usage], by: Sequence[str]
) -> list[dict[str, Any]]:
    """Return usage (see `sum_by`) as plain values, by day or from the largest to the smallest."""
    numbers = ("core_seconds", "waited", "jobs", *OUTCOMES)
    rows = []
    for key, usage in sorted(found.items(), key=lambda item: -item[1].core_seconds):
        row = dict(zip(by, key, strict=True)) | {name: getattr(usage, name) for name in numbers}
        rows.append(row)
    rows.sort(key=lambda row: row.get("day", 0))
    for row in rows:
        if (day := row.get("day")) is not None:
            known = date(1970, 1, 1) + timedelta(max(day, 0))
            row["day"] = "earlier" if day == EARLIER_DAY else known.isoformat()
    return rows


def compact_usage(connection: sqlite3.Connection, now: float) -> None:
    """Add up what is old at `now` (Unix seconds), in a transaction."""
    today = int(now // DAY_SECONDS)
    # Days for which usage is kept by job, and by kind and day; then only by owner.
    by_job, by_day = 90, 730
    with connection:
        connection.execute("BEGIN IMMEDIATE")
        _add_up(connection, today - by_job, "day", "kind", f"job NOT IN ('', '{OTHERS}')")
        oldest = today - by_day
        (count,) = connection.execute("SELECT count(*) FROM usage").fetchone()
        if count > MOST_ROWS:
            (day,) = connection.execute(
                "SELECT day FROM usage ORDER BY day DESC LIMIT 1 OFFSET ?", (MOST_ROWS // 2,)
            ).fetchone()
            oldest = max(oldest, day + 1)
        _add_up(connection, oldest, str(EARLIER_DAY), _OTHERS, f"day > {EARLIER_DAY}")


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
    _insert(connection, table, MOST_LINES[table], event=text)


def select_events(connection: sqlite3.Connection, table: str) -> list[dict[str, Any]]:
    """Return the events of an open store, oldest first."""
    found = []
    for (text,) in connection.execute(f"SELECT event FROM {table} ORDER BY number"):
        try:
            found.append(dict(json.loads(text)))
        except (ValueError, TypeError):
            continue  # it is damaged
    return found
