"""Which solver, on how many threads, reaches a target loss soonest or cheapest.

After Hemingway (Pan et al. 2017): iterations to the target times the seconds of an iteration, each
by a model of its own, from runs that were recorded (`convergence`, `running_times`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.simulation.recorded import (
    GROUP,
    Iterations,
    RunningTime,
    Trial,
    iterations_to,
    read_trials,
    running_time,
)

__all__ = ["advise"]

#: Thread counts that are shown unless they are named: powers of two up to so many times the most
#: recorded, beside the recorded ones.
BEYOND = 2
#: Thread counts that can be asked for: each one is looked at where the fewest are wanted.
MOST_THREADS = 100_000


def advise(
    logs: Sequence[str | Path],
    target: float,
    *,
    group: str = GROUP,
    threads: Sequence[int] = (),
    within: float | None = None,
) -> dict[str, Any]:
    """Estimate the time and the cost of a target loss for every solver that was recorded.

    Parameters
    ----------
    logs : sequence of path
        Recorded by the plugin; the newest file of each.
    target : float
        Loss to reach, as the jobs report it.
    group : str
        Regular expression for the solver in a job's name, as of `trials.group_of`.
    threads : sequence of int
        Thread counts to estimate for.
    within : float, optional
        Seconds; the fewest threads are looked for that are as fast.

    Returns
    -------
    dict
        ``groups``: by name ``runs``, ``tried`` (threads), ``iterations``, ``iteration_model``,
        ``start_up_s``, ``options`` (a dict a thread count, empty where the target is not in
        sight) and ``fewest``, the option within the seconds, or None;
        ``soonest`` and ``cheapest``: an option and its ``group``; ``target``, ``within``;
        ``notes``.

    Raises
    ------
    LogError
    InvalidSetting
        If nothing reaches the target, or is predicted to; or for a setting.
    """
    _check(target, threads, within)
    trials, notes = read_trials(logs, group)
    by_group: dict[str, list[Trial]] = {}
    for trial in trials:
        by_group.setdefault(trial.group, []).append(trial)
    groups = {}
    for name, runs in sorted(by_group.items()):
        times = running_time(runs)
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
    """Thread counts to show: those that were tried, and powers of two."""
    most = BEYOND * times.tried[-1]
    return sorted({*times.tried, *(2**k for k in range(int(math.log2(most)) + 1))})


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _out_of_reach(target: float, groups: dict[str, Any]) -> str:
    """That nothing comes down to the target, and how far each does."""
    if not groups:
        return "no iteration in these logs had a thread to itself: there is no time to learn from"
    how_far = "; ".join(
        f"{name} came down to {found['iterations']['lowest_loss']:.6g} and is predicted to reach "
        f"{found['iterations']['predicted_loss']:.6g} at best"
        for name, found in groups.items()
    )
    return f"no run reaches a loss of {target:g}, or is predicted to: {how_far}"
