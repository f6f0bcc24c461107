"""Metrics of a demo: times to a loss reduction, makespan, utilization and bytes moved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_slaq.demo.drivers import Record
from dask_slaq.demo.meters import Computation
from dask_slaq.simulation.workload import iterations_to


@dataclass(frozen=True)
class Run:
    """Run of all jobs under one policy.

    Attributes
    ----------
    policy : str
    seed : int
    threads : int
        Threads of the cluster.
    start, stop : float
        Unix seconds at which the first arrival is due and at which the last job has ended.
    records : list of Record
        One per job.
    computations : list of Computation
    bytes_moved : int
        Bytes that workers sent to each other.
    """

    policy: str
    seed: int
    threads: int
    start: float
    stop: float
    records: list[Record]
    computations: list[Computation]
    bytes_moved: int

    @property
    def makespan(self) -> float:
        """Seconds from `start` to `stop`."""
        return self.stop - self.start

    @property
    def busy(self) -> float:
        """Fraction of the available thread-seconds in which threads computed."""
        computed = sum(c.stop - c.start for c in self.computations)
        return computed / (self.threads * self.makespan) if self.makespan else 0.0


def lowest_losses(runs: Sequence[Run]) -> dict[str, float]:
    """Return the lowest loss that each job reported in any run, at which its reduction is 100 %."""
    lowest: dict[str, float] = {}
    for run in runs:
        for record in run.records:
            for _, loss in record.losses:
                name = record.training.name
                lowest[name] = min(loss, lowest.get(name, loss))
    return lowest


def remaining(record: Record, lowest: float) -> np.ndarray:
    """Return the fall still to come after each report, as a fraction of the whole fall.

    Parameters
    ----------
    record : Record
        With at least one report.
    lowest : float
        Lowest loss of the job.

    Returns
    -------
    (n_reports,) array
        Nonincreasing, since each report counts as the lowest loss so far; 0 without a fall.
    """
    losses = np.minimum.accumulate([loss for _, loss in record.losses])
    whole = losses[0] - lowest
    return (losses - lowest) / whole if whole > 0 else np.zeros(len(losses))


def seconds_to(record: Record, reduction: float, lowest: float) -> float | None:
    """Return the seconds from a job's arrival to the first report with a loss reduction.

    Parameters
    ----------
    record : Record
    reduction : float
        Fraction in [0, 1] of the fall from the first loss to `lowest`.
    lowest : float
        Lowest loss of the job.

    Returns
    -------
    float or None
        None if the job never reached it, or has nothing to fall.
    """
    if record.arrived is None:
        return None
    reached = iterations_to([loss for _, loss in record.losses], reduction, lowest)
    return None if reached is None else record.losses[reached - 1][0] - record.arrived


def figures(runs: Sequence[Run]) -> dict[str, Any]:
    """Return all metrics as written by ``--json``, with times in seconds."""
    lowest = lowest_losses(runs)
    return {"policies": {run.policy: _figures(run, lowest) for run in runs}}


def _figures(run: Run, lowest: dict[str, float]) -> dict[str, Any]:
    jobs = [_job(record, lowest.get(record.training.name, 0.0), run) for record in run.records]
    return {
        "t90_mean_s": _mean([job["t90_s"] for job in jobs]),
        "t95_mean_s": _mean([job["t95_s"] for job in jobs]),
        "makespan_s": run.makespan,
        "bytes_moved": run.bytes_moved,
        "busy_fraction": run.busy,
        "threads": run.threads,
        "jobs": jobs,
    }


def _job(record: Record, lowest: float, run: Run) -> dict[str, Any]:
    arrived, ended = record.arrived, record.ended
    return {
        "name": record.training.name,
        "seed": run.seed,
        "arrival_s": None if arrived is None else arrived - run.start,
        "iterations": len(record.losses),
        "t90_s": seconds_to(record, 0.90, lowest),
        "t95_s": seconds_to(record, 0.95, lowest),
        "completion_s": None if arrived is None or ended is None else ended - arrived,
    }


def _mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


_ROWS = (
    ("mean time to 90 % loss reduction", "t90_mean_s", "s"),
    ("mean time to 95 % loss reduction", "t95_mean_s", "s"),
    ("makespan", "makespan_s", "s"),
    ("share of time that workers compute", "busy_fraction", "%"),
    ("moved between workers", "bytes_moved", "MB"),
)


def rows(result: dict[str, Any]) -> list[list[str]]:
    """Return the cells of the comparison: a heading, then one row per metric.

    There is one column per policy. The last column is the change from the first to the last policy.
    """
    policies = result["policies"]
    cells = [["", *policies, "change" if len(policies) > 1 else ""]]
    for label, key, unit in _ROWS:
        values = [figures[key] for figures in policies.values()]
        change = _change(values) if unit == "s" else ""
        cells.append([label, *(_cell(value, unit) for value in values), change])
    return cells


def table(result: dict[str, Any]) -> str:
    """Return the comparison as a text table."""
    return "\n".join(
        (f"{label:36}" + "".join(f"{cell:>13}" for cell in cells)).rstrip()
        for label, *cells in rows(result)
    )


def _cell(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "%":
        return f"{100 * value:.0f} %"
    if unit == "MB":
        return f"{value / 1e6:.0f} MB"
    return f"{value:.1f} s"


def _change(values: Sequence[float | None]) -> str:
    first, last = values[0], values[-1]
    if len(values) < 2 or not first or last is None:
        return ""
    return f"{100 * (last / first - 1):+.0f} %"
