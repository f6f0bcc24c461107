"""Advice from recorded runs: the solver and thread count that reach a target soonest or cheapest.

Follows Hemingway (Pan et al. 2017): the iterations to the target and the seconds per iteration are
estimated separately and multiplied.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast import LossPredictor, Status
from dask_slaq.core.gains import iterations_to_target
from dask_slaq.simulation.recorded import GROUP, RunningTime, Trial, read_trials, running_time

__all__ = ["advise"]

FloatArray = npt.NDArray[np.float64]

#: Factor on the most threads recorded, up to which powers of two are shown by default alongside the
#: recorded thread counts.
BEYOND = 2
#: Largest thread count allowed.
MOST_THREADS = 100_000


def advise(
    logs: Sequence[str | Path],
    target: float,
    *,
    group: str = GROUP,
    threads: Sequence[int] = (),
) -> dict[str, Any]:
    """Estimate the time and cost to reach a `target` loss for every recorded solver.

    Of each of the `logs` the newest file is given. `group` is the regular expression of the solver
    in a job's name, see `recorded.runs.group_of`. `threads` are the counts to estimate for, by
    default those recorded, and powers of two up to twice the largest.

    Returns the keys of the JSON output. ``groups``: a dict per solver with ``runs``, ``tried``
    (threads), ``iterations``, ``iteration_model``, ``start_up_s``, and ``options`` (one dict per
    thread count; empty if the target is out of reach); ``soonest`` and ``cheapest``: the best
    options, each with its ``group``; ``target``; ``notes`` on the logs. Raises `LogError` if a log
    cannot be read, and `InvalidSetting` if an argument is invalid, or no solver reaches the target
    or is predicted to.
    """
    _check(target, threads)
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
            groups[name] = _group(runs, target, times, threads)
    options = [
        {"group": name, **option} for name, found in groups.items() for option in found["options"]
    ]
    if not options:
        raise InvalidSetting(_out_of_reach(target, groups))
    return {
        "target": target,
        "groups": groups,
        "soonest": min(options, key=lambda option: option["seconds"]),
        "cheapest": min(options, key=lambda option: option["thread_seconds"]),
        "notes": notes,
    }


def _check(target: float, threads: Sequence[int]) -> None:
    if not math.isfinite(target):
        raise InvalidSetting(f"the target must be a finite loss, not {target!r}")
    for n in threads:
        if not 1 <= n <= MOST_THREADS:
            raise InvalidSetting(f"thread counts must be from 1 to {MOST_THREADS}, not {n}")


def _group(
    runs: Sequence[Trial],
    target: float,
    times: RunningTime,
    threads: Sequence[int],
) -> dict[str, Any]:
    iterations = iterations_of(runs, target)
    counts = sorted(set(threads)) or _usual(times)
    in_sight = math.isfinite(iterations["middle"])
    options = [_option(iterations, times, n) for n in counts] if in_sight else []
    return {
        "runs": len(runs),
        "tried": list(times.tried),
        "iterations": {name: _finite(value) for name, value in iterations.items()},
        "iteration_model": times.form,
        "start_up_s": times.start_up,
        "options": options,
    }


def _option(iterations: dict[str, Any], times: RunningTime, threads: int) -> dict[str, Any]:
    each = times.iteration(threads)
    low, middle, high = (
        times.start_up + iterations[name] * each for name in ("low", "middle", "high")
    )
    return {
        "threads": threads,
        "iteration_s": each,
        "seconds": middle,
        "low_s": low,
        "high_s": _finite(high),
        "thread_seconds": threads * middle,
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


def iterations_of(runs: Sequence[Trial], target: float) -> dict[str, Any]:
    """Return the iterations that the `runs` of a solver took, or would take, to a `target`.

    They are assumed not to depend on the number of threads, as for synchronous solvers. ``middle``,
    ``low`` and ``high`` are median, least and most over the runs that ``reached`` the target. If
    none did, they are predicted for the longest run, with the band that should hold the loss of
    four runs in five; infinite where the target is not reached. ``predicted_loss`` is the lower end
    of the band to which the longest run is predicted to fall; the lowest loss if a run got there.
    """
    lowest = level = min(float(run.losses.min()) for run in runs)
    took = [np.argmax(r.losses <= target) + 1.0 for r in runs if (r.losses <= target).any()]
    if took:
        low, middle, high = float(min(took)), float(np.median(took)), float(max(took))
    else:
        longest = max((run.losses for run in runs), key=len)
        ahead, level = _predicted(longest, target)
        low, middle, high = (len(longest) + max(n, 1.0) for n in ahead)  # at least one more
    return {
        "middle": middle,
        "low": low,
        "high": high,
        "predicted": not took,
        "reached": len(took),
        "lowest_loss": lowest,
        "predicted_loss": level,
    }


def _predicted(losses: FloatArray, target: float) -> tuple[tuple[float, float, float], float]:
    """Predict the iterations ahead (least, middle, most) to `target`, and the final loss.

    Every report is followed by a fit, as on a cluster, so that it tests the experts and bands.
    """
    predictor = LossPredictor()
    predictor.add("", target=None)
    for loss in losses.tolist():
        predictor.report("", loss)
        predictor.fit()
    forecast = predictor.forecast([""])
    lower, upper = (bound[0] for bound in predictor.band([""]))
    end = float(lower[-1])
    if forecast.status[0] != Status.OK:
        return (math.inf, math.inf, math.inf), end
    middle = float(iterations_to_target(forecast, np.array([target]), np.array([0.0]))[0])
    least = min(_first_below(forecast.horizons, lower, target), middle)
    most = max(_first_below(forecast.horizons, upper, target), middle)
    return (least, middle, most), end


def _first_below(horizons: FloatArray, losses: FloatArray, target: float) -> float:
    """Return the horizon at which `losses` first reach `target`; infinite if they do not."""
    below = losses <= target
    if not below.any():
        return math.inf
    at = int(np.argmax(below))
    if at == 0:
        return float(horizons[0])
    part = (losses[at - 1] - target) / (losses[at - 1] - losses[at])
    return float(horizons[at - 1] + part * (horizons[at] - horizons[at - 1]))
