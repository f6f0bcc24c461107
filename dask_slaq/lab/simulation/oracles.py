"""Oracles: upper bounds on what better predictions could gain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from dask_slaq.core.errors import DuplicateJob, UnknownJob
from dask_slaq.core.forecast import FitStatus, Forecast, concave_hull
from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.jobs.jobs import JobTable
from dask_slaq.core.runtime import Runtimes, Speeds
from dask_slaq.lab.simulation.workload import Law, SimulatedJob, fastest

HORIZONS = np.append(0.0, np.unique(np.round(np.geomspace(1, 1000, 25))))


class OraclePredictor:
    """`Predictor` that knows the true losses of each job, `curves` by name."""

    def __init__(self, curves: Mapping[str, FloatArray]) -> None:
        self._best = {name: np.minimum.accumulate(loss) for name, loss in curves.items()}
        self._largest: dict[str, FloatArray] = {}
        self._count: dict[str, int] = {}
        self._dirty: set[str] = set()
        self._tables: dict[str, FloatArray] = {}

    def add(self, job: str, *, target: float | None = None) -> None:
        """Start to follow `job`. The target is ignored."""
        if job in self._count:
            raise DuplicateJob(f"job {job!r} is followed already")
        if job not in self._best:
            raise UnknownJob(f"the oracle has no curve of job {job!r}")
        self._count[job] = 0
        changes = -np.diff(self._best[job], prepend=self._best[job][0])
        self._largest[job] = np.maximum.accumulate(changes)
        self._tabulate([job])

    def remove(self, job: str) -> None:
        """Stop following `job`."""
        self.iterations(job)
        del self._count[job], self._tables[job], self._largest[job]
        self._dirty.discard(job)

    def report(self, job: str, loss: float) -> None:
        """Count one iteration of `job`; the reported loss is ignored."""
        self._count[job] = self.iterations(job) + 1
        self._dirty.add(job)

    def fit(self) -> int:
        """Update the forecasts of jobs with new reports. Returns the number of these jobs."""
        changed = len(self._dirty)
        self._tabulate(sorted(self._dirty))
        self._dirty.clear()
        return changed

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the true future of `jobs` as forecasts, in that order."""
        counts = np.array([self.iterations(job) for job in jobs], dtype=np.int64)
        level = np.array([self._now(job) for job in jobs])
        # With fewer than two reports there is no change yet: use the first one to come.
        largest = [self._largest[job] for job in jobs]
        at = [min(max(n - 1, 1), len(all_) - 1) for n, all_ in zip(counts, largest, strict=True)]
        return Forecast(
            horizons=HORIZONS,
            reduction=np.array([self._tables[job] for job in jobs]).reshape(-1, len(HORIZONS)),
            start=np.array([self._best[job][0] for job in jobs]),
            level=level,
            remaining=level - np.array([self._best[job][-1] for job in jobs]),
            largest_change=np.array([all_[k] for all_, k in zip(largest, at, strict=True)]),
            noise=np.zeros(len(jobs)),
            n_reports=counts,
            status=np.full(len(jobs), int(FitStatus.OK)),
        )

    def iterations(self, job: str) -> int:
        """Return the number of iterations that `job` has reported."""
        if job not in self._count:
            raise UnknownJob(f"job {job!r} is not followed")
        return self._count[job]

    def _now(self, job: str) -> float:
        """Return the lowest true loss so far; before any report, that of the first iteration."""
        best = self._best[job]
        return float(best[min(max(self._count[job] - 1, 0), len(best) - 1)])

    def _tabulate(self, jobs: Sequence[str]) -> None:
        """Store the concave hulls of the true falls of `jobs` over the horizons."""
        falls = np.zeros((len(jobs), len(HORIZONS)))
        for row, job in enumerate(jobs):
            best = self._best[job]
            at = np.clip(self._count[job] - 1 + HORIZONS.astype(int), 0, len(best) - 1)
            falls[row] = self._now(job) - best[at]
        self._tables.update(zip(jobs, concave_hull(HORIZONS, falls), strict=True))


class KnownTimes(Runtimes):
    """True running times by a `law`, in place of those that `Runtimes` learns."""

    def __init__(
        self, running: JobTable, jobs: Sequence[SimulatedJob], law: Law, cores: int
    ) -> None:
        super().__init__()
        self._running, self._law, self._fastest = running, law, fastest(law, cores)
        self._row = {job.name: i for i, job in enumerate(jobs)}

    def learn(self, rows: IntArray) -> None:
        """Do nothing, as everything is known."""

    def speeds(self, rows: IntArray) -> Speeds:
        """Return the true speeds of `rows`, which must be all running jobs in order of name."""
        at = np.array([self._row[name] for name in self._running.order().names], dtype=np.int64)
        most = self._fastest[at]
        scaled, theta = np.arange(0), np.zeros((0, 4))
        if self._law.terms is not None:
            scaled, theta = np.arange(len(at)), self._law.terms[at]
        return Speeds(self._law.work[at], most, most, scaled, theta)
