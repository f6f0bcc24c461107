"""Past runs of a store as trials of solvers, for advice. The solver is the kind of a run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_slaq.core.memory import Run
from dask_slaq.simulation.recorded.iteration_time import RunningTime
from dask_slaq.simulation.recorded.runs import Trial
from dask_slaq.simulation.remembered import losses_of

__all__ = ["trials_of_runs"]


def trials_of_runs(runs: Sequence[Run]) -> dict[str, tuple[list[Trial], RunningTime | None]]:
    """Return the trials and the running time of the `runs` of each kind, by its name.

    The running time is that of the median core-seconds and tasks of an iteration, or by Ernest's
    law if most runs have one; None if no run tells. The threads that runs had are not kept: any
    number up to that of the tasks counts as tried.
    """
    kinds: dict[str, list[Run]] = {}
    for run in runs:
        if len(run.iteration) > 1:
            kinds.setdefault(run.kind.name, []).append(run)
    return {name: ([_trial(run) for run in same], _time(same)) for name, same in kinds.items()}


def _trial(run: Run) -> Trial:
    losses = losses_of(run)
    ones = np.ones(len(losses))
    tasks = run.tasks if run.tasks >= 1 else np.inf
    return Trial(run.job, run.kind.name, losses, ones * run.work, ones, 0.0 * ones, tasks)


def _time(runs: Sequence[Run]) -> RunningTime | None:
    known = [run for run in runs if run.work > 0 and run.tasks >= 1]
    if not known:
        return None
    work = float(np.median([run.work for run in known]))
    tasks = float(max(round(np.median([run.tasks for run in known])), 1))
    laws = [run.law for run in known if run.law is not None]
    law = np.median(laws, axis=0) if 2 * len(laws) > len(known) else np.zeros(4)
    form = "ernest" if law.any() else "waves"
    return RunningTime(form, law, 0.0, work, tasks, 0.0, tuple(sorted({1, int(tasks)})))
