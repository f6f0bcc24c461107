"""Coverage of the expected ends of jobs: how often the stated 80 % band holds the real end.

A job is asked when it first passes each part of its work. In the simulator jobs arrive as in
`dask slaq simulate`; with ``--live`` they run on Dask's own scheduler on the virtual clock. With
``--owners`` they are jobs of four owners, and their status is read at any time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import click
import numpy as np

from benchmarks.common.results import give, json_option
from benchmarks.live_jobs.emulated import COUNTS, make_jobs
from benchmarks.live_jobs.owned import COUNT, Watched, make_owned_jobs, run_owned
from benchmarks.virtual import latency_option
from dask_slaq.core.engine import Engine
from dask_slaq.simulation.fluid import Simulation
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.study import job_lists, make_engine
from dask_slaq.simulation.workload import law, load_curves
from dask_slaq.simulation.workload.curves import make_curves

__all__ = ["Asked", "coverage", "figures", "main", "simulated"]

#: Parts of its work at which a job is asked.
PARTS = (0.2, 0.4, 0.6, 0.8, 0.9)


#: Fifths of a job, by the part of its work that was done.
FIFTHS = ("0-20", "20-40", "40-60", "60-80", "80-100")
#: Factor by which an end is wrong, and seconds below which that does not count: an epoch.
WRONG, EPOCH = 4.0, 1.0


@dataclass
class Asked:
    """Answers of jobs, by job and part, and the times at which jobs ended."""

    answers: dict[tuple[str, float], tuple[float, dict[str, float]]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def ask(self, engine: Engine, job: str, now: float) -> None:
        """Record what is expected of a job that has just passed a part."""
        found = engine.end_of(job, now)
        if found is None or math.isnan(found["expected"]):
            return
        row = engine.jobs.row(job)
        attained = engine.jobs.runtimes.column["attained"].item(row)
        rows = np.array([row])
        total = engine.jobs.total(rows, engine.jobs.runtimes.speeds(rows).work).item()
        for part in PARTS:
            if attained >= part * total:
                self.answers.setdefault((job, part), (now, found))


def coverage(runs: Sequence[Asked]) -> dict[float, dict[str, float]]:
    """Return, by part of the work, the ``jobs``, the share of ends ``within`` the band, ``below``
    and ``above`` it, the share ``kept`` of the promises, and the median ``width`` of the band over
    the time that was left.
    """
    table = {}
    for part in PARTS:
        found = [
            (run.ended[job] - at, ends)
            for run in runs
            for (job, asked), (at, ends) in run.answers.items()
            if asked == part and job in run.ended
        ]
        if not found:
            continue
        real = np.array([left for left, _ in found])
        low, high, latest = (
            np.array([ends[name] for _, ends in found]) for name in ("low", "high", "promised")
        )
        table[part] = {
            "jobs": len(found),
            "within": float(np.mean((low <= real) & (real <= high))),
            "below": float(np.mean(real < low)),
            "above": float(np.mean(real > high)),
            "width": float(np.median((high - low) / np.maximum(real, 1e-9))),
            "kept": float(np.mean(real <= 1.05 * latest + 1.0)),
        }
    return table


def simulated(policy: str, settings: Settings, curves: Any = None) -> list[Asked]:
    """Run the jobs of each seed of `settings` in the simulator, and ask them."""
    runs = []
    for seed, jobs in job_lists(load_curves(curves, settings.seed), settings):
        truth, asked = law(settings.scaling, jobs, seed), Asked()
        engine = make_engine(policy, jobs, truth, settings)
        ask = _asker(asked, engine, [job.name for job in jobs])
        outcome = Simulation(jobs, engine, truth, settings.cores, watch=ask).run()
        asked.ended = {job.name: float(t[-1]) for job, t in zip(jobs, outcome.times, strict=True)}
        runs.append(asked)
    return runs


def _asker(asked: Asked, engine: Engine, names: list[str]) -> Callable[..., None]:
    def ask(now: float, active: Any, threads: Any) -> None:
        for i in active:
            if names[i] in engine.jobs:
                asked.ask(engine, names[i], now)

    return ask


def live(policy: str, seeds: int, count: int) -> list[Asked]:
    """Run staggered jobs on Dask's scheduler on the virtual clock, and ask them."""
    from benchmarks.live_jobs import virtual_time

    runs = []
    for seed in range(seeds):
        scale = count / COUNTS["staggered"]
        jobs = make_jobs("staggered", make_curves(seed), seed, count=count, scale=scale)
        asked = Asked()

        def look(scheduler: Any, job: str, ended: bool, asked: Asked = asked) -> None:
            if ended:
                asked.ended[job] = monotonic()
            else:
                asked.ask(scheduler.plugins["slaq"].engine, job, monotonic())

        virtual_time.run_virtual(jobs, policy, seed=seed, look=look)
        runs.append(asked)
    return runs


def figures(runs: Sequence[tuple[Watched, Watched]], seed: int = 0) -> dict[str, Any]:
    """Return how true the shown ends are, in runs under a policy and of the same jobs under `fair`.

    A job is looked at once in each fifth of its work, at any moment. By fifth, ``band`` is the
    share of ends in their 80 % band, ``answers`` their number, and ``shown`` the share of looks
    at which an end was shown. ``four_times`` is the share of ends that were wrong by more than
    `WRONG`, ``promise_kept`` that of promises, as stated when a fifth of the work was done.
    ``first_report_worst`` is the longest wait for a first report over that under `fair`.
    """
    rng = np.random.default_rng(seed)
    found: dict[str, list[tuple[float, dict[str, Any]]]] = {fifth: [] for fifth in FIFTHS}
    shown: dict[str, list[bool]] = {fifth: [] for fifth in FIFTHS}
    before, kept, waits = [], [], []
    for run, fair in runs:
        for name, looks in run.looks.items():
            for i, fifth in enumerate(FIFTHS):
                here = [look for look in looks if min(int(5 * look[1]), 4) == i]
                if not here:
                    continue
                at, _, reported, ends = here[rng.integers(len(here))]
                known = ends is not None and ends["expected"] is not None
                shown[fifth].append(known)
                if known:
                    found[fifth].append((run.ended[name] - at, ends))
                    if not reported and name in run.first:
                        before.append(found[fifth][-1])
            stated = next((look for look in looks if look[1] >= 0.2), None)
            if stated is not None and stated[3] is not None and stated[3]["promised"] is not None:
                kept.append(run.ended[name] - stated[0] <= stated[3]["promised"] + EPOCH)
        for name, first in run.first.items():
            wait = fair.first[name] - fair.came[name]
            waits.append((first - run.came[name]) / max(wait, EPOCH))
    every = [one for fifth in FIFTHS for one in found[fifth]]
    wrong = [_is_wrong(real, ends["expected"]) for real, ends in every]
    return {
        "band": {fifth: _within(found[fifth]) for fifth in FIFTHS},
        "four_times": float(np.mean(wrong)),
        "promise_kept": float(np.mean(kept)),
        "first_report_worst": max(waits, default=math.nan),
        "answers": {fifth: len(found[fifth]) for fifth in FIFTHS},
        "shown": {fifth: float(np.mean(shown[fifth])) for fifth in FIFTHS},
        "before_first_report": {"answers": len(before), "band": _within(before)},
        "width": float(np.median([(e["high"] - e["low"]) / max(r, EPOCH) for r, e in every])),
    }


def _within(found: Sequence[tuple[float, dict[str, Any]]]) -> float | None:
    """Return the share of ends in their band; None without any."""
    if not found:
        return None
    return float(np.mean([ends["low"] <= real <= ends["high"] for real, ends in found]))


def _is_wrong(real: float, expected: float) -> bool:
    """Return whether an end differs by more than a factor of `WRONG`."""
    low, high = sorted((max(real, EPOCH), max(expected, EPOCH)))
    return high > WRONG * low


@click.command()
@click.option("--policy", help="max-total by default, first-to-target with --owners.")
@click.option("--curves", multiple=True, help="File of JSON lines with id and loss (repeatable).")
@click.option("--jobs", default=160, show_default=True, type=click.IntRange(1))
@click.option("--noise", default=0.0, show_default=True, type=click.FloatRange(0))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="First seed of --owners.")
@click.option("--live", "on_dask", is_flag=True, help="Run on Dask's scheduler.")
@click.option("--owners", is_flag=True, help="With --live: jobs of four owners, of all shapes.")
@click.option("--quick", is_flag=True, help="One seed of few jobs.")
@latency_option
@json_option
def main(
    policy: str | None,
    curves: tuple[str, ...],
    jobs: int,
    noise: float,
    seeds: int,
    seed: int,
    on_dask: bool,
    owners: bool,
    quick: bool,
    output: str | None,
) -> None:
    """Measure how often the 80 % band of the expected end holds the real one."""
    if quick:
        jobs, seeds = 10, 1
    if owners:
        _owners(
            policy or "first-to-target", range(seed, seed + seeds), 10 if quick else COUNT, output
        )
        return
    if on_dask:
        runs = live(policy or "max-total", seeds, jobs)
    else:
        runs = simulated(
            policy or "max-total", Settings(jobs=jobs, seeds=seeds, noise=noise), curves or None
        )
    found = coverage(runs)
    if output != "-":
        click.echo("work done   jobs  within   below   above   width  promise kept")
        for part, row in found.items():
            cells = [f"{row[name]:6.0%}" for name in ("within", "below", "above", "width")]
            click.echo(f"{part:9.0%}  {row['jobs']:5}  {'  '.join(cells)}  {row['kept']:12.0%}")
    give({str(part): row for part, row in found.items()}, output)


def _owners(policy: str, seeds: Sequence[int], count: int, output: str | None) -> None:
    """Run the jobs of owners of some `seeds`, and print the figures so far after each."""
    runs: list[tuple[Watched, Watched]] = []
    for seed in seeds:
        jobs = make_owned_jobs(seed, count)
        runs.append((run_owned(jobs, policy, seed), run_owned(jobs, "fair", seed)))
        if output != "-":
            click.echo(f"seeds until {seed}: {figures(runs)}")
    give(figures(runs), output)


if __name__ == "__main__":
    main()
