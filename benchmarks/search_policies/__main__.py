"""``python -m benchmarks.search_policies``: when the best models of a search are ready, by policy.

A simulation replays grids of loss curves in random orders. The rules of `slaq.search` are those of
the package, on workers that a model cannot leave (`search`, `prune`) or can (`states`); the others
may train any model on any thread at any step. The grids are trained first, within a few minutes.
"""

from __future__ import annotations

import math
import os
import statistics
from collections.abc import Iterable
from functools import cache
from typing import Any

import click
import numpy as np

from benchmarks.common import results
from benchmarks.common.results import Names, give, json_option, say, table
from benchmarks.search_policies.grids import Grid, read_grids
from benchmarks.search_policies.replay import Event, Forecasts, Replay
from benchmarks.search_policies.rivals import RIVALS, run
from dask_slaq.core.trials import PastModel

#: Settings of `Replay`, by policy.
OURS: dict[str, dict[str, Any]] = {
    "search": {},
    "prune": {"prune": True},
    "bold": {"prune": "bold"},
    "states": {"leave": True},
}
#: A search that knows an earlier one of the same models: noise of their places in it, whose
#: differences are uniform otherwise (0.25: a rank correlation of 0.76), as their data changed.
PAST = {"again": 0.0, "changed": 0.25, "misled": math.inf}
POLICIES = ("plain", *OURS, *PAST, *(name for name in RIVALS if name != "plain"))
#: A model is near the best if its final loss is above it by less than this part of the `Grid.span`.
NEAR = 0.01
FIGURES = (
    *("best", "near", "top5", "all", "oracle", "lost", "regret25", "core_s", "worst", "kept5"),
    *("area", "first"),
)
NOTES = (
    "best, near, top5, all: time until the best model, one within 1 % of it, the best five and all",
    "are ready, over plain's mean; worst: the latest best of any order; oracle: best over the",
    "oracle's; lost: share of orders in which the best is never ready; kept5: of the best five;",
    "regret25: of the best model ready after a quarter of plain's time; core_s: over plain's;",
    "area: regret of the best ready model in plain's whole time; first: any is ready; of plain's",
)


def measure(grid: Grid, events: list[Event], whole: float) -> dict[str, float]:
    """Compute the figures of one order, in which plain takes the time `whole`.

    ``best``, ``near``, ``top5``, ``all``: mean steps until these are ready, inf if they never are;
    ``regret25``: distance of the best model that is ready at a quarter of `whole` from the best of
    all, in spans of the grid, at most 1; ``area``: its mean until `whole`; ``first``: mean steps
    until any is ready; ``core_s``: mean steps that were computed; ``kept5``: how many of the best
    five were ready at last.
    """
    ready = {event.model: event.time for event in events if event.done}
    top, best = grid.ranked[:5], grid.final[grid.ranked[0]]
    near = [time for m, time in ready.items() if grid.final[m] <= best + NEAR * grid.span]
    regrets = np.minimum.accumulate([1.0, *((grid.final[m] - best) / grid.span for m in ready)])
    times = np.array([0.0, *ready.values()])
    return {
        "best": ready.get(top[0], math.inf),
        "near": min(near, default=math.inf),
        "top5": max(ready.get(m, math.inf) for m in top),
        "all": events[-1].time,
        "regret25": regrets[np.searchsorted(times, whole / 4, "right") - 1],
        "area": np.diff(np.minimum([*times, whole], whole)) @ regrets / whole,
        "first": min(ready.values(), default=math.inf),
        "core_s": sum(grid.seconds[event.model] for event in events),
        "kept5": sum(m in ready for m in top),
    }


def compare(
    grid: Grid, policies: Iterable[str], orders: int, workers: int, threads: int
) -> dict[str, dict[str, float | None]]:
    """Return the figures of each policy on a grid: see `NOTES`."""
    forecasts = Forecasts(grid)
    some = grid.orders(orders)

    def replay(order: list[int], **more: Any) -> Replay:
        return Replay(grid, forecasts, order, workers=workers, threads=threads, **more)

    @cache
    def first(order: tuple[int, ...]) -> list[PastModel]:
        search = replay(sorted(order, key=lambda model: hash((model, order))))
        search.run()
        return search.trials.ranks()

    def events(policy: str, order: list[int]) -> list[Event]:
        if policy in OURS:
            return replay(order, **OURS[policy]).run()
        if policy in PAST:
            past = changed(first(tuple(order)), PAST[policy])
            place = {model.params["model"]: model.rank for model in past}
            return replay(sorted(order, key=lambda m: place.get(m, 0.5)), past=past).run()
        return run(RIVALS[policy](grid, order), workers * threads)

    def runs(policy: str) -> list[dict[str, float]]:
        return [measure(grid, events(policy, o), whole) for o in some]

    whole = statistics.fmean(events("plain", order)[-1].time for order in some)
    plain, oracle = runs("plain"), runs("oracle")
    return {name: _summary(runs(name), plain, oracle) for name in policies}


def changed(past: list[PastModel], noise: float) -> list[PastModel]:
    """Return models with their places in another search, as if its data were others'."""
    chance = np.random.default_rng(len(past))
    old = np.array([model.rank for model in past])
    new = np.argsort(np.argsort(old + min(noise, 1e9) * chance.standard_normal(len(past))))
    return [
        model._replace(rank=float(at) / (len(past) - 1))
        for model, at in zip(past, new, strict=True)
    ]


def _summary(
    runs: list[dict[str, float]], plain: list[dict[str, float]], oracle: list[dict[str, float]]
) -> dict[str, float | None]:
    base = {key: _mean(one[key] for one in plain) or 1.0 for key in plain[0]}
    found: dict[str, float | None] = {}
    for key in ("best", "near", "top5", "all", "core_s", "area", "first"):
        mean = _mean(one[key] for one in runs)
        found[key] = None if mean is None else mean / base[key]
    kept = [one["best"] for one in runs if one["best"] < math.inf]
    best, least = _mean(kept), _mean(one["best"] for one in oracle)
    found["oracle"] = None if best is None or not least else best / least
    found["lost"] = 1 - len(kept) / len(runs)
    found["regret25"] = _mean(one["regret25"] for one in runs)
    found["worst"] = max(kept) / base["best"] if kept else None
    found["kept5"] = _mean(one["kept5"] for one in runs)
    return {name: found[name] for name in FIGURES}


def _mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of those that are reached at all."""
    return results.mean(value for value in values if value is not None and value < math.inf)


def mean(result: dict[str, dict[str, dict[str, float | None]]]) -> dict[str, Any]:
    """Return the means over grids of the figures of each policy; of `worst`, the largest."""
    found: dict[str, Any] = {}
    for policy in next(iter(result.values())):
        rows = [grid[policy] for grid in result.values()]
        found[policy] = {key: _mean(row[key] for row in rows) for key in FIGURES}
        late = [row["worst"] for row in rows if row["worst"] is not None]
        found[policy]["worst"] = max(late, default=None)
    return found


def _table(name: str, found: dict[str, dict[str, float | None]]) -> str:
    return table([name, *FIGURES], [[policy, *row.values()] for policy, row in found.items()])


@click.command()
@click.option(
    "--policies", type=Names("policy", POLICIES), default=",".join(POLICIES), show_default=True
)
@click.option("--names", type=Names("grid"), help="Grids of our own to train.  [default: all]")
@click.option(
    "--grids",
    "folder",
    type=click.Path(exists=True, file_okay=False),
    help='Folder of grids to replay instead, files of JSON lines {"loss": [...], "s": 0.1}.',
)
@click.option("--orders", default=20, show_default=True, type=click.IntRange(1))
@click.option("--workers", default=4, show_default=True, type=click.IntRange(1))
@click.option("--threads", default=2, show_default=True, type=click.IntRange(1))
@click.option("--models", type=click.IntRange(8), help="Models of a grid of our own.")
@click.option("--quick", is_flag=True, help="Two small grids, two orders; a few seconds.")
@json_option
def main(
    policies: list[str], names: list[str] | None, folder: str | None, orders: int, workers: int,
    threads: int, models: int | None, quick: bool, output: str | None,
) -> None:  # fmt: skip
    """Compare policies of searches on replayed grids of loss curves."""
    result = {}
    for grid in _grids(names, folder, models, quick):
        say(f"{grid.name}: {grid.models} models of {grid.steps} steps")
        result[grid.name] = compare(grid, policies, 2 if quick else orders, workers, threads)
        if output != "-":
            click.echo(_table(grid.name, result[grid.name]) + "\n")
    if output != "-" and result:
        for title, some in _parts(result).items():
            click.echo(_table(title, mean(some)) + "\n")
    give(result, output, *NOTES)


def _parts(result: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the results that are averaged: of ordinary grids, of those that mislead, of all."""
    try:
        from benchmarks.search_policies.training import HELD_OUT, LATE, TUNED
    except ImportError:
        return {"mean": result}
    parts = {"mean": result.keys() - LATE.keys(), "mean, tuned": TUNED.keys()}
    parts |= {"mean, held out": HELD_OUT.keys(), "mean, late": LATE.keys()}
    parts |= {"mean, all": result.keys()}
    found = {title: {n: result[n] for n in result if n in some} for title, some in parts.items()}
    return {title: some for title, some in found.items() if some}


def _grids(
    names: list[str] | None, folder: str | None, models: int | None, quick: bool
) -> Iterable[Grid]:
    if folder is not None:
        return read_grids(folder)
    # Small matrices are multiplied fastest by one thread.
    for variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ.setdefault(variable, "1")
    from benchmarks.search_policies import training

    some: dict[str, int] = dict(training.TRAINED)
    if quick:
        some, models = {"sgd-diabetes": 20, "lightgbm-cancer": 20}, models or 12
    if unknown := set(names or ()) - some.keys():
        raise click.BadParameter(f"unknown grids: {', '.join(sorted(unknown))}")
    some = {name: steps for name, steps in some.items() if not names or name in names}
    return training.trained(some, models=models or training.MODELS)


if __name__ == "__main__":
    main()
