"""The default predictor under the harness of the prediction benchmark, and its speed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasting.scores import FIRST, HORIZONS, Trial
from dask_slaq.core.forecast.predictor import LossPredictor
from dask_slaq.simulation.workload.curves import Curve

__all__ = ["Heard", "fit_seconds", "listen"]

Array = NDArray[np.float64]

#: Numbers of jobs whose refit is timed.
SIZES = (1, 160, 4000, 100_000)


@dataclass(frozen=True)
class Heard:
    """What the default predictor said, by id of the trial.

    Each table is (n_iterations - FIRST, n_horizons): losses as of FIRST reports and on.

    Attributes
    ----------
    losses : dict
    lower, upper : dict
        Band of a new report.
    seconds : float
        That all of it took, reports included.
    """

    losses: dict[str, Array]
    lower: dict[str, Array]
    upper: dict[str, Array]
    seconds: float

    def at(self, trials: Sequence[Trial]) -> dict[str, Array]:
        """Forecasts at the origins of the trials, (n_origins, n_horizons)."""
        return {trial.id: self.losses[trial.id][trial.origins - FIRST] for trial in trials}

    def band(self, trials: Sequence[Trial]) -> tuple[dict[str, Array], dict[str, Array]]:
        """Lower and upper end of the band at the origins of the trials."""
        lower, upper = (
            {trial.id: side[trial.id][trial.origins - FIRST] for trial in trials}
            for side in (self.lower, self.upper)
        )
        return lower, upper


def listen(trials: Sequence[Trial], predictor: LossPredictor | None = None) -> Heard:
    """Report all curves to one predictor, fit after each iteration, and read its forecasts.

    Parameters
    ----------
    trials : sequence of Trial
        Forecasts are read at every iteration, whatever their origins.
    predictor : LossPredictor, optional
        Without jobs; the default one if not given.
    """
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
            said = _said(predictor, [trial.id for trial in going])
            for table, losses in zip(tables, said, strict=True):
                for trial, row in zip(going, losses, strict=True):
                    table[trial.id][k - FIRST] = row
    return Heard(*tables, time.perf_counter() - begin)


def _said(predictor: LossPredictor, names: list[str]) -> list[Array]:
    """Forecast and both ends of its band, each (n_jobs, n_horizons)."""
    said = predictor.forecast(names)
    return [
        np.array([np.interp(HORIZONS, said.horizons, row) for row in table])
        for table in (said.level[:, None] - said.reduction, *predictor.band(names))
    ]


def fit_seconds(
    curves: Sequence[Curve], sizes: Sequence[int] = SIZES, window: int = 32
) -> dict[str, float]:
    """Seconds of one `LossPredictor.fit`, every job having reported once since the last one.

    Of many jobs it fits those with most news only, and moves the others along.

    Parameters
    ----------
    curves : sequence of Curve
        The jobs run them in turn and have had between 5 and `window` reports.
    sizes : sequence of int
        Numbers of jobs.
    window : int
    """
    return {str(size): _refit([curves[i % len(curves)].loss for i in range(size)], window)
            for size in sizes}  # fmt: skip


def _refit(losses: Sequence[Array], window: int) -> float:
    predictor = LossPredictor()
    seen = [min(FIRST + i % (window - FIRST + 1), len(loss)) for i, loss in enumerate(losses)]
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
