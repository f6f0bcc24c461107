"""``python -m benchmarks.trials``: when the best models of a search are ready, way by way.

Each model is one task whose steps sleep. `plain` submits the tasks to plain Dask, `search` in a
block of `slaq.search` with a report after each step. The other ways are Optuna studies on its Dask
storage, without pruning, with its median rule, and with the plugin's pruner in a block.
"""

from __future__ import annotations

import math
from typing import Any

import click
import numpy as np

from benchmarks.common.cluster import Lateness
from benchmarks.common.metrics import LATE
from benchmarks.common.results import (
    Names,
    curves_option,
    give,
    json_option,
    mean,
    say,
    seeds_options,
    table,
)
from benchmarks.trials.spaces import Synthetic, recorded
from benchmarks.trials.ways import STUDIES, WAYS, Outcome, Search, require_optuna, run
from dask_slaq.lab.simulation.workload import curves as curve_files

#: Workers, threads of each, and whether they are processes.
CLUSTERS = {"4x1": (4, 1, False), "2x2": (2, 2, True)}
CASES = tuple(f"{kind}-{size}" for kind in ("synthetic", "curves") for size in CLUSTERS)
TIMES = ("best_s", "top5_s", "all_s", "near_s")
#: A value is near the best of all ways if it is at most this many times as high.
NEAR = 1.05
#: Models, and steps of each, of a `--quick` run.
QUICK = (12, 15)
NOTES = (
    "means over seeds, in brackets of the ratios to plain of that seed; near: within 5 % of the",
    "best of all ways; / any: ratio to the mean of plain over all orders in which it may train",
)


def measure(searches: list[Search], ways: list[str], say: Any) -> dict[str, Any]:
    """Run all searches, one per seed, in all ways, and summarize them by way.

    The order of the ways rotates from search to search so that drift of the machine cancels. `say`
    gets one line of progress per run.
    """
    found: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for turn, search in enumerate(searches):
        shift = turn % len(ways)
        outcomes: dict[str, tuple[Outcome, float]] = {}
        for way in ways[shift:] + ways[:shift]:
            with Lateness() as late:
                done = run(way, search)
            outcomes[way] = done, late.mean
            busy = " - this machine is busy, times mean little" if late.mean > LATE else ""
            say(f"seed {search.seed}, {way}: all done after {done.all_s:.1f} s{busy}")
        best = min((value for done, _ in outcomes.values() for value, _ in done.ready))
        for way, (done, late_s) in outcomes.items():
            found[way].append({"seed": search.seed, **figures(done, best), "late_s": late_s})
    plain = found.get("plain")
    return {way: summarize(runs, plain) for way, runs in found.items()}


def figures(outcome: Outcome, best: float) -> dict[str, Any]:
    """Compute the figures of one run; `best` is the lowest final loss of any way.

    ``best_s``, ``top5_s``: seconds until the model with the lowest final loss of this way, and all
    of the five lowest, were ready; ``near_s``: until a final loss within 5 % of `best` was. They
    are None if there is no such model. Also ``all_s``, ``steps``, ``best_value``,
    ``results_equal``, and ``any_order``: means of ``best_s`` and ``top5_s`` over all orders of the
    models, which under plain Dask are equally likely.
    """
    ranked = sorted(outcome.ready)
    near = [seconds for value, seconds in ranked if value <= NEAR * best]
    return {
        "best_s": ranked[0][1] if ranked else None,
        "top5_s": max(seconds for _, seconds in ranked[:5]) if len(ranked) >= 5 else None,
        "all_s": outcome.all_s,
        "near_s": min(near, default=None),
        "steps": outcome.steps,
        "best_value": ranked[0][0] if ranked else None,
        "results_equal": outcome.equal,
        "any_order": {"best_s": _any_order(outcome, 1), "top5_s": _any_order(outcome, 5)},
    }


def _any_order(outcome: Outcome, count: int) -> float | None:
    """Return the mean seconds until `count` models, each set as likely as another, are ready."""
    times = sorted(seconds for _, seconds in outcome.ready)
    if len(times) < count:
        return None
    # The last of them is number k for as many sets as there are for the others before it.
    sets = (math.comb(k, count - 1) * seconds for k, seconds in enumerate(times))
    return sum(sets) / math.comb(len(times), count)


def summarize(runs: list[dict[str, Any]], plain: list[dict[str, Any]] | None) -> dict[str, Any]:
    """Compute the means of a way over the seeds, from its figures and those of the way `plain`.

    Each of the keys of `figures` is the mean over the seeds that have it; ``near_seeds``: number of
    seeds that have ``near_s``; ``over_plain``: means of the ratios to `plain` of the same seed;
    ``over_any_order``: the same to plain's ``any_order``; ``seeds``: the runs.
    """
    means = {key: mean(run[key] for run in runs) for key in (*TIMES, "steps", "best_value")}
    near = sum(run["near_s"] is not None for run in runs)
    equal = all(run["results_equal"] for run in runs)
    pairs = list(zip(runs, plain or (), strict=plain is not None))
    over = {
        key: mean(_ratio(run[key], base[key]) for run, base in pairs) for key in (*TIMES, "steps")
    }
    over_any = {
        key: mean(_ratio(run[key], base["any_order"][key]) for run, base in pairs)
        for key in ("best_s", "top5_s")
    }
    return {
        **means,
        "near_seeds": near,
        "results_equal": equal,
        "over_plain": over,
        "over_any_order": over_any,
        "seeds": runs,
    }


def _ratio(value: float | None, base: float | None) -> float | None:
    return value / base if value and base else None


@click.command()
@click.option("--ways", type=Names("way", WAYS), default=",".join(WAYS), show_default=True)
@click.option("--cases", type=Names("case", CASES), default=",".join(CASES), show_default=True)
@click.option("--models", default=40, show_default=True, type=click.IntRange(1))
@click.option("--steps", default=40, show_default=True, type=click.IntRange(2), help="Per model.")
@click.option("--step-seconds", default=0.02, show_default=True, type=click.FloatRange(0))
@seeds_options
@curves_option
@click.option(
    "--sampler",
    type=click.Choice(["tpe", "same"]),
    default="tpe",
    show_default=True,
    help="Optuna's parameters: sampled by TPE, or those of the models of the other ways.",
)
@click.option("--quick", is_flag=True, help="One seed, few and short models; under a minute.")
@json_option
def main(
    ways: list[str], cases: list[str], seeds: int, seed: int, quick: bool, output: str | None,
    **options: Any,
) -> None:  # fmt: skip
    """Train the models of a search, one task each, and compare when the best are ready."""
    if quick:
        seeds, options["models"], options["steps"] = 1, *QUICK
    if set(ways) & set(STUDIES):
        try:
            require_optuna()
        except ImportError as error:
            raise click.ClickException(str(error)) from error
    result: dict[str, Any] = {}
    for case in cases:
        result[case] = found = measure(
            [_search(case, number, **options) for number in range(seed, seed + seeds)],
            ways,
            lambda line, case=case: say(f"{case}: {line}"),
        )
        if output != "-":
            click.echo(_table(case, found) + "\n")
    give(result, output)


def _search(
    case: str, seed: int, models: int, steps: int, step_seconds: float, files: tuple[str, ...],
    sampler: str,
) -> Search:  # fmt: skip
    kind, size = case.split("-")
    workers, threads, processes = CLUSTERS[size]
    rng = np.random.default_rng([seed, 2])
    space: Any = Synthetic(steps)
    if kind == "curves":
        try:
            curves = curve_files.read_curves(files) or curve_files.make_curves(seed, 2 * models)
            space = recorded(curves, models, steps, rng)
        except curve_files.CurveError as error:
            raise click.ClickException(str(error)) from error
    return Search(
        space, space.draw(rng, models), seed, step_seconds, workers, threads, processes, sampler,
    )  # fmt: skip


def _table(case: str, found: dict[str, Any]) -> str:
    heads = [name.removesuffix("_s") + " s" for name in TIMES]
    heads += ["in seeds", "steps", "best", "equal", "best / any", "top5 / any"]
    rows = []
    for way, of in found.items():
        cells = [_cell(of[key], of["over_plain"][key]) for key in TIMES]
        cells += [f"{of['near_seeds']}/{len(of['seeds'])}", f"{of['steps']:.0f}"]
        cells += [_cell(of["best_value"], None, ".4f"), of["results_equal"]]
        rows.append([way, *cells, *of["over_any_order"].values()])
    return "\n".join([table([case, *heads], rows), *NOTES])


def _cell(value: float | None, ratio: float | None = None, digits: str = ".2f") -> str:
    if value is None:
        return "-"
    return f"{value:{digits}}" + (f" ({ratio:.2f})" if ratio is not None else "")


if __name__ == "__main__":
    main()
