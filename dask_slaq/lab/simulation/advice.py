"""Which solver, on how many threads, reaches a loss soonest, from a recording of their trainings.

As in Hemingway (Pan et al. 2017), iterations to the loss and seconds of an iteration are modelled
apart, and multiplied. Both models are those that the recorded engine had when a job ended.
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast import iterations_to_losses
from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.core.recording import Replay
from dask_slaq.core.runtime import fit as fit_law
from dask_slaq.core.runtime import fitted_seconds
from dask_slaq.lab.simulation.replay import LogError, events_of


@dataclass
class _Training:
    """One job of a recording."""

    losses: list[float]
    ahead: float  # iterations from its last report to the target, as predicted; inf if never
    sums: FloatArray  # (15,) moments of the threads and seconds of its iterations
    threads: tuple[float, float]  # fewest and most that iterations had on average
    width: float  # tasks at once


def advise(log: str | Path, target: float) -> dict[str, Any]:
    """Find the solver and the threads with which a `target` loss is reached soonest.

    Jobs are of one solver if their names differ only by a number at the end, as ``lbfgs-1`` and
    ``lbfgs-2``. `log` is the newest file of a recording; older ones are read first.

    Returns
    -------
    dict
        ``options``, soonest first: dicts of ``solver``, ``threads``, ``iterations``,
        ``iteration_s``, ``seconds``, ``runs``, ``predicted`` (no run reached the target) and
        ``extrapolated`` (no run had so many threads, or so few). ``out_of_reach``: lowest losses of
        the other solvers. ``notes`` on the log.

    Raises
    ------
    LogError, InvalidSetting
    """
    if not math.isfinite(target):
        raise InvalidSetting(f"the target must be a finite loss, not {target!r}")
    notes: list[str] = []
    solvers: dict[str, list[_Training]] = defaultdict(list)
    for name, training in _trainings(Path(log), target, notes):
        solvers[re.sub(r"(?<=.)[-_#.]?\d+$", "", name)].append(training)
    if not solvers:
        raise LogError(f"{log}: no job here reported a loss on threads of its own")
    options: list[dict[str, Any]] = []
    out_of_reach = {}
    for solver, runs in solvers.items():
        found = _options(runs, target)
        options += [{"solver": solver, **option} for option in found]
        if not found:
            out_of_reach[solver] = min(min(run.losses) for run in runs)
    options.sort(key=lambda option: option["seconds"])
    about = {"target": target, "out_of_reach": out_of_reach, "notes": notes}
    return {"options": options, **about}


def _trainings(path: Path, target: float, notes: list[str]) -> list[tuple[str, _Training]]:
    """Replay a recording. Returns its jobs that reported and ran, by name, as they ended."""
    replay, found = Replay(), []
    losses: dict[str, list[float]] = defaultdict(list)

    def end(job: str) -> None:
        engine, reported = replay.engine, losses.pop(job, [])
        if engine is None or not reported:
            return
        row, column = engine.jobs.row(job), engine.jobs.runtimes.column
        if (sums := column["sums"][row].copy()).any():
            ahead = iterations_to_losses(engine.forecaster, [job], np.array([target]))[0, 1]
            threads = column["least"].item(row), column["most"].item(row)
            width = column["width"].item(row)
            found.append((job, _Training(reported, float(ahead), sums, threads, width)))
        else:
            notes.append(f"{job}: it ended before a decision, so what its tasks took is not known")

    for place, event in events_of(path, notes):
        kind = event.get("event")
        if kind == "leave":
            end(event["job"])
        elif kind == "start" and not event.get("continued"):
            losses.clear()
        try:
            replay.feed(event)
        except ValueError as error:
            raise LogError(f"{place}: {error}") from error
        if kind == "report" and event["loss"] is not None:
            losses[event["job"]].append(event["loss"])
    for job in list(losses):  # what runs still
        end(job)
    return found


def _options(runs: list[_Training], target: float) -> list[dict[str, Any]]:
    """Return seconds to the target on several numbers of threads; none if it is out of reach."""
    took = [np.argmax(np.array(r.losses) <= target) + 1.0 for r in runs if min(r.losses) <= target]
    longest = max(runs, key=lambda run: len(run.losses))
    iterations = float(np.median(took)) if took else len(longest.losses) + longest.ahead
    if not math.isfinite(iterations):
        return []
    sums = np.sum([run.sums for run in runs], axis=0)
    least, most = min(run.threads[0] for run in runs), max(run.threads[1] for run in runs)
    # On one number of threads nothing is seen of any other: the work is divided evenly.
    law = fit_law(sums[None])
    if most < 1.2 * least:
        law = np.array([[0.0, most * fitted_seconds(law, np.array([most])).item(), 0.0, 0.0]])
    widest = max(run.width for run in runs)
    tried = {float(round(n)) for run in runs for n in run.threads}
    counts = sorted(n for n in {*tried, *(2.0**k for k in range(20))} if 1 <= n <= 2 * most)
    found = []
    for n in counts:
        each = fitted_seconds(law, np.array([min(n, widest)])).item()
        about = {"threads": int(n), "iterations": iterations, "iteration_s": each}
        outside = not 0.9 * least <= n <= 1.1 * most
        marks = {"runs": len(runs), "predicted": not took, "extrapolated": outside}
        found.append({**about, "seconds": iterations * each, **marks})
    return found
