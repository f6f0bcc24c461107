"""Figure 6: accuracy of loss forecasts, from the prediction benchmark."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from benchmarks import prediction
from benchmarks.forecasting import scores
from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import Study, largest_groups

__all__ = ["NAMES", "errors", "errors_rows", "forecasts_of"]

AHEAD = scores.HORIZONS[-1]
#: Names of the predictors in figures, by their names in the benchmark.
NAMES = {
    prediction.DEFAULT: "ours",
    "paper": "the paper's fits",
    "last-delta": "last change goes on",
}
_PAPER = (
    "3.5 % on average, each under 5 %; the authors' data: weighted fits 0.04 to 8.5 % (MLP), last "
    "change 0.1 to 52.5 %"
)


def forecasts_of(study: Study, trials: list[scores.Trial]) -> dict[str, Any]:
    """Forecast with all predictors of `NAMES`. See `benchmarks.prediction.measure`."""
    rivals = [name for name in NAMES if name != prediction.DEFAULT]
    forecasts, *_ = prediction.measure(trials, rivals, study.processes)
    return forecasts


def errors(study: Study) -> xr.Dataset:
    """Figure 6: relative errors of forecasts, by algorithm and predictor."""
    trials = scores.prepare(study.curves, study.scale.origins)
    forecasts = forecasts_of(study, trials)
    kinds = scores.by_kind(trials)
    found = {
        (name, kind): scores.score(members, forecasts[name]).get(str(AHEAD), {})
        for name in NAMES
        for kind, members in kinds.items()
    }
    groups = list(largest_groups([trial.curve for trial in trials]))
    error = [
        [[_percent(found[n, k].get("by_algorithm", {}).get(g)) for g in groups] for k in kinds]
        for n in NAMES
    ]
    mean = [[_percent(found[n, k].get("mean_rel")) for k in kinds] for n in NAMES]
    return dataset(
        {
            "error": variable(
                ("predictor", "kind", "algorithm"), error, "mean relative error", "%"
            ),
            "mean_error": variable(
                ("predictor", "kind"), mean, "mean relative error of all algorithms", "%"
            ),
        },
        {
            "predictor": (list(NAMES.values()), "predictor", ""),
            "kind": (list(kinds), "kind of curve", ""),
            "algorithm": (groups, "algorithm", ""),
        },
        figure="6",
        title=f"Error of the loss that is forecast {AHEAD} iterations ahead",
        shows="prediction error of the loss 10 iterations ahead, by algorithm, "
        "SLAQ against a strawman",
        setting=f"{study.source}; forecasts from the 5th report on, {AHEAD} iterations ahead; "
        "mean over forecasts, curves, algorithms",
    )


def _percent(value: float | None) -> float:
    return np.nan if value is None else 100.0 * value


def errors_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 6."""
    rows = []
    for kind in data["kind"].values.tolist():
        ours = by_name(data["mean_error"].sel(kind=kind))
        measured = f"mean relative error {AHEAD} iterations ahead, {kind} curves"
        rows.append(Row("6", measured, _PAPER, ours, "%", data.attrs["setting"]))
    return rows
