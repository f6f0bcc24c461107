"""Advice from recorded runs: the solver and thread count that reach a target soonest or cheapest.

Follows Hemingway (Pan et al. 2017): the iterations to the target (`iterations_to`) and the seconds
per iteration (`running_time`) are estimated separately and multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.memory import PastRun
from dask_slaq.simulation.recorded import (
    GROUP,
    Iterations,
    RunningTime,
    Trial,
    iterations_to,
    read_trials,
    running_time,
)
from dask_slaq.simulation.remembered import losses_of

__all__ = ["advise"]

#: Factor on the most threads recorded, up to which powers of two are shown by default alongside the
#: recorded thread counts.
BEYOND = 2
#: Largest thread count allowed, since the search for the fewest threads tries every count.
MOST_THREADS = 100_000
#: What is said of advice from a store.
FROM_MEMORY = (
    "Past runs in a store: the threads that they had are not kept, so their seconds are computed",
    "from core-seconds, with tasks in waves. Compare only kinds that report the same loss.",
)


def advise(
    logs: Sequence[str | Path],
    target: float,
    *,
    group: str = GROUP,
    threads: Sequence[int] = (),
    within: float | None = None,
    memory: Sequence[PastRun] = (),
    progress: Callable[[str, int, int], object] | None = None,
) -> dict[str, Any]:
    """Estimate the time and cost to reach a target loss for every recorded solver.

    Parameters
    ----------
    logs : sequence of path
        Logs recorded by the plugin; the newest file of each.
    target : float
        Loss to reach, on the scale of the jobs' reports.
    group : str
        Regular expression for the solver in a job's name, see `recorded.runs.group_of`.
    threads : sequence of int
        Thread counts to estimate for. By default those recorded, and powers of two up to twice
        the largest.
    within : float, optional
        Deadline in seconds; the fewest threads that meet it are added for each solver.
    memory : sequence of core.memory.PastRun
        Past runs of a store; their solver is their kind.
    progress : callable, optional
        Called with what is done now, how much of it was done since the last call, and how much
        there is: ``"Reading"`` in bytes, ``"Estimating"`` in solvers.

    Returns
    -------
    dict
        ``groups``: a dict per solver with ``runs``, ``tried`` (threads), ``iterations``,
        ``iteration_model``, ``start_up_s``, ``options`` (one dict per thread count; empty if the
        target is out of reach) and ``fewest`` (the option with the fewest threads that meets the
        deadline, or None);
        ``soonest`` and ``cheapest``: the best options, each with its ``group``; ``target``;
        ``within``; ``notes`` on the logs.

    Raises
    ------
    LogError
        A log cannot be read.
    InvalidSetting
        An argument is invalid, or no solver reaches the target or is predicted to.
    """
    _check(target, threads, within)
    trials, notes = read_trials(logs, group, progress) if logs or not memory else ([], [])
    by_group: dict[str, list[Trial]] = {}
    for trial in trials:
        by_group.setdefault(trial.group, []).append(trial)
    known = {name: (runs, running_time(runs)) for name, runs in by_group.items()}
    kinds: dict[str, list[PastRun]] = {}
    for run in memory:
        if len(run.iteration) > 1:
            kinds.setdefault(run.kind.name, []).append(run)
    for name, same in kinds.items():
        found = [_trial(run) for run in same], _time_of_runs(same)
        known[f"{name} (memory)" if name in known else name] = found
    if memory:
        notes += FROM_MEMORY
    groups = {}
    for name, (runs, times) in sorted(known.items()):
        if progress is not None:
            progress("Estimating", 1, len(known))
        if times is None:
            notes.append(f"{name} is left out: no iteration had a thread to itself")
        else:
            groups[name] = _group(runs, iterations_to(runs, target), times, threads, within)
    options = [
        {"group": name, **option} for name, found in groups.items() for option in found["options"]
    ]
    if not options:
        raise InvalidSetting(_out_of_reach(target, groups))
    return {
        "target": target,
        "within": within,
        "groups": groups,
        "soonest": min(options, key=lambda option: option["seconds"]),
        "cheapest": min(options, key=lambda option: option["thread_seconds"]),
        "notes": notes,
    }


def _check(target: float, threads: Sequence[int], within: float | None) -> None:
    if not math.isfinite(target):
        raise InvalidSetting(f"the target must be a finite loss, not {target!r}")
    for n in threads:
        if not 1 <= n <= MOST_THREADS:
            raise InvalidSetting(f"thread counts must be from 1 to {MOST_THREADS}, not {n}")
    if within is not None and not (within > 0 and math.isfinite(within)):
        raise InvalidSetting(f"a deadline must be more than 0 seconds, not {within!r}")


def _trial(run: PastRun) -> Trial:
    """Return a past run as a trial: any number of threads up to that of its tasks was tried."""
    losses = losses_of(run)
    ones = np.ones(len(losses))
    tasks = run.tasks if run.tasks >= 1 else np.inf
    return Trial(run.job, run.kind.name, losses, ones * run.work, ones, 0.0 * ones, tasks)


def _time_of_runs(runs: Sequence[PastRun]) -> RunningTime | None:
    """Return the running time of the median core-seconds and tasks; None if no run tells.

    It is by Ernest's law if most runs have one.
    """
    known = [run for run in runs if run.work > 0 and run.tasks >= 1]
    if not known:
        return None
    work = float(np.median([run.work for run in known]))
    tasks = float(max(round(np.median([run.tasks for run in known])), 1))
    laws = [run.law for run in known if run.law is not None]
    law = np.median(laws, axis=0) if 2 * len(laws) > len(known) else np.zeros(4)
    form = "ernest" if law.any() else "waves"
    return RunningTime(form, law, 0.0, work, tasks, 0.0, tuple(sorted({1, int(tasks)})))


def _group(
    runs: Sequence[Trial],
    iterations: Iterations,
    times: RunningTime,
    threads: Sequence[int],
    within: float | None,
) -> dict[str, Any]:
    counts = sorted(set(threads)) or _usual(times)
    in_sight = math.isfinite(iterations.middle)
    options = [_option(iterations, times, n) for n in counts] if in_sight else []
    every = range(1, max(counts) + 1) if in_sight and within is not None else ()
    enough = (o for n in every if (o := _option(iterations, times, n))["seconds"] <= within)
    return {
        "runs": len(runs),
        "tried": list(times.tried),
        "iterations": {
            "middle": _finite(iterations.middle),
            "low": _finite(iterations.low),
            "high": _finite(iterations.high),
            "predicted": iterations.predicted,
            "reached": iterations.reached,
            "lowest_loss": iterations.lowest,
            "predicted_loss": iterations.level,
        },
        "iteration_model": times.form,
        "start_up_s": times.start_up,
        "options": options,
        "fewest": next(enough, None),
    }


def _option(iterations: Iterations, times: RunningTime, threads: int) -> dict[str, Any]:
    each = times.iteration(threads)
    seconds = times.start_up + iterations.middle * each
    return {
        "threads": threads,
        "iteration_s": each,
        "seconds": seconds,
        "low_s": times.start_up + iterations.low * each,
        "high_s": _finite(times.start_up + iterations.high * each),
        "thread_seconds": threads * seconds,
        "extrapolated": times.extrapolated(threads),
    }


def _usual(times: RunningTime) -> list[int]:
    """Return the thread counts to show by default: those tried, and powers of two."""
    most = BEYOND * times.tried[-1]
    return sorted({*times.tried, *(2**k for k in range(int(math.log2(most)) + 1))})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _out_of_reach(target: float, groups: dict[str, Any]) -> str:
    """Explain that no solver reaches the target, and how low each one gets."""
    if not groups:
        return "no iteration in these logs had a thread to itself: there is no time to learn from"
    how_far = "; ".join(
        f"{name} came down to {found['iterations']['lowest_loss']:.6g} and is predicted to reach "
        f"{found['iterations']['predicted_loss']:.6g} at best"
        for name, found in groups.items()
    )
    return f"no run reaches a loss of {target:g}, or is predicted to: {how_far}"
