"""What a job shows: the one table that status, tables, board, metrics and history follow.

A new number is one row here, and its value in ``scheduler/views/status.py``, or, if the history
keeps it, in ``scheduler/jobs/values.py``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dask_slaq.core.text import duration, number

#: Status of a job, and its name as ``job``.
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One value of a job, and who shows it."""

    name: str
    #: What it is, for metrics, the history and readers of this table; with its unit.
    about: str
    unit: str = ""
    #: Whether it is a key of the status; otherwise it is made from others.
    status: bool = True
    #: Heading in terminals, by default the name, and in notebooks and on the board, if another.
    heading: str = ""
    title: str = ""
    #: Whether tables in terminals and in notebooks show it, and its width in pixels on the board.
    terminal: bool = False
    notebook: bool = False
    board: int = 0
    #: Whether it is text, aligned to the left; otherwise its number of significant digits.
    left: bool = False
    digits: int = 4
    #: How its text is made, if in another way.
    shown: Callable[[Row], str] | None = None
    #: Type of the value in the history, empty if it is not kept; and whether it is a metric.
    kept: str = ""
    metric: bool = False

    def text(self, row: Row) -> str:
        """Return the value as text, empty if it is unknown."""
        if self.shown is not None:
            return self.shown(row)
        value = row.get(self.name)
        if self.left:
            return str(value or "")
        return "" if value is None or math.isnan(value) else number(value, self.digits)


def rows(jobs: Mapping[str, Mapping[str, Any]]) -> Iterator[Row]:
    """Yield what columns show of each job in a status."""
    return ({"job": name, **job} for name, job in jobs.items())


def _iteration(row: Row) -> str:
    if not row.get("reports", True):
        return ""
    most = row.get("max_iter")
    return str(row["iteration"]) if most is None else f"{row['iteration']}/{most:.0f}"


def _done(row: Row) -> float:
    left = row.get("normalized_loss")
    return 1.0 - left if row["reports"] and row["iteration"] and left is not None else math.nan


def time_to_target(row: Row) -> str:
    """Return as text when a job reaches its target, with the band of the forecast."""
    if row.get("target") is None:
        return ""
    if row.get("eta") is None:
        return "unknown"
    low, expected, high = row["eta"]
    if expected is None:
        return "not in sight" if low is None else f"over {duration(low)}"
    if expected == 0:
        return "reached"
    return duration(expected) if low == high else _with_band(low, expected, high)


def _with_band(low: float | None, expected: float | None, high: float | None) -> str:
    return f"{duration(expected)} ({duration(low)} to {duration(high)})"


def _end(ends: Mapping[str, Any] | None) -> str:
    """Return an expected end with its band; empty while it is not known."""
    if ends is None or ends["expected"] is None:
        return ""
    end = _with_band(ends["low"], ends["expected"], ends["high"])
    return f"so far {end}" if ends.get("of") == "submitted" else end


def _standing(row: Row) -> str:
    if "share" not in row:  # it has ended
        return ""
    more = [f"{row[name]:.3g} {name}" for name in ("lent", "borrowed", "owed") if row.get(name)]
    return ", ".join([f"{row['share']:.3g} granted", *more])


_TABLES: dict[str, Any] = {"terminal": True, "notebook": True}
JOB_COLUMNS = (
    Column("job", "name", status=False, left=True, terminal=True, notebook=True, board=220),
    Column("owner", "whose it is", left=True, terminal=True, notebook=True, board=140),
    Column(
        "state",
        "running, waiting for a thread or another job's end, idle, paused or stopping",
        left=True,
        **_TABLES,
        board=120,
    ),
    Column(
        "age",
        "time since it was opened",
        "s",
        shown=lambda row: duration(row["age"]),
        terminal=True,
    ),
    Column(
        "iteration",
        "iterations reported: its last step, or the number of reports",
        "1",
        shown=_iteration,
        **_TABLES,
        board=100,
        kept="<u4",
        metric=True,
    ),
    Column("max_iter", "most iterations in all, None if unknown", "1"),
    Column(
        "loss",
        "last raw loss that is finite",
        "units of the job's loss",
        **_TABLES,
        board=100,
        kept="<f8",
    ),
    Column(
        "normalized_loss",
        "remaining loss over the whole predicted range, 1 to 0",
        "1",
        kept="<f8",
        metric=True,
    ),
    Column(
        "done",
        "part of its predicted loss reduction that it has made",
        "1",
        status=False,
        shown=lambda row: "" if math.isnan(done := _done(row)) else f"{100 * done:.0f} %",
        terminal=True,
    ),
    Column("predicted", "predicted fall of the normalized loss by the next epoch", "1", kept="<f8"),
    Column("running", "tasks that hold a slot", "tasks", terminal=True, kept="<u4", metric=True),
    Column("ready", "tasks that wait for a slot", "tasks", terminal=True, metric=True),
    Column(
        "share",
        "threads granted",
        "threads",
        heading="granted",
        title="threads",
        digits=3,
        **_TABLES,
        kept="<f8",
        metric=True,
    ),
    Column("lent", "granted threads on which tasks of others run now", "threads", metric=True),
    Column("borrowed", "threads on which it runs above those granted", "threads", metric=True),
    Column("owed", "core-seconds behind its promise, which are served first", "s", metric=True),
    Column(
        "attained",
        "core-seconds used by tasks that have ended",
        "s",
        heading="core-s",
        digits=3,
        terminal=True,
    ),
    Column("core_seconds", "core-seconds used so far", "s", status=False, kept="<f8"),
    Column(
        "eta",
        "time to its target (low, expected, high; None where out of sight), or None",
        "s",
        shown=time_to_target,
        heading="to target",
        title="time to target",
        terminal=True,
        board=210,
    ),
    Column(
        "ends",
        "time to its end: fair, promised, low, expected, high; late, in words; or None",
        "s",
        shown=lambda row: _end(row["ends"]),
        heading="ends in",
        title="end",
        terminal=True,
        board=480,
    ),
    Column(
        "reason",
        "what it does or waits for",
        left=True,
        title="what it does or waits for",
        **_TABLES,
        board=500,
    ),
    Column(
        "standing",
        "threads granted, lent and borrowed, and core-seconds owed",
        status=False,
        left=True,
        title="threads, core-s owed",
        shown=_standing,
        board=320,
    ),
    Column("position", "number of jobs that are served before it, None if it has no ready task"),
    Column("index", "order of dispatch: the highest first"),
    Column("why", "reason for the grant"),
    Column("workers", "addresses of the workers granted to it"),
    Column("reports", "whether it is a job, not the tasks of a client outside jobs"),
    Column("weight", "relative importance"),
    Column("min_share", "least threads, None for no limit", "threads"),
    Column("max_share", "most threads while others want them, None for no limit", "threads"),
    Column("target", "loss to reach, None for none", "units of the job's loss"),
    Column("max_slowdown", "factor of its fair time within which it ends; None: as all", "1"),
    Column("kind", "kind of job by which past runs are alike, None for tasks outside jobs"),
    Column("like_runs", "past runs of like kind on which its forecast rests", "runs"),
)
