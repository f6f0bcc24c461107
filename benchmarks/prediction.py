"""Prediction benchmark: forecasts of loss curves from their history alone, against rivals.

All predictors forecast 1, 5 and 10 iterations ahead from the same origins. In short curves, every
iteration from the fifth report on is an origin. In long curves, origins are dense early on and
sparse later, and each is weighted by the number of iterations that it represents. The default
predictor follows all curves as jobs of one cluster and receives every report.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from benchmarks import virtual
from benchmarks.common.curves import read
from benchmarks.common.results import give, json_option, say, table
from benchmarks.curves.generate import shipped
from benchmarks.forecasting import rivals, scores
from benchmarks.forecasting.default_predictor import DefaultForecasts, fit_seconds, forecast_all
from benchmarks.forecasting.scores import HORIZONS, Trial
from dask_slaq.lab.simulation.workload import curves as curve_files

Array = NDArray[np.float64]

DEFAULT = "dask_slaq"
#: Maximum origins per curve in a full and in a quick run, and maximum curves in a quick run.
ORIGINS, QUICK_ORIGINS, QUICK_CURVES = 40, 8, 36


# All predictors


def measure(
    trials: Sequence[Trial], names: Sequence[str], processes: int
) -> tuple[dict[str, dict[str, Array]], DefaultForecasts, dict[str, Any]]:
    """Compute the forecasts of the default predictor and of the rivals `names`.

    Returns losses (n_origins, n_horizons) by name of the predictor and id of the trial; the
    forecasts of the default predictor at every iteration; and by name ``failures``, the share of
    origins at which the last report replaced a forecast that was not finite, and
    ``seconds_per_forecast``. One process is this one.
    """
    ours = forecast_all(trials)
    tables = ours.at(trials)
    forecasts = {DEFAULT: {t.id: _mended(t, tables[t.id]) for t in trials}}
    failed, seconds = {DEFAULT: sum(_broken(table) for table in tables.values())}, {}
    seconds[DEFAULT] = ours.seconds
    for trial, record in zip(trials, _follow(trials, names, processes), strict=True):
        for name in names:
            forecasts.setdefault(name, {})[trial.id] = record.forecasts[name]
            failed[name] = failed.get(name, 0) + record.failures[name]
            seconds[name] = seconds.get(name, 0.0) + record.seconds[name]
    asked = sum(len(trial.origins) for trial in trials)
    fits = dict.fromkeys(names, asked) | {DEFAULT: sum(len(t.curve.loss) for t in trials)}
    return forecasts, ours, {
        "failures": {name: count / asked for name, count in failed.items()},
        "seconds_per_forecast": {name: float(s / fits[name]) for name, s in seconds.items()},
    }  # fmt: skip


def _broken(table: Array) -> int:
    return int((~np.isfinite(table)).any(axis=1).sum())


def _mended(trial: Trial, table: Array) -> Array:
    """Replace forecasts that are not finite by the last report."""
    return np.where(np.isfinite(table), table, trial.newest[:, None])


def _follow(trials: Sequence[Trial], names: Sequence[str], processes: int) -> list[rivals.Record]:
    tasks = [(names, trial.curve.loss, trial.origins.tolist(), HORIZONS) for trial in trials]
    if processes == 1:
        return [rivals.follow(*task) for task in tasks]
    records = []
    for _, record in virtual.run_all(rivals.follow, tasks, processes):
        records.append(record)
        if len(records) % 20 == 0:
            say(f"rivals: {len(records)} of {len(tasks)} curves")
    return records


def summarize(
    trials: Sequence[Trial],
    forecasts: dict[str, dict[str, Array]],
    ours: DefaultForecasts,
    default: str = DEFAULT,
) -> dict[str, Any]:
    """Score the results of `measure`. Returns the keys of the JSON output."""
    kinds = scores.by_kind(trials)
    predictors = {
        name: {kind: scores.score(members, tables) for kind, members in kinds.items()}
        for name, tables in forecasts.items()
    }
    result: dict[str, Any] = {
        "default": default,
        "predictors": predictors,
        "best_rival": {kind: _best_rival(predictors, default, kind) for kind in kinds},
        "curves": {
            t.id: {name: scores.mean_error(t, tables[t.id]) for name, tables in forecasts.items()}
            for t in trials
        },
    }
    band = ours.band(trials)
    bands = {kind: scores.cover(members, *band) for kind, members in kinds.items()}
    result["coverage"] = {kind: found["coverage"] for kind, found in bands.items()}
    result["band_width"] = {kind: found["width"] for kind, found in bands.items()}
    return result


def _best_rival(predictors: dict[str, Any], default: str, kind: str) -> dict[str, str]:
    """Return the name of the rival with the least mean relative error, by horizon."""
    names = [name for name in predictors if name != default]
    return {
        horizon: min(names, key=lambda name: predictors[name][kind][horizon]["mean_rel"])
        for horizon in predictors[default][kind]
        if names
    }


# Command line


class ManyFiles(click.Command):
    """Command whose `--curves` option takes all words up to the next option."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        words: list[str] = []
        taken: int | None = None  # words of `--curves` so far; None outside of it
        for word in [*args, "--"]:
            option = word.startswith("-") and word != "-"
            if option and taken == 0:
                message = "Option '--curves' requires an argument: a file or several."
                raise click.BadOptionUsage("--curves", message, ctx)
            if option:
                taken = 0 if word == "--curves" else None
            elif taken is not None:
                words.append("--curves")
                taken += 1
            if word != "--curves":
                words.append(word)
        return super().parse_args(ctx, words[:-1])


curves_option = click.option(
    "--curves",
    "files",
    multiple=True,
    metavar="FILE ...",
    help="Files of JSON lines with id and loss.  [default: those that come along]",
)


@click.command(cls=ManyFiles)
@curves_option
@click.option(
    "--origins",
    type=click.IntRange(0),
    help="Maximum number of origins per curve, 0 for all.  "
    f"[default: {ORIGINS}, {QUICK_ORIGINS} with --quick]",
)
@click.option(
    "--rivals",
    "names",
    help=f"Rivals, comma-separated, from {', '.join(rivals.RIVALS)}.  [default: all]",
)
@click.option(
    "--processes",
    default=2,
    show_default=True,
    type=click.IntRange(1),
    help="Number of processes for the rivals.",
)
@click.option("--seed", default=0, show_default=True, help="Seed of curves, trained or sampled.")
@click.option("--quick", is_flag=True, help="Fewer curves and origins; takes under a minute.")
@json_option
def main(
    files: tuple[str, ...], origins: int | None, names: str | None, processes: int, seed: int,
    quick: bool, output: str | None,
) -> None:  # fmt: skip
    """Forecast loss curves from their history with every predictor, and compare the errors."""
    chosen = _rivals(names)
    curves = _curves(files, seed, quick)
    most = (QUICK_ORIGINS if quick else ORIGINS) if origins is None else origins
    trials = scores.prepare(curves, most)
    if not trials:
        raise click.ClickException(
            f"no curve is long enough: a forecast needs {scores.FIRST + 1} points that move"
        )
    say(f"{len(trials)} curves, {sum(len(t.origins) for t in trials)} origins")
    forecasts, ours, costs = measure(trials, chosen, processes)
    if broken := costs["failures"][DEFAULT]:
        say(f"{DEFAULT} gave no finite forecast at {broken:.2%} of the origins: a bug")
    result = summarize(trials, forecasts, ours) | costs
    say("timing refits")
    result["fit_seconds"] = fit_seconds([trial.curve for trial in trials])
    result["settings"] = {
        "files": list(files), "seed": seed, "quick": quick, "origins_per_curve": most or None,
        "curves": {kind: len(members) for kind, members in scores.by_kind(trials).items()},
        "too_short": len(curves) - len(trials),
    }  # fmt: skip
    give(result, output, show(result))


def _rivals(names: str | None) -> list[str]:
    able, missing = rivals.available()
    if names is None:
        for sentence in missing:
            say(sentence)
        return able
    chosen = list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))
    for name in chosen:
        if name not in rivals.RIVALS:
            raise click.UsageError(f"unknown rival {name}: one of {', '.join(rivals.RIVALS)}")
        if name not in able:
            raise click.ClickException(next(line for line in missing if f" {name} " in line))
    return chosen


def _curves(files: tuple[str, ...], seed: int, quick: bool) -> list[curve_files.LossCurve]:
    curves = read(files) if files else shipped()
    if quick and len(curves) > QUICK_CURVES:
        return curve_files.sample(curves, QUICK_CURVES, np.random.default_rng(seed))
    return curves


# Table


def show(result: dict[str, Any]) -> str:
    """Format the result of `main` as a readable table."""
    lines = []
    for kind, count in result["settings"]["curves"].items():
        rows = []
        for name, found in result["predictors"].items():
            far = found[kind].get("10", {})
            shares = [found[kind].get(h, {}).get("mean_rel") for h in ("1", "5", "10")]
            shares += [far.get(key) for key in ("median_rel", "p95_rel", "mean_range")]
            cells = [*map(_percent, shares), far.get("reduction")]
            cells.append(1e3 * result["seconds_per_forecast"][name])
            mark = "*" if name == result["default"] else ""
            rows.append([name + mark, *cells, _percent(result["failures"][name])])
        lines += [f"{count} {kind} curves", table(HEAD, rows)]
        if band := result.get("coverage", {}).get(kind):
            parts = ", ".join(f"{_percent(share)} at {h}" for h, share in band.items())
            lines.append(f"  80 % band of {result['default']} holds {parts}")
        lines.append("")
    fits = ", ".join(f"{jobs} jobs {s:.4g} s" for jobs, s in result["fit_seconds"].items())
    lines.append(f"after a report of each: {fits} (of many, those with most news are fitted)")
    if most := result["settings"]["origins_per_curve"]:
        lines.append(f"origins: every iteration from the 5th report on, {most} or fewer a curve")
    lines.append("errors relative to the true loss, means over forecasts, curves, algorithms")
    return "\n".join(lines)


HEAD = ["predictor", "1 ahead", "5 ahead", "10 ahead", "median 10", "p95 10", "of range",
        "reduction", "ms each", "failed"]  # fmt: skip


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2%}"


if __name__ == "__main__":
    main()
