"""Figure 10a: losses that are not convex, from neural networks."""

from __future__ import annotations

import numpy as np
import xarray as xr

from benchmarks import nine_algorithms
from benchmarks.forecasting import scores
from benchmarks.paper.datasets import NOT_STATED, Row, by_name, dataset, variable
from benchmarks.paper.forecasts import AHEAD, NAMES, forecasts_of
from benchmarks.paper.quality import less
from benchmarks.paper.study import Study
from dask_slaq.simulation.workload import curves as curve_files
from dask_slaq.simulation.workload.curves import Curve

__all__ = ["networks", "networks_rows"]

ALGORITHM = "MLP classifier"
#: Number of curves of networks to train if the study has no suitable ones.
CURVES = 5
POLICIES = ("fair", "max-total")
REDUCTIONS = (25.0, 50.0, 75.0, 80.0, 85.0, 90.0, 95.0)


def networks(study: Study) -> xr.Dataset:
    """Figure 10a: forecasts of one network's loss, and a cluster that trains networks only."""
    curves = _curves(study)
    trials = scores.prepare([curve for curve in curves if not curve.noisy])
    forecasts = forecasts_of(study, trials)
    shown = trials[0]
    of_all = [scores.score(trials, forecasts[name])[str(AHEAD)]["mean_rel"] for name in NAMES]
    iteration = np.arange(1, len(shown.curve.loss) + 1)
    settings = study.settings(seeds=study.scale.sweep_seeds)
    runs = study.simulate([(p, settings, curve_files.fit_for_jobs(curves)) for p in POLICIES])
    seconds = [
        [np.nanmean(np.concatenate([r.time_to(x / 100.0) for r in some])) for x in REDUCTIONS]
        for some in runs
    ]
    return dataset(
        {
            "loss": variable(("iteration",), shown.curve.loss, "loss", "of the run"),
            "forecast": variable(
                ("predictor", "iteration"),
                [_at(shown, forecasts[name][shown.id], len(iteration)) for name in NAMES],
                f"loss forecast {AHEAD} iterations before", "of the run",
            ),
            "mean_error": variable(
                ("predictor",), 100.0 * np.array(of_all), "mean relative error", "%"
            ),
            "seconds": variable(
                ("policy", "reduction"), seconds, "mean time since arrival", "s"
            ),
        },
        {
            "iteration": (iteration, "iteration", "1"),
            "predictor": (list(NAMES.values()), "predictor", ""),
            "policy": (list(POLICIES), "policy", ""),
            "reduction": (REDUCTIONS, "loss reduction", "% of the whole"),
        },
        figure="10a",
        title="Losses that are not convex",
        shows="robustness with losses that are not convex",
        setting=f"left: {shown.id}, forecasts {AHEAD} iterations ahead from the 5th report on; "
        f"errors: {len(trials)} smooth curves of networks; right, simulated: "
        f"{study.scale.jobs} jobs that all train networks ({len(curves)} curves), "
        f"{study.scale.cores} cores, Poisson arrivals, "
        f"mean {study.scale.interarrival:g} s, linear scaling, "
        f"lists of jobs: {study.scale.sweep_seeds}",
    )  # fmt: skip


def _curves(study: Study) -> list[Curve]:
    """Return the study's curves of networks, or train some."""
    found = [curve for curve in study.curves if curve.group == ALGORITHM]
    if any(not curve.noisy for curve in found) and curve_files.fit_for_jobs(found):
        return found
    lines = (nine_algorithms.train(ALGORITHM, k, study.seed) for k in range(CURVES))
    return [curve_files.parse(line) for line in lines]


def _at(trial: scores.Trial, forecasts: np.ndarray, count: int) -> np.ndarray:
    """Return the forecasts (count,) by the iteration that they predict; nan elsewhere."""
    found = np.full(count, np.nan)
    at = trial.origins - 1 + AHEAD
    found[at[at < count]] = forecasts[at < count, -1]
    return found


def networks_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 10a."""
    setting = data.attrs["setting"]
    errors = by_name(data["mean_error"])
    measured = f"mean relative error {AHEAD} iterations ahead, networks"
    rows = [Row("10a", measured, "8.5 % in the authors' data (MLP)", errors, "%", setting)]
    for percent in (90.0, 95.0):
        measured = f"mean time to {percent:.0f} % of the loss reduction, less than under fair by"
        seconds = data["seconds"].sel(reduction=percent)
        rows.append(Row("10a", measured, NOT_STATED, less(seconds), "%", setting))
    return rows
