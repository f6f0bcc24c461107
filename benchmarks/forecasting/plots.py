"""Plots of the prediction benchmark, modeled on Figure 6 of the paper."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import fill
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.forecasting.scores import HORIZONS, Trial, by_kind

__all__ = ["write"]

Array = NDArray[np.float64]
Forecasts = Mapping[str, Mapping[str, Array]]
Band = tuple[Mapping[str, Array], Mapping[str, Array]] | None

AHEAD = HORIZONS[-1]
DEFAULT_COLOR, RIVAL_COLOR, PAPER_COLOR, TRUTH_COLOR = "#c1121f", "#8d99ae", "#2a6f97", "black"


def write(
    folder: str | Path,
    trials: Sequence[Trial],
    forecasts: Forecasts,
    band: Band,
    result: Mapping[str, Any],
) -> int:
    """Write `summary.png`, and one plot per algorithm and kind. Returns the number of files.

    `forecasts` and `result` are those of the benchmark; `band` has the lower and upper ends of the
    default predictor's band, by id of the trial.
    """
    import matplotlib

    matplotlib.use("Agg")
    target = Path(folder)
    target.mkdir(parents=True, exist_ok=True)
    kinds = by_kind(trials)
    _summary(target / "summary.png", result, list(kinds))
    written = 1
    for kind, members in kinds.items():
        for group in sorted({trial.curve.group for trial in members}):
            of_group = [trial for trial in members if trial.curve.group == group]
            shown = _typical(of_group, result)
            if shown is not None:
                name = re.sub(r"[^a-z0-9]+", "-", group.lower()).strip("-")
                _algorithm(target / f"{name}-{kind}.png", shown, kind, forecasts, band, result)
                written += 1
    return written


def _typical(trials: Sequence[Trial], result: Mapping[str, Any]) -> Trial | None:
    """Return the trial on which the default predictor has its median error."""
    default = result["default"]
    errors = [(result["curves"][t.id][default], t) for t in trials]
    known = sorted((e, t.id) for e, t in errors if e is not None)
    if not known:
        return None
    middle = known[(len(known) - 1) // 2][1]
    return next(trial for trial in trials if trial.id == middle)


def _colors(names: Sequence[str], default: str) -> list[str]:
    known = {default: DEFAULT_COLOR, "paper": PAPER_COLOR}
    return [known.get(name, RIVAL_COLOR) for name in names]


def _algorithm(
    path: Path,
    trial: Trial,
    kind: str,
    forecasts: Forecasts,
    band: Band,
    result: Mapping[str, Any],
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.2), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=[2, 1])
    group = trial.curve.group
    _curve(left, trial, forecasts, band, result["default"])
    errors = {
        name: found[kind][str(AHEAD)]["by_algorithm"].get(group)
        for name, found in result["predictors"].items()
    }
    _bars(right, {name: e for name, e in errors.items() if e is not None}, result["default"])
    right.set_title(fill(f"all {kind} curves of {group}", 40), fontsize=10)
    figure.savefig(path, dpi=100)


def _curve(
    axes: Any,
    trial: Trial,
    forecasts: Forecasts,
    band: Band,
    default: str,
) -> None:
    loss, at = trial.curve.loss, trial.origins + AHEAD
    inside = at <= len(loss)
    axes.plot(np.arange(1, len(loss) + 1), loss, color=TRUTH_COLOR, lw=1.2, label="true loss")
    if band is not None:
        ends = (side[trial.id][inside, -1] for side in band)
        style = {"color": DEFAULT_COLOR, "alpha": 0.15, "lw": 0}
        axes.fill_between(at[inside], *ends, label="80 % band", **style)
    for name, color, marker in (("paper", PAPER_COLOR, "x"), (default, DEFAULT_COLOR, ".")):
        if name in forecasts:
            predicted = forecasts[name][trial.id][inside, -1]
            axes.plot(at[inside], predicted, marker, color=color, ms=4, lw=0, label=name)
    _frame(axes, loss)
    axes.set(xlabel="iteration", ylabel="loss (units of the run)")
    axes.set_title(f"{trial.id}: forecast {AHEAD} iterations before", fontsize=10)
    axes.legend(fontsize=8, frameon=False)


def _frame(axes: Any, loss: Array) -> None:
    """Limit the axis to the loss, whatever the forecasts. Use a log scale for several decades."""
    low, high = loss.min(), loss.max()
    if low > 0 and high / low > 50:
        axes.set_yscale("log")
        axes.set_ylim(low / 1.5, high * 1.5)
    else:
        margin = 0.15 * (high - low)
        axes.set_ylim(low - margin, high + margin)


def _bars(axes: Any, errors: Mapping[str, float], default: str) -> None:
    names = sorted(errors, key=lambda name: errors[name], reverse=True)
    values = [100 * errors[name] for name in names]
    bars = axes.barh(names, values, color=_colors(names, default))
    labels = [f"{value:.2g}" if value < 100 else f"{value:.0f}" for value in values]
    axes.bar_label(bars, labels, fontsize=8, padding=2)
    if min(values) > 0 and max(values) / min(values) > 50:
        axes.set_xscale("log")
    axes.margins(x=0.15)
    axes.set_xlabel(f"mean relative error {AHEAD} iterations ahead, %")
    axes.spines[["top", "right"]].set_visible(False)


def _summary(path: Path, result: Mapping[str, Any], kinds: Sequence[str]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(kinds), 3.6), layout="constrained")
    for axes, kind in zip(np.atleast_1d(figure.subplots(1, len(kinds))), kinds, strict=True):
        far = {n: found[kind].get(str(AHEAD)) for n, found in result["predictors"].items()}
        errors = {name: figures["mean_rel"] for name, figures in far.items() if figures}
        if errors:
            _bars(axes, errors, result["default"])
        axes.set_title(f"{result['settings']['curves'][kind]} {kind} curves", fontsize=10)
    figure.savefig(path, dpi=100)
