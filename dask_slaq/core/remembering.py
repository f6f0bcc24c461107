"""Use of past runs by an engine: the kinds of its jobs, their runs at their end, like runs."""

from __future__ import annotations

import inspect
import math

import numpy as np

from dask_slaq.core.forecast import Predictor
from dask_slaq.core.jobs.jobs import JobTable
from dask_slaq.core.run_history import Kind, PastRun, PastRuns, expected_time


class Remembering:
    """Kinds of the running jobs, and their past runs. Predictors may lack methods."""

    def __init__(self, past_runs: PastRuns | None, jobs: JobTable, predictor: Predictor) -> None:
        self.past_runs = past_runs
        self.kinds: dict[str, Kind] = {}
        self._jobs, self._predictor = jobs, predictor
        # Predictors that were written before there were kinds have no such parameter.
        parameters = inspect.signature(predictor.add).parameters.values()
        self.takes_kind = any(p.name == "kind" or p.kind is p.VAR_KEYWORD for p in parameters)

    def add(self, job: str, kind: Kind) -> None:
        """Record the kind of a job that was added, and expect running times as of like runs."""
        self.kinds[job] = kind
        if self.past_runs is not None:
            past = expected_time(self.past_runs.like(kind))
            self._jobs.runtimes.expect(self._jobs.row(job), past)

    def remove(self, job: str, outcome: str | None, ended: float) -> None:
        """Remember the run of a `job` that `ended` (Unix seconds), if it has an `outcome`."""
        if self.past_runs is not None and outcome is not None:
            run = self._run_of(job, outcome, ended)
            if run is not None:
                self.past_runs.add(run)
        self.kinds.pop(job, None)

    def _run_of(self, job: str, outcome: str, ended: float) -> PastRun | None:
        """Return what is to be remembered of a job that ends; None if nothing is known."""
        row = self._jobs.row(job)
        kind = self.kinds.get(job)
        curve_of = getattr(self._predictor, "curve", None)
        if kind is None or curve_of is None or not self._jobs.table.column["reports"][row]:
            return None
        curve = curve_of(job)
        if curve is None or not len(curve[0]):
            return None
        seen = self._jobs.runtimes
        seen.observe_iterations()
        work, width = seen.column["work"].item(row), seen.column["width"].item(row)
        return PastRun(
            job,
            kind,
            np.asarray(curve[0], np.int64),
            np.asarray(curve[1], np.float64),
            iterations=seen.column["reports"].item(row),
            outcome=outcome,
            work=work if work > 0 else math.nan,
            tasks=width if work > 0 else math.nan,
            law=tuple(seen.column["law"][row].tolist()) if seen.column["scaled"][row] else None,
            ended=ended,
        )
