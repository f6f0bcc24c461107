"""Runs as rows of the file, and back; what is done with these rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from dask_slaq.core.memory import Kind, PastRun, thinned

#: Columns of the table, in the order of `row_of`.
COLUMNS = (
    *("key", "job", "kind", "features", "iteration", "loss", "iterations", "outcome"),
    *("work", "tasks", "law", "ended"),
)
_NAMES = ", ".join(COLUMNS)
#: Types of the blobs.
ITERATION, LOSS = np.dtype("<u4"), np.dtype("<f8")
MOST = np.iinfo(ITERATION).max
#: Fraction of the maximum that is left after the oldest runs were deleted.
LEFT = 0.95


def row_of(key: str, run: PastRun) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`."""
    at = thinned(np.asarray(run.iteration))
    return (
        storable(key),
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
    _, job, kind, features, iteration, loss, iterations, outcome, work, tasks, law, ended = row
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
    """Insert a run in place of one of its key."""
    places = ", ".join("?" * len(COLUMNS))
    connection.execute(f"INSERT OR REPLACE INTO runs ({_NAMES}) VALUES ({places})", row)


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
    surplus = count - math.floor(LEFT * left)
    connection.execute(
        "DELETE FROM runs WHERE key IN (SELECT key FROM runs ORDER BY ended LIMIT ?)", (surplus,)
    )
    shrink(connection)


def shrink(connection: sqlite3.Connection) -> None:
    """Give the space of deleted rows back to the file system."""
    # A script, as `execute` would free a single page.
    connection.executescript("PRAGMA incremental_vacuum")
    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
