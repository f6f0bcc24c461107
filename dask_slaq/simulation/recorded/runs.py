"""Recorded training runs as trials of solvers: losses, times and threads per iteration."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording import Replay
from dask_slaq.simulation.recorded.log_reader import read

FloatArray = npt.NDArray[np.float64]

#: Pattern of the group of a job: its name without a number at the end, so that `lbfgs-8` and
#: `lbfgs-16` are trials of `lbfgs`.
GROUP = r"^(.+?)(?:[-_#/@ ]\d+)?$"


@dataclass(frozen=True)
class Trial:
    """One recorded run. Arrays are (n_iterations,), times in seconds."""

    name: str
    #: The solver.
    group: str
    #: Reported losses.
    losses: FloatArray
    #: Time from the report before; for the first report, from the arrival of the job.
    seconds: FloatArray
    #: Mean threads that the job could use in that time.
    threads: FloatArray
    #: Part of that time in which the driver worked alone.
    idle: FloatArray
    #: Most tasks at once; infinite if unknown.
    width: float


def read_trials(
    logs: Sequence[str | Path],
    group: str = GROUP,
) -> tuple[list[Trial], list[str]]:
    """Read all jobs in `logs` that reported at least twice, and notes on the logs.

    Of each log the newest file is given. `group` is the pattern of the solver in a job's name, see
    `group_of`. Raises `LogError` if a log cannot be read, and `InvalidSetting` if the pattern is
    invalid, or no job is in a group.
    """
    group_of("", group)  # fail on a bad pattern before reading
    trials, notes, names = [], [], set()
    for path in logs:
        recordings, found = read(path, Replay())
        notes += [f"{path}: {note}" for note in found]
        for job in (job for one in recordings for job in one.jobs):
            if not job.reports or len(job.times) < 2:
                continue
            names.add(job.name)
            if (name := group_of(job.name, group)) is None:
                continue
            trials.append(
                Trial(
                    name=job.name,
                    group=name,
                    losses=np.array(job.losses),
                    seconds=np.diff(job.times, prepend=job.arrival),
                    threads=np.array(job.threads),
                    idle=np.array(job.idle),
                    width=job.most if job.most >= 1 else np.inf,
                )
            )
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
