"""Coverage of the expected ends of jobs: how often the stated 80 % band holds the real end.

A job is asked when it first passes each part of its work. In the simulator jobs arrive as in
`dask slaq simulate`; with ``--live`` they run on Dask's own scheduler on the virtual clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import click
import numpy as np

from benchmarks.common.results import give, json_option
from benchmarks.live_jobs.emulated import COUNTS, make_jobs
from dask_slaq.core.engine import Engine
from dask_slaq.simulation.fluid import Simulation
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.study import job_lists, make_engine
from dask_slaq.simulation.workload import law, load_curves
from dask_slaq.simulation.workload.curves import make_curves

__all__ = ["Asked", "coverage", "main", "simulated"]

#: Parts of its work at which a job is asked.
PARTS = (0.2, 0.4, 0.6, 0.8, 0.9)


@dataclass
class Asked:
    """Answers of jobs, by job and part, and the times at which jobs ended."""

    answers: dict[tuple[str, float], tuple[float, dict[str, float]]] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)

    def ask(self, engine: Engine, job: str, now: float) -> None:
        """Record what is expected of a job that has just passed a part."""
        found = engine.end_of(job, now)
        if found is None:
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


@click.command()
@click.option("--policy", default="max-total", show_default=True)
@click.option("--curves", multiple=True, help="File of JSON lines with id and loss (repeatable).")
@click.option("--jobs", default=160, show_default=True, type=click.IntRange(1))
@click.option("--noise", default=0.0, show_default=True, type=click.FloatRange(0))
@click.option("--seeds", default=3, show_default=True, type=click.IntRange(1))
@click.option("--live", "on_dask", is_flag=True, help="Run on Dask's scheduler.")
@json_option
def main(
    policy: str,
    curves: tuple[str, ...],
    jobs: int,
    noise: float,
    seeds: int,
    on_dask: bool,
    output: str | None,
) -> None:
    """Measure how often the 80 % band of the expected end holds the real one."""
    if on_dask:
        runs = live(policy, seeds, jobs)
    else:
        runs = simulated(policy, Settings(jobs=jobs, seeds=seeds, noise=noise), curves or None)
    found = coverage(runs)
    if output != "-":
        click.echo("work done   jobs  within   below   above   width  promise kept")
        for part, row in found.items():
            cells = [f"{row[name]:6.0%}" for name in ("within", "below", "above", "width")]
            click.echo(f"{part:9.0%}  {row['jobs']:5}  {'  '.join(cells)}  {row['kept']:12.0%}")
    give({str(part): row for part, row in found.items()}, output)


if __name__ == "__main__":
    main()
