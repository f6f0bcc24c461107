"""Errors of forecasts with and without a memory of past runs, by the number of reports."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.common.results import table
from benchmarks.memory.jobs import RepeatedJobs
from dask_slaq.core.forecast import LossPredictor
from dask_slaq.core.run_history import PastRuns

#: Numbers of reports at which forecasts are scored, and iterations ahead.
REPORTS, AHEAD = (0, 1, 3, 5, 10), 10
#: Errors count up to this many ranges of the job's curve.
WORST = 3.0


def errors(lists: Sequence[RepeatedJobs], scenario: str | None) -> dict[str, dict[str, float]]:
    """Return the mean absolute errors of forecast falls, relative to the range of the curve.

    They are ``ahead`` (`AHEAD` iterations ahead) and ``end`` (to the end), by number of reports.
    The scenario is what the memory holds, None for no memory. Before the first report a forecast is
    in units of the range. Without a memory there is none: the engine assumes that a job falls by
    k / (k + 10) of its range in k iterations.
    """
    found: dict[int, list[tuple[float, float]]] = {k: [] for k in REPORTS}
    for listed in lists:
        memory = None
        if scenario is not None:
            memory = PastRuns()
            for run in listed.memory[scenario]:
                memory.add(run)
        predictor = LossPredictor(memory)
        for job in listed.jobs:
            predictor.add(job.name, kind=listed.kinds[job.name])
            for k in range(min(REPORTS[-1] + 1, len(job.loss))):
                if k:
                    predictor.report(job.name, float(job.reports[k - 1]))
                    predictor.fit()
                if k in found:
                    found[k].append(_errors(predictor, job, k))
            predictor.remove(job.name)
    means = {k: np.mean(pairs, axis=0) for k, pairs in found.items() if pairs}
    return {
        name: {str(k): float(mean[i]) for k, mean in means.items()}
        for i, name in enumerate(("ahead", "end"))
    }


def _errors(predictor: LossPredictor, job: Any, k: int) -> tuple[float, float]:
    best = np.minimum.accumulate(job.loss)
    size = best[0] - best[-1]
    now, last = max(k - 1, 0), len(best) - 1
    true = (best[now] - best[min(k - 1 + AHEAD, last)]) / size, (best[now] - best[-1]) / size
    forecast = predictor.forecast([job.name])
    fall, rest = forecast.reduction[0], float(forecast.remaining[0])
    if k == 0 and rest == 0:
        fall, rest = forecast.horizons / (forecast.horizons + 10.0), 1.0
    unit = 1.0 if k == 0 else size
    said = float(np.interp(AHEAD, forecast.horizons, fall)) / unit, rest / unit
    return min(abs(said[0] - true[0]), WORST), min(abs(said[1] - true[1]), WORST)


def show(found: dict[str, dict[str, dict[str, dict[str, float]]]]) -> str:
    """Format errors by noise and memory as a table, in percent of the range."""
    rows = []
    for noise, by_memory in found.items():
        for which, by_horizon in by_memory.items():
            for horizon, by_reports in by_horizon.items():
                what = f"{AHEAD} ahead" if horizon == "ahead" else "to the end"
                cells = [100 * by_reports.get(str(k), np.nan) for k in REPORTS]
                rows.append([f"{noise}, {which}, {what}", *cells])
    return table(["error in % of the range, by reports", *map(str, REPORTS)], rows)
