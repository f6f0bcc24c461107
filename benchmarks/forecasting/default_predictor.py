"""Forecasts of the default predictor for the prediction benchmark, and the time of its fits."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasting.scores import FIRST, HORIZONS, Trial
from dask_slaq.core.forecast import LossPredictor
from dask_slaq.lab.simulation.workload.curves import LossCurve

Array = NDArray[np.float64]

#: Numbers of jobs for which a refit is timed.
SIZES = (1, 160, 4000, 100_000)
#: Most reports of such a job before the fit.
MOST_SEEN = 32


@dataclass(frozen=True)
class DefaultForecasts:
    """Forecasts of the default predictor, by id of the trial.

    Each table (n_iterations - FIRST, n_horizons) starts with the forecast after FIRST reports.
    `lower` and `upper` are the ends of the band of a new report; `seconds` is the total time,
    including the reports.
    """

    losses: dict[str, Array]
    lower: dict[str, Array]
    upper: dict[str, Array]
    seconds: float

    def at(self, trials: Sequence[Trial]) -> dict[str, Array]:
        """Return the forecasts at the origins of the trials, (n_origins, n_horizons) each."""
        return {trial.id: self.losses[trial.id][trial.origins - FIRST] for trial in trials}

    def band(self, trials: Sequence[Trial]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Return the lower and upper ends of the band at the origins of the trials."""
        lower, upper = (
            {trial.id: side[trial.id][trial.origins - FIRST] for trial in trials}
            for side in (self.lower, self.upper)
        )
        return lower, upper


def forecast_all(
    trials: Sequence[Trial], predictor: LossPredictor | None = None
) -> DefaultForecasts:
    """Report all curves to one predictor, fit after each iteration, and record its forecasts."""
    predictor = LossPredictor() if predictor is None else predictor
    begin = time.perf_counter()
    tables: tuple[dict[str, Array], ...] = ({}, {}, {})
    for trial in trials:
        predictor.add(trial.id)
        for table in tables:
            table[trial.id] = np.full((len(trial.curve.loss) - FIRST, len(HORIZONS)), np.nan)
    for k in range(1, max(len(trial.curve.loss) for trial in trials)):
        going = [trial for trial in trials if k < len(trial.curve.loss)]
        for trial in going:
            predictor.report(trial.id, trial.curve.loss[k - 1])
        predictor.fit()
        if k >= FIRST:
            found = _forecast(predictor, [trial.id for trial in going])
            for table, losses in zip(tables, found, strict=True):
                for trial, row in zip(going, losses, strict=True):
                    table[trial.id][k - FIRST] = row
    return DefaultForecasts(*tables, time.perf_counter() - begin)


def _forecast(predictor: LossPredictor, names: list[str]) -> list[Array]:
    """Return the forecast and both ends of its band, (n_jobs, n_horizons) each."""
    forecast = predictor.forecast(names)
    return [
        np.array([np.interp(HORIZONS, forecast.horizons, row) for row in table])
        for table in (forecast.level[:, None] - forecast.reduction, *predictor.band(names))
    ]


def fit_seconds(curves: Sequence[LossCurve], sizes: Sequence[int] = SIZES) -> dict[str, float]:
    """Return the median seconds of a fit after one more report of each job, by number of jobs.

    With many jobs, a fit refits only those with the highest priority, and rolls the forecasts of
    the others forward. Jobs have up to `MOST_SEEN` reports before it.
    """
    return {
        str(size): _refit([curves[i % len(curves)].loss for i in range(size)]) for size in sizes
    }


def _refit(losses: Sequence[Array]) -> float:
    predictor = LossPredictor()
    seen = [min(FIRST + i % (MOST_SEEN - FIRST + 1), len(loss)) for i, loss in enumerate(losses)]
    for i, (loss, count) in enumerate(zip(losses, seen, strict=True)):
        predictor.add(str(i))
        for value in loss[:count]:
            predictor.report(str(i), value)
    predictor.fit()
    times = []
    for turn in range(5 if len(losses) < 10_000 else 1):
        for i, (loss, count) in enumerate(zip(losses, seen, strict=True)):
            predictor.report(str(i), loss[min(count + turn, len(loss) - 1)])
        start = time.perf_counter()
        predictor.fit()
        times.append(time.perf_counter() - start)
    return float(np.median(times))
