"""Shared parts of all figures: sizes of a run, loss curves, and simulations in processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from benchmarks.curves.generate import ALGORITHMS, shipped
from dask_slaq.lab.simulation.study import Settings, run_all
from dask_slaq.lab.simulation.workload import curves as curve_files
from dask_slaq.lab.simulation.workload.curves import LossCurve
from dask_slaq.lab.simulation.workload.simulated_jobs import calibrate

#: Iterations of a job. In the paper a job has converged at the loss of its 100th iteration.
CONVERGED = 100
#: The default policy.
OURS = "first-to-target"
POLICIES = ("fair", "slaq2017", OURS)


@dataclass(frozen=True)
class Scale:
    """Sizes of a study."""

    curves: int = 200  # most curves if no file is given
    origins: int = 40  # most forecast origins per curve
    jobs: int = 160
    cores: int = 640
    seeds: int = 3  # lists of jobs
    sweep_seeds: int = 1  # lists of jobs per point of Figure 9
    interarrival: float = 15.0  # mean seconds between arrivals
    interarrivals: tuple[float, ...] = (10.0, 8.0, 6.0, 4.0, 2.0)  # Figure 9
    one_job: int = 60  # jobs of the list in which Figure 3 follows one
    ladder_jobs: int = 160  # of the table of changes
    workers: tuple[int, ...] = (1, 2, 4, 8)  # Figure 10b
    model_bytes: tuple[int, ...] = (10_000, 100_000, 1_000_000, 10_000_000)
    iterations: int = 4
    decision_jobs: tuple[int, ...] = (1000, 2000, 3000, 4000)  # Figure 10c
    decision_cores: tuple[int, ...] = (1000, 4000, 16_000)


FULL = Scale()
QUICK = Scale(
    curves=27, origins=6, jobs=24, seeds=1, interarrivals=(10.0, 4.0, 2.0), one_job=12,
    ladder_jobs=12,
    workers=(1, 2), model_bytes=(10_000, 10_000_000), iterations=2,
    decision_cores=(1000, 16_000), decision_jobs=(500, 1000),
)  # fmt: skip


@dataclass
class Study:
    """Curves and simulations of one run of the command."""

    scale: Scale = FULL
    seed: int = 0  # of the first list of jobs
    given: Sequence[LossCurve] | None = None  # to use instead of those that come along
    processes: int = field(default_factory=lambda: min(2, os.cpu_count() or 1))
    #: Cache of runs that several figures share.
    kept: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def curves(self) -> list[LossCurve]:
        """All curves, given or of the nine algorithms among those that come along."""
        if self.given is not None:
            return list(self.given)
        nine = [curve for curve in shipped() if curve.group in ALGORITHMS]
        return nine[: self.scale.curves]

    @cached_property
    def smooth(self) -> list[LossCurve]:
        """Curves without noise: in the paper all data is used in each iteration."""
        return [curve for curve in self.curves if not curve.noisy] or self.curves

    @cached_property
    def job_curves(self) -> list[LossCurve]:
        """Smooth curves up to the 100th iteration. Raises `CurveError` if none suits a job."""
        cut = [replace(curve, loss=curve.loss[:CONVERGED]) for curve in self.smooth]
        if not (fit := curve_files.fit_for_jobs(cut)):
            raise curve_files.CurveError("no curve is smooth and falls enough to be a job's")
        return fit

    @property
    def source(self) -> str:
        """Description of the origin of the curves."""
        if self.given is not None:
            return f"{len(self.curves)} curves of the files given"
        return f"{len(self.curves)} curves of nine algorithms that come along"

    def groups(self) -> dict[str, LossCurve]:
        """Return the first smooth curve of each algorithm."""
        found: dict[str, LossCurve] = {}
        for curve in self.smooth:
            found.setdefault(curve.group, curve)
        return found

    def settings(self, interarrival: float | None = None, **more: Any) -> Settings:
        """Make settings of a simulation, with the load of the paper's setting."""
        s = self.scale
        common = {"jobs": s.jobs, "cores": s.cores, "seed": self.seed, "seeds": s.seeds}
        given = {"interarrival": interarrival or s.interarrival, "load": self.load}
        return Settings(**{**common, **given, **more})

    @cached_property
    def load(self) -> float:
        """Core-seconds that arrive in a core-second in the paper's setting."""
        return self.load_of(self.job_curves)

    def load_of(self, curves: Sequence[LossCurve]) -> float:
        """Return the load with which jobs of some curves take as long as in the paper."""
        return calibrate(curves) / (FULL.cores * FULL.interarrival)

    def simulate(
        self,
        function: Callable[..., Any],
        tasks: Sequence[tuple[str, Settings]],
        curves: Sequence[LossCurve] | None = None,
    ) -> list[list[Any]]:
        """Return what a function of policy, settings and curves finds, per task and seed."""
        every = [
            (policy, replace(settings, seed=seed, seeds=1), curves or self.job_curves)
            for policy, settings in tasks
            for seed in range(settings.seed, settings.seed + settings.seeds)
        ]
        # Child processes read these when they load NumPy. Their matrices are too small for threads.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        found = iter(run_all(function, every, self.processes))
        return [[next(found) for _ in range(settings.seeds)] for _, settings in tasks]

    def describe(self, arrivals: str | None = None) -> str:
        """Describe the setting of simulations in words."""
        s = self.scale
        arrivals = arrivals or f"mean {s.interarrival:g} s, lists of jobs: {s.seeds}"
        return (
            f"simulated: {s.jobs} jobs of {CONVERGED} iterations at most, {s.cores} cores, Poisson "
            f"arrivals, {arrivals}; linear scaling; full-batch curves among {self.source}; work "
            "such that fair takes about 71 s to 90 % and 98 s to 95 % with 160 jobs that arrive "
            "every 15 s"
        )
