"""Recorded training runs as trials of solvers: losses, times and threads per iteration.

A job alone on the cluster could use all threads, since idle slots are lent. A job that shared the
cluster, or that ran with strict worker sets, could use the threads that it was granted.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording import Event, Replay
from dask_slaq.simulation.recorded.event_log import RecordedJob, Recordings, part_of, read, size

__all__ = ["GROUP", "Threads", "Trial", "group_of", "read_trials"]

FloatArray = npt.NDArray[np.float64]

#: Pattern of the group of a job: its name without a number at the end, so that `lbfgs-8` and
#: `lbfgs-16` are trials of `lbfgs`.
GROUP = r"^(.+?)(?:[-_#/@ ]\d+)?$"


@dataclass(frozen=True)
class Trial:
    """One recorded run. Arrays are (n_iterations,).

    Attributes
    ----------
    name, group : str
        Name of the job and its solver.
    losses : array
        Reported losses.
    seconds : array
        Time from the report before; for the first report, from the arrival of the job.
    threads : array
        Mean threads that the job could use in that time.
    idle : array
        Seconds of that time in which the driver worked alone.
    width : float
        Most tasks at once; infinite if unknown.
    """

    name: str
    group: str
    losses: FloatArray
    seconds: FloatArray
    threads: FloatArray
    idle: FloatArray
    width: float


def read_trials(
    logs: Sequence[str | Path],
    group: str = GROUP,
    progress: Callable[[str, int, int], object] | None = None,
) -> tuple[list[Trial], list[str]]:
    """Read all jobs in `logs` that reported at least twice.

    Of each log the newest file is given. `group` is the pattern of the solver in a job's name, see
    `group_of`; `progress` is called as by `advise`. Returns the trials, and notes on the logs, such
    as lines that were skipped. Raises `LogError` if a log cannot be read, and `InvalidSetting` if
    the pattern is invalid, or no job is in a group.
    """
    group_of("", group)  # fail on a bad pattern before reading
    trials, notes, names = [], [], set()
    told = part_of(progress, "Reading", sum(map(size, logs)))
    for path in logs:
        recordings, threads = Recordings(), Threads()
        found = read(path, Replay().feed, recordings.take, threads.take, progress=told)
        notes += [f"{path}: {note}" for note in found]
        jobs = [job for one in recordings.all for job in one.jobs]
        for job, had in zip(jobs, threads.jobs, strict=True):
            if not job.reports or len(job.times) < 2:
                continue
            names.add(job.name)
            if (name := group_of(job.name, group)) is not None:
                trials.append(_trial(job, name, had))
    if not trials:
        listed = ", ".join(sorted(names)[:20])
        raise InvalidSetting(
            f"no job is in a group by {group!r}; the jobs are: {listed}"
            if names
            else "no job in these logs reported twice"
        )
    return trials, notes


def group_of(name: str, pattern: str = GROUP) -> str | None:
    """Return the first group of the regular expression `pattern` in a `name`, or the match.

    None if there is no match. Raises `InvalidSetting` if the pattern is invalid.

    Examples
    --------
    >>> group_of("lbfgs-16"), group_of("logreg-C0.1"), group_of("logreg-C0.1", "^[a-z]+")
    ('lbfgs', 'logreg-C0.1', 'logreg')
    """
    try:
        found = re.search(pattern, name)
    except re.error as error:
        raise InvalidSetting(f"{pattern!r} is no regular expression: {error}") from None
    if found is None:
        return None
    groups = found.groups()
    return (groups[0] if groups else found[0]) or None


def _trial(job: RecordedJob, group: str, threads: Sequence[float]) -> Trial:
    return Trial(
        name=job.name,
        group=group,
        losses=np.array(job.losses),
        seconds=np.diff(job.times, prepend=job.arrival),
        threads=np.array(threads),
        idle=np.array(job.idle),
        width=job.most if job.most >= 1 else np.inf,
    )


@dataclass
class _Had:
    """Threads of one running job: the `means` before its reports, and its `share` now.

    `area` has the thread-seconds since the last report, which was at `reported`, up to `since`.
    """

    means: list[float]
    since: float
    reported: float
    share: float = 0.0
    area: float = 0.0


class Threads:
    """Threads that each job could use, followed through the events of a log.

    `jobs` has them in order of arrival, and per report the mean threads since the report before.
    """

    def __init__(self) -> None:
        self.jobs: list[list[float]] = []
        self._running: dict[str, _Had] = {}
        self._threads = 0
        self._strict = False

    def take(self, event: Event) -> None:
        """Add the next event, checked by `core.recording.events.check`."""
        kind, name, now = event["event"], event.get("job"), event.get("time", 0.0)
        if kind == "start" and not event.get("continued"):
            self._running.clear()
            self._threads, self._strict = 0, event["strict"]
        elif kind == "arrive":
            self._pass(now)
            self.jobs.append([])
            self._running[event["job"]] = _Had(self.jobs[-1], now, now)
        elif kind == "decide":
            self._decided(event)
        elif kind == "leave":
            self._pass(now)
            self._running.pop(event["job"], None)
        elif kind == "report" and name in self._running:
            self._reported(self._running[name], now)

    def _decided(self, event: Event) -> None:
        self._pass(event["time"])
        self._threads = event["threads"]
        for name, grant in event["grants"].items():
            if name in self._running:
                self._running[name].share = grant.get("share", 0.0)

    def _reported(self, job: _Had, now: float) -> None:
        self._hold(job, now)
        lasted = now - job.reported
        job.means.append(job.area / lasted if lasted > 0 else job.share)
        job.reported, job.area = now, 0.0

    def _pass(self, now: float) -> None:
        for job in self._running.values():
            self._hold(job, now)

    def _hold(self, job: _Had, now: float) -> None:
        alone = len(self._running) == 1 and not self._strict
        job.area += (self._threads if alone else job.share) * (now - job.since)
        job.since = now
