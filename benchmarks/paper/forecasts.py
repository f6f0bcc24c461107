"""Figures 6a, 6b and 10a: accuracy of loss forecasts, from the prediction benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from benchmarks import prediction
from benchmarks.forecasting import scores
from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import Study

AHEAD = scores.HORIZONS
#: Methods of the figures, by their names in the benchmark.
NAMES = {
    "last-delta": "strawman",
    "paper-unweighted": "plain fit",
    "paper": "slaq2017",
    prediction.DEFAULT: "ours",
}
#: Algorithm of Figure 6a.
EXAMPLE = "linear SVM"
_FIRST = "forecasts from the 5th report on; mean over forecasts, trainings, algorithms"


def _found(study: Study) -> tuple[list[scores.Trial], dict[str, Any]]:
    """Return the trials, and the forecasts of all methods. Computed once per study."""
    if "forecasts" not in study.kept:
        trials = scores.prepare(study.smooth, study.scale.origins)
        rivals = [name for name in NAMES if name != prediction.DEFAULT]
        study.kept["forecasts"] = trials, prediction.measure(trials, rivals, study.processes)[0]
    found: tuple[list[scores.Trial], dict[str, Any]] = study.kept["forecasts"]
    return found


def traces(study: Study) -> xr.Dataset:
    """Figure 6a: the loss of one training, and what was predicted of it 10 iterations before."""
    trials, forecasts = _found(study)
    trial = max(trials, key=lambda each: (each.curve.group == EXAMPLE, len(each.origins)))
    last = AHEAD.index(10)
    values = [forecasts[name][trial.id][:, last] for name in NAMES]
    return dataset(
        {
            "loss": variable(
                ("predictor", "iteration"), [trial.truth[:, last], *values], "loss", "1"
            )
        },
        {
            "predictor": (["true loss", *NAMES.values()], "predictor", ""),
            "iteration": (trial.origins + 10, "iteration", "1"),
        },
        figure="6a",
        title="Loss as predicted 10 iterations ahead",
        setting=f"one training, {trial.curve.group}, of {study.source}",
    )


def traces_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 6a: the errors of the methods."""
    true = data["loss"].sel(predictor="true loss")
    error = (
        (abs(data["loss"] / true - 1.0) * 100.0).mean("iteration").drop_sel(predictor="true loss")
    )
    measured = "mean relative error of one training's predictions"
    return [Row(measured, "no value", by_name(error), "%")]


def _scored(study: Study) -> dict[str, dict[str, Any]]:
    trials, forecasts = _found(study)
    return {name: scores.score(trials, forecasts[name]) for name in NAMES}


def errors(study: Study) -> xr.Dataset:
    """Figure 6b: mean relative errors of predictions 1, 5 and 10 iterations ahead."""
    scored = _scored(study)
    error = [[_percent(scored[n].get(str(h), {}).get("mean_rel")) for h in AHEAD] for n in NAMES]
    return dataset(
        {"error": variable(("predictor", "ahead"), error, "mean relative error", "%")},
        {
            "predictor": (list(NAMES.values()), "predictor", ""),
            "ahead": (AHEAD, "iterations ahead", "1"),
        },
        figure="6b",
        title="Error of predicted losses",
        setting=f"full-batch trainings of {study.source}; {_FIRST}",
    )


def errors_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 6b."""
    values = by_name(data["error"].sel(ahead=10))
    measured = "mean relative error 10 iterations ahead"
    return [Row(measured, "3.5 % by the weighted fit", values, "%")]


def by_algorithm(study: Study) -> xr.Dataset:
    """Figure 10a: mean relative errors 10 iterations ahead, by algorithm."""
    scored, groups = _scored(study), list(study.groups())
    error = [
        [_percent(scored[n].get("10", {}).get("by_algorithm", {}).get(g)) for g in groups]
        for n in NAMES
    ]
    return dataset(
        {"error": variable(("predictor", "algorithm"), error, "mean relative error", "%")},
        {
            "predictor": (list(NAMES.values()), "predictor", ""),
            "algorithm": (groups, "algorithm", ""),
        },
        figure="10a",
        title="Error of the loss predicted 10 iterations ahead, by algorithm",
        setting=f"full-batch trainings of {study.source}; {_FIRST}",
    )


def by_algorithm_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 10a: the algorithm with the largest error."""
    values = by_name(data["error"].max("algorithm"))
    worst = data["error"].sel(predictor="slaq2017").fillna(0.0).idxmax("algorithm").item()
    differs = f"The weighted fit's worst here is {worst}."
    measured = "mean relative error of the worst algorithm"
    return [Row(measured, "below 5 % for each", values, "%", differs)]


def _percent(value: float | None) -> float:
    return np.nan if value is None else 100.0 * value
