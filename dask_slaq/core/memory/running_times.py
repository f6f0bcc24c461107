"""Running time of a job before its first task, from runs of like kind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_slaq.core.memory.likeness import kernel
from dask_slaq.core.memory.runs import Run

__all__ = ["RunningTime", "running_time"]


class RunningTime(NamedTuple):
    """Expected running time of one iteration."""

    work: float  # core-seconds, 0 if unknown
    width: float  # parallel tasks, 0 if unknown
    law: tuple[float, ...] | None  # Ernest's law in seconds, None for linear scaling


def running_time(like: Sequence[tuple[Run, float]]) -> RunningTime:
    """Return the running time that like runs let expect.

    Parameters
    ----------
    like : sequence of (Run, float)
        Runs and their distances, nearest first; also those that were stopped or have failed.

    Returns
    -------
    RunningTime
        Geometric means of work and tasks over the like runs, weighted by `kernel`. The law is
        that of the nearest run, if at least half of the weight is on runs that have one.
    """
    told = [(run, apart) for run, apart in like if run.work > 0 and math.isfinite(run.work)]
    if not told:
        return RunningTime(0.0, 0.0, None)
    weight = kernel([apart for _, apart in told])
    work = math.exp(float(weight @ np.log([run.work for run, _ in told])))
    tasks = np.array([run.tasks if run.tasks >= 1 else 1.0 for run, _ in told])
    width = math.exp(float(weight @ np.log(tasks)))
    laws = [run.law for run, _ in told]
    lawful = np.array([law is not None for law in laws])
    law = None
    if weight[lawful].sum() >= 0.5:
        law = next(law for law in laws if law is not None)
    return RunningTime(work, width, law)
