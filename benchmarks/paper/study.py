"""Shared parts of all figures: sizes of a run, loss curves, and simulations in processes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from benchmarks import nine_algorithms
from dask_slaq.simulation.metrics import Run
from dask_slaq.simulation.study import Settings, job_lists, process_pool, run
from dask_slaq.simulation.workload import curves as curve_files
from dask_slaq.simulation.workload.curves import Curve
from dask_slaq.simulation.workload.simulated_jobs import calibrate

__all__ = ["FULL", "QUICK", "Scale", "Study", "Task", "largest_groups"]

#: Maximum number of groups of curves in a figure.
MOST_GROUPS = 9

#: Policy, settings of the simulation, and curves of the jobs.
Task = tuple[str, Settings, Sequence[Curve]]


@dataclass(frozen=True)
class Scale:
    """Sizes of a study."""

    made: int = 54  # curves to train if no file is given
    origins: int = 40  # most forecast origins per curve
    jobs: int = 160
    cores: int = 640
    seeds: int = 3  # lists of jobs
    sweep_seeds: int = 1  # lists of jobs per point of a sweep
    interarrival: float = 15.0  # mean seconds between arrivals
    interarrivals: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0, 2.0)  # Figure 9
    pauses: tuple[float, ...] = (0.0, 0.5, 1.0, 2.0, 4.0)  # seconds of a move, Figure 10c
    decision_jobs: tuple[int, ...] = (1000, 2000, 3000, 4000)  # Figure 10b
    decision_cores: tuple[int, ...] = (1000, 4000, 16_000)
    fits: int = 400  # timed fits of the paper's method per decision


FULL = Scale()
QUICK = Scale(
    made=27, origins=8, jobs=30, seeds=1, interarrivals=(10.0, 2.0), pauses=(0.0, 2.0),
    decision_cores=(1000, 16_000), decision_jobs=(1000, 4000), fits=50,
)  # fmt: skip


@dataclass
class Study:
    """Curves and simulations of one run of the command."""

    scale: Scale = FULL
    seed: int = 0  # of the trained curves and of the first list of jobs
    given: Sequence[Curve] | None = None  # to use instead of training curves
    processes: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    #: Cache of runs that several figures share.
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def curves(self) -> list[Curve]:
        """All curves, given or trained."""
        if self.given is not None:
            return list(self.given)
        lines = nine_algorithms.generate(self.seed, self.scale.made)
        return [curve_files.parse(line) for line in lines]

    @cached_property
    def job_curves(self) -> list[Curve]:
        """Curves that are suitable for jobs. Raises `CurveError` if there are none."""
        fit = curve_files.fit_for_jobs(self.curves)
        curve_files.sample(fit, 1, np.random.default_rng())  # raises if there are none
        return fit

    @property
    def source(self) -> str:
        """Description of the origin of the curves."""
        if self.given is not None:
            return f"{len(self.curves)} curves of the files given"
        return f"{len(self.curves)} curves of nine algorithms trained on synthetic data"

    def settings(self, interarrival: float | None = None, **more: Any) -> Settings:
        """Make settings of a simulation with the total work of the paper's setting.

        The work does not depend on the mean seconds between arrivals.
        """
        s = self.scale
        interarrival = s.interarrival if interarrival is None else interarrival
        common = {"jobs": s.jobs, "cores": s.cores, "seed": self.seed, "seeds": s.seeds}
        load = self._work / (s.cores * interarrival)
        return Settings(interarrival=interarrival, load=load, **{**common, **more})

    @cached_property
    def _work(self) -> float:
        return calibrate(self.job_curves)

    def simulate(self, tasks: Sequence[Task]) -> list[list[Run]]:
        """Simulate all tasks. Returns one run per task and seed."""
        single = [
            (policy, replace(settings, seed=seed, seeds=1), curves)
            for policy, settings, curves in tasks
            for seed in range(settings.seed, settings.seed + settings.seeds)
        ]
        found = iter(self._map(single))
        return [[next(found) for _ in range(settings.seeds)] for _, settings, _ in tasks]

    def _map(self, single: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self.processes == 1:
            return [_one(*task) for task in single]
        # Child processes read these when they load NumPy. Their matrices are too small for threads.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        with process_pool(self.processes) as pool:
            return list(pool.map(_one, *zip(*single, strict=True)))


def _one(policy: str, settings: Settings, curves: Sequence[Curve]) -> Run:
    [(seed, jobs)] = job_lists(curves, settings)
    return run(policy, seed, jobs, settings)


def largest_groups(curves: Sequence[Curve]) -> dict[str, list[Curve]]:
    """Group curves, keeping the largest groups only, in order of first appearance."""
    groups: dict[str, list[Curve]] = {}
    for curve in curves:
        groups.setdefault(curve.group, []).append(curve)
    chosen = sorted(groups, key=lambda name: -len(groups[name]))[:MOST_GROUPS]
    return {name: members for name, members in groups.items() if name in chosen}
