"""Tables of running jobs and of owners, for ``dask slaq jobs`` and ``owners``."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from dask_slaq.cli.text import aligned, duration, local_time, number, printable
from dask_slaq.core.jobs.columns import JOB_COLUMNS, Column, Row, rows
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.core.text import in_threads

TO_SECONDS = "%Y-%m-%d %H:%M:%S"
#: Columns of the table of running jobs.
COLUMNS = tuple(column for column in JOB_COLUMNS if column.terminal)
#: Heading, key and number of significant digits of each column of the table of owners.
_OWNER_COLUMNS = (
    ("weight", "weight", 4),
    ("limit", "max_threads", 4),
    ("jobs", "jobs", 9),
    ("max jobs", "max_jobs", 9),
    ("deserved", "deserved", 3),
    ("got", "got", 3),
    ("lent", "lent", 3),
    ("borrowed", "borrowed", 3),
    ("idle", "idle", 3),
    ("factor", "factor", 2),
    ("core-s", "core_seconds", 4),
    ("core-h left", "core_hours_left", 4),
    ("finished", "finished_jobs", 9),
    ("reduction", "loss_reduction", 3),
)


def summary(status: Mapping[str, Any]) -> str:
    """Return the state of the scheduler in one line."""
    jobs = status["jobs"].values()
    trained = [job for job in jobs if job["reports"]]
    parts = [
        f"policy {status['policy']}",
        f"epoch {status['epoch']:g} s",
        in_threads(status["capacity"]),
        f"{len(trained)} {'job' if len(trained) == 1 else 'jobs'}",
    ]
    states = [job.get("state") for job in trained]
    found = [s for s in ("running", "waiting", "idle", "paused", "stopping") if s in states]
    if found:
        parts.append(", ".join(f"{states.count(state)} {state}" for state in found))
    if status.get("speeds"):
        parts.append(status["speeds"])
    if (foretold := status.get("foretold")) and foretold["ended"]:
        ends = "end" if foretold["ended"] == 1 else f"{foretold['ended']} ends"
        parts.append(f"of the last {ends}, {foretold['held']} in their band")
    if status.get("failed"):
        parts.append(f"FAILED, tasks are left to plain Dask: {printable(status['failed'])}")
    return " · ".join(parts)


def cell(column: Column, row: Row) -> str:
    """Return what a column shows of a job in a terminal."""
    return printable(column.text(row)) or "-"


def jobs_table(status: Mapping[str, Any], width: int | None = None) -> str:
    """Return the jobs as a table below a summary; lines are cut at `width` characters, if given."""
    if not status["jobs"]:
        return f"{summary(status)}\nno job is running"
    ordered = sorted(rows(status["jobs"]), key=lambda row: (not row["reports"], row["job"]))
    cells = [[column.heading or column.name for column in COLUMNS]]
    cells += [[cell(column, row) for column in COLUMNS] for row in ordered]
    lines = aligned(cells, [k for k, column in enumerate(COLUMNS) if column.left])
    if width is not None:
        lines = [_cut(line, width) for line in lines]
    return "\n".join([summary(status), "", *lines])


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def ended_table(jobs: Sequence[Mapping[str, Any]], started: float) -> str:
    """Return jobs that ended since the scheduler `started`, at a Unix time, as a table."""
    young = time.time() - started < DAY_SECONDS and all(job["ended"] >= started for job in jobs)
    period = (
        f"since the scheduler's start at {local_time(started, TO_SECONDS)}"
        if young
        else "within a day"
    )
    if not jobs:
        return f"no job has ended {period}"
    cells = [["job", "owner", "outcome", "iterations", "loss", "time", "core-s", "ended"]]
    for job in jobs:
        names = [printable(job["job"]), printable(job["owner"]) or "-", job["event"]]
        numbers = [number(job[key]) for key in ("iteration", "loss")]
        took = [duration(job["seconds"]), number(job["core_seconds"])]
        cells.append([*names, *numbers, *took, local_time(job["ended"], TO_SECONDS)])
    return "\n".join([*aligned(cells, left=(0, 1, 2)), "", f"jobs that ended {period}"])


def owners_table(owners: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the standing and the usage of every owner as a readable table."""
    if not owners:
        return "no owner has had a job, and slaq.owners sets no limits: jobs share by weight"
    budgets = any(each.get("core_hours") is not None for each in owners.values())
    columns = [each for each in _OWNER_COLUMNS if budgets or each[1] != "core_hours_left"]
    cells = [["owner", *(heading for heading, _, _ in columns)]]
    for owner in sorted(owners):
        numbers = [number(owners[owner].get(key), digits) for _, key, digits in columns]
        cells.append([printable(owner) or "(none)", *numbers])
    return "\n".join(aligned(cells))


def limits_table(limits: Mapping[str, Mapping[str, int]]) -> str:
    """Return the limits of labels as a readable table; see `Limits.as_dict`."""
    if not limits:
        return "no label has a limit (slaq.limits)"
    cells = [["label", "limit", "running", "waiting"]]
    for label, now in sorted(limits.items()):
        cells.append([printable(label), *(str(now[key]) for key in ("most", "running", "waiting"))])
    return "\n".join(aligned(cells))


def workers_table(workers: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the speeds of workers as a readable table, slowest first."""
    if not workers:
        return "no worker has joined"
    cells = [["worker", "host", "threads", "factor", "estimate", "80 %"]]
    for address, now in sorted(workers.items(), key=lambda one: (-one[1]["factor"], one[0])):
        name = now["name"] if now["name"] != address else address
        known = now["estimate"] is not None
        band = f"{number(now['low'], 3)} to {number(now['high'], 3)}" if known else "-"
        numbers = [number(now["factor"], 3), number(now["estimate"], 3), band]
        about = [printable(name), printable(now["host"]), str(now["threads"])]
        cells.append([*about, *numbers])
    return "\n".join(aligned(cells, left=(0, 1)))
