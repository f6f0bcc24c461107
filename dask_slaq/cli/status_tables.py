"""Tables of running jobs and of owners, for ``dask slaq jobs``, ``owners`` and ``top``."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dask_slaq.cli.text import aligned, duration, number, printable
from dask_slaq.core.usage import DAY

__all__ = [
    "JOB_COLUMNS",
    "Column",
    "ended_table",
    "jobs_table",
    "limits_table",
    "owners_table",
    "summary",
]

Job = Mapping[str, Any]


@dataclass(frozen=True)
class Column:
    """One column of the table of jobs: its heading, text, and by what it is sorted."""

    heading: str
    text: Callable[[str, Job], str]
    key: Callable[[str, Job], Any]
    left: bool = False


def _column(name: str, heading: str | None = None, digits: int = 4) -> Column:
    """Return a column of the number of this name in the status of a job."""
    return Column(
        heading or name,
        lambda _, job: number(job.get(name), digits),
        lambda _, job: _or_last(job.get(name)),
    )


def _or_last(value: float | None) -> float:
    return -math.inf if value is None or math.isnan(value) else float(value)


def _iteration(name: str, job: Job) -> str:
    if not job["reports"]:
        return "-"
    most = job.get("max_iter")
    return str(job["iteration"]) if most is None else f"{job['iteration']}/{most:.0f}"


def _done(job: Job) -> float | None:
    """Return the fraction of its predicted loss reduction that a job has made."""
    left = job.get("normalized_loss")
    known = job["reports"] and job["iteration"] and left is not None and not math.isnan(left)
    return 1.0 - left if known else None


def _done_text(name: str, job: Job) -> str:
    done = _done(job)
    return "-" if done is None else f"{100 * done:.0f} %"


def _eta(name: str, job: Job) -> str:
    if job.get("target") is None:
        return "-"
    if job.get("eta") is None:
        return "unknown"
    low, expected, high = map(duration, job["eta"])
    if job["eta"][1] is None:
        return "not in sight" if job["eta"][0] is None else f"over {low}"
    return expected if low == high else f"{expected} ({low} to {high})"


def _eta_key(name: str, job: Job) -> float:
    """Sort the jobs nearest to their target first when sorted downwards, and those without last."""
    expected = (job.get("eta") or [None, None])[1]
    return -math.inf if expected is None else -float(expected)


def _end(name: str, job: Job) -> str:
    ends = job.get("ends")
    if ends is None:
        return "-"
    low, expected, high = (duration(ends[key]) for key in ("low", "expected", "high"))
    return f"{expected} ({low} to {high})"


def _end_key(name: str, job: Job) -> float:
    ends = job.get("ends")
    return -math.inf if ends is None or ends["expected"] is None else -float(ends["expected"])


def _text(name: str, left: bool = True) -> Column:
    return Column(
        name,
        lambda _, job: printable(job.get(name) or "-"),
        lambda _, job: str(job.get(name) or ""),
        left,
    )


JOB_COLUMNS = (
    Column("job", lambda name, _: printable(name), lambda name, _: name, left=True),
    _text("owner"),
    _text("state"),
    Column("age", lambda _, job: duration(job["age"]), lambda _, job: job["age"]),
    Column("iteration", _iteration, lambda _, job: job["iteration"]),
    _column("loss"),
    Column("done", _done_text, lambda _, job: _or_last(_done(job))),
    _column("running"),
    _column("ready"),
    _column("share", "granted", 3),
    _column("attained", "core-s", 3),
    Column("to target", _eta, _eta_key),
    Column("ends in", _end, _end_key),
    Column(
        "reason",
        lambda _, job: printable(job.get("reason") or job.get("why") or "-"),
        lambda _, job: str(job.get("reason") or job.get("why") or ""),
        left=True,
    ),
)

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
    ("factor", "factor", 2),
    ("core-s", "core_seconds", 4),
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
        f"{status['capacity']} threads",
        f"{len(trained)} {'job' if len(trained) == 1 else 'jobs'}",
    ]
    states = [job.get("state") for job in trained]
    found = [s for s in ("running", "waiting", "idle", "paused", "stopping") if s in states]
    if found:
        parts.append(", ".join(f"{states.count(state)} {state}" for state in found))
    if status.get("failed"):
        parts.append(f"FAILED, tasks are left to plain Dask: {printable(status['failed'])}")
    return " · ".join(parts)


def jobs_table(status: Mapping[str, Any], width: int | None = None) -> str:
    """Return the jobs as a readable table below a summary.

    Parameters
    ----------
    status : Mapping
        Result of `dask_slaq.status`.
    width : int, optional
        Characters at which lines are cut. By default none is.
    """
    if not status["jobs"]:
        return f"{summary(status)}\nno job is running"
    rows = sorted(status["jobs"].items(), key=lambda item: (not item[1]["reports"], item[0]))
    cells = [[column.heading for column in JOB_COLUMNS]]
    cells += [[column.text(name, job) for column in JOB_COLUMNS] for name, job in rows]
    left = [k for k, column in enumerate(JOB_COLUMNS) if column.left]
    lines = aligned(cells, left)
    if width is not None:
        lines = [_cut(line, width) for line in lines]
    return "\n".join([summary(status), "", *lines])


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else line[: width - 1] + "…"


def ended_table(jobs: Sequence[Mapping[str, Any]], started: float) -> str:
    """Return jobs that ended as a readable table.

    Parameters
    ----------
    jobs : sequence of mappings
        See `dask_slaq.ended`.
    started : float
        Unix time at which the scheduler started, which knows no jobs of earlier ones.
    """
    young = time.time() - started < DAY
    begin = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(started))
    period = f"since the scheduler's start at {begin}" if young else "within a day"
    if not jobs:
        return f"no job has ended {period}"
    cells = [["job", "owner", "outcome", "iterations", "loss", "time", "core-s", "ended"]]
    for job in jobs:
        names = [printable(job["job"]), printable(job["owner"]) or "-", job["event"]]
        numbers = [number(job[key]) for key in ("iteration", "loss")]
        took = [duration(job["seconds"]), number(job["core_seconds"])]
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(job["ended"]))
        cells.append([*names, *numbers, *took, at])
    return "\n".join([*aligned(cells, left=(0, 1, 2)), "", f"jobs that ended {period}"])


def owners_table(owners: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the standing and the usage of every owner as a readable table."""
    if not owners:
        return "no owner has had a job, and slaq.owners sets no limits: jobs share by weight"
    cells = [["owner", *(heading for heading, _, _ in _OWNER_COLUMNS)]]
    for owner in sorted(owners):
        numbers = [number(owners[owner].get(key), digits) for _, key, digits in _OWNER_COLUMNS]
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
