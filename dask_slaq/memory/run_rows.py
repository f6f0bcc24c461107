"""Runs as rows of the store's tables, and back."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dask_slaq.core.memory import MOST_POINTS, Kind, Run, thinned

__all__ = ["COLUMNS", "row_of", "run_of", "runs_of", "storable"]

#: Columns of both tables, in the order of `row_of`.
COLUMNS = (
    *("key", "job", "kind", "features", "iteration", "loss", "iterations", "outcome"),
    *("work", "tasks", "law", "ended"),
)
#: Types of the blobs.
ITERATION, LOSS = np.dtype("<u4"), np.dtype("<f8")
MOST = np.iinfo(ITERATION).max


def row_of(key: str, run: Run, most: int = MOST_POINTS) -> tuple[Any, ...]:
    """Return the values of `COLUMNS`.

    Parameters
    ----------
    key : str
        Identifies the run.
    run : Run
    most : int
        Maximum number of points of its curve.
    """
    at = thinned(np.asarray(run.iteration), most)
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


def run_of(row: Sequence[Any]) -> Run:
    """Return the run of a row with the values of `COLUMNS`.

    Raises
    ------
    ValueError, TypeError, AttributeError
        The row is damaged.
    """
    _, job, kind, features, iteration, loss, iterations, outcome, work, tasks, law, ended = row
    numbers = tuple(sorted((str(k), float(v)) for k, v in json.loads(features).items()))
    at = np.frombuffer(iteration, ITERATION).astype(np.int64)
    losses = np.frombuffer(loss, LOSS).astype(np.float64)
    if len(at) != len(losses) or (np.diff(at, prepend=0) <= 0).any():
        raise ValueError("the curve is damaged")
    if not np.isfinite(losses).all():
        raise ValueError("a loss is not finite")
    return Run(
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


def runs_of(rows: Iterable[Sequence[Any]]) -> Iterator[tuple[str, Run]]:
    """Yield the keys and runs of rows, without the damaged ones."""
    for row in rows:
        try:
            yield str(row[0]), run_of(row)
        except (ValueError, TypeError, AttributeError):
            continue


def _number(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def storable(text: str) -> str:
    """Return a text that can be stored: lone surrogates cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")
