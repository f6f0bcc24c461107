"""Recorder of real fits: what their tasks took, and how long their drivers computed in between.

A recording is JSON: by name of a fit its ``iterations``, each the seconds for which the driver
alone computed and a list of the seconds of its tasks, in order of their starts, and its ``losses``,
one per report. The last iteration may have none.
"""

from __future__ import annotations

import itertools
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.simulation.workload import iterations_to

__all__ = ["Fit", "lengthen", "read", "record"]

RECORDED = Path(__file__).with_name("recorded.json")


class Fit(NamedTuple):
    """Recorded fit."""

    iterations: list[tuple[float, list[float]]]  # seconds of the driver, and of its tasks
    losses: list[float]

    def reports_to(self, fraction: float) -> int:
        """Return the number of reports until a fraction of its fall."""
        return iterations_to(np.array(self.losses), fraction) or len(self.losses)

    def seconds(self, first: int = 0, last: int | None = None) -> float:
        """Return the core-seconds of its tasks in some iterations."""
        return sum(sum(tasks) for _, tasks in self.iterations[first:last])


def read(path: str | Path | None = None) -> dict[str, Fit]:
    """Read the fits of a recording, by default of the one that comes along."""
    with open(path or RECORDED) as file:
        found = json.load(file)
    return {
        name: Fit([(gap, tasks or []) for gap, tasks in row["iterations"]], row["losses"])
        for name, row in found.items()
    }


def lengthen(fit: Fit, times: int) -> Fit:
    """Repeat what comes after 90 % of the fall, which then takes as many times as long."""
    k = fit.reports_to(0.9)
    tail, end = fit.iterations[k : len(fit.losses)], fit.iterations[len(fit.losses) :]
    if not tail:
        return fit
    steps = np.linspace(0, len(tail), len(tail) * times + 1)[1:]
    losses = np.interp(steps, np.arange(len(tail) + 1), fit.losses[k - 1 :])
    return Fit(fit.iterations[:k] + tail * times + end, fit.losses[:k] + losses.tolist())


class _Tasks(SchedulerPlugin):
    """Plugin that notes when tasks computed."""

    name = "benchmark-recorder"

    def __init__(self) -> None:
        self.runs: list[tuple[float, float]] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        ran = [run for run in kwargs.get("startstops") or () if run["action"] == "compute"]
        if ran:  # a key that is computed again on the same worker brings its earlier runs along
            self.runs.append((ran[-1]["start"], ran[-1]["stop"]))


def record(models: Mapping[str, tuple[str, Any]], rows: int, workers: int = 2) -> dict[str, Any]:
    """Fit estimators of dask-ml one after the other on worker processes. Returns a recording.

    `models` has the name of the data (of `rows` rows per partition) and the estimator of each fit.
    """
    from benchmarks.common import cluster as clusters
    from benchmarks.live_jobs import real_fits
    from dask_slaq import instrument
    from dask_slaq.demo.fits import compile_kmeans

    names, found = sorted({data for data, _ in models.values()}), {}
    with clusters.local_cluster(workers, processes=True) as (cluster, client):
        real_fits.publish(client, names, 0, rows)
        client.run(compile_kmeans)
        for name, (data, model) in models.items():
            tasks, reports, losses = _Tasks(), [time.time()], []
            cluster.scheduler.add_plugin(tasks, name=tasks.name)

            def publish(loss: float, reports: Any = reports, losses: Any = losses) -> None:
                reports.append(time.time())
                losses.append(loss)

            with client.as_current(), instrument(publish):
                model.fit(*client.get_dataset(data))
            cluster.scheduler.remove_plugin(tasks.name)
            print(f"{name}: {len(losses)} reports, {len(tasks.runs)} tasks", file=sys.stderr)
            if losses:
                found[name] = {
                    "iterations": _iterations(sorted(tasks.runs), [*reports, time.time()]),
                    "losses": losses,
                }
    return found


def _iterations(
    runs: Sequence[tuple[float, float]], reports: Sequence[float]
) -> list[tuple[float, list[float]]]:
    """Return for each interval between two reports the driver's seconds and those of tasks."""
    found = []
    for first, last in itertools.pairwise(reports):
        here = [run for run in runs if first <= run[0] < last]
        busy, until = 0.0, first
        for start, stop in here:
            busy += max(stop - max(start, until), 0.0)
            until = max(until, stop)
        seconds = [round(stop - start, 6) for start, stop in here]
        found.append((round(max(last - first - busy, 0.0), 6), seconds))
    return found
