"""Recorded training runs as trials of a solver: losses, and the times and threads of iterations.

A job that was alone could use every thread, since slots are lent; else, or with strict worker
sets, it could use those that it was granted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording import Event, Replay
from dask_slaq.simulation.recorded.event_log import RecordedJob, Recordings, read

__all__ = ["GROUP", "Threads", "Trial", "group_of", "read_trials"]

FloatArray = npt.NDArray[np.float64]

#: The group of a job: its name without a number at the end, so that `lbfgs-8` and `lbfgs-16` are
#: trials of `lbfgs`.
GROUP = r"^(.+?)(?:[-_#/@ ]\d+)?$"


@dataclass(frozen=True)
class Trial:
    """One recorded run. Arrays are (n_iterations,).

    Attributes
    ----------
    name, group : str
    losses : array
    seconds : array
        From one report to the next, the first one from the arrival of the job.
    threads : array
        That it could use meanwhile, on average.
    idle : array
        Seconds in which its driver worked alone.
    width : float
        Most tasks at once; infinite if not known.
    """

    name: str
    group: str
    losses: FloatArray
    seconds: FloatArray
    threads: FloatArray
    idle: FloatArray
    width: float


def read_trials(logs: Sequence[str | Path], group: str = GROUP) -> tuple[list[Trial], list[str]]:
    """All jobs of some logs that reported at least twice, and what is to be said of the logs.

    Parameters
    ----------
    logs : sequence of path
        The newest file of each.
    group : str
        As of `group_of`.

    Raises
    ------
    LogError, InvalidSetting
        InvalidSetting if no job is in a group; the message names the jobs there are.
    """
    group_of("", group)  # what is wrong with it is said before anything is read
    trials, notes, names = [], [], set()
    for path in logs:
        recordings, threads = Recordings(), Threads()
        notes += [
            f"{path}: {note}" for note in read(path, Replay().feed, recordings.take, threads.take)
        ]
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
    """The group of a job: what the pattern finds in its name, or the first parenthesis of it;
    None where it finds nothing.

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
    """Threads of one job: its share, since when, and thread-seconds since its last report."""

    means: list[float]
    since: float
    reported: float
    share: float = 0.0
    area: float = 0.0


class Threads:
    """Follows the threads that jobs could use.

    Attributes
    ----------
    jobs : list of list of float
        Of each job, in the order of arrival: the mean from each report to the next.
    """

    def __init__(self) -> None:
        self.jobs: list[list[float]] = []
        self._running: dict[str, _Had] = {}
        self._threads = 0
        self._strict = False

    def take(self, event: Event) -> None:
        """Take the next event, which `events.check` has passed."""
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
