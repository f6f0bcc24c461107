"""Simulation of clusters that grow and shrink: a fixed one, Dask's adaptive one, and by worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.simulation.fluid import Adaptive, ByWorth, ElasticSimulation, Rule, Simulation
from dask_slaq.simulation.metrics import Run
from dask_slaq.simulation.processes import run_all
from dask_slaq.simulation.recorded import jobs_of_log
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.study import check_policy, job_lists, make_engine
from dask_slaq.simulation.workload import Curve, SimulatedJob, law, load_curves

__all__ = ["autoscale"]


class Way(NamedTuple):
    """How many workers there are: a number, Dask's own adaptive one, or by worth."""

    name: str
    workers: int | None = None  # of a fixed cluster
    wait_count: int | None = None  # of Dask's own


#: Dask's own number with its default of wait-count, and with one that suits iterations.
ADAPTIVE = (Way("adaptive", wait_count=3), Way("adaptive, wait-count 60", wait_count=60))


def autoscale(
    settings: Settings,
    terms: ScalingTerms,
    *,
    threads: int = 2,
    policy: str = "max-total",
    curves: str | Path | Sequence[str | Path] | Sequence[Curve] | None = None,
    log: str | Path | None = None,
    progress: Callable[[int], object] | None = None,
    processes: int = 1,
) -> dict[str, Any]:
    """Simulate jobs on clusters of several sizes, and on those whose size follows the work.

    The largest cluster has the `cores` of `settings`; of a `log`, a recording whose jobs are taken
    in place of a list, no other setting counts. `terms` are the price and start-up of a worker of
    some `threads`, and for how long it stays. `policy`, which may be an oracle, shares the threads.
    For the other arguments see `study.simulate`.

    Returns ``ways``, figures by name: ``worker_hours``, ``cost`` and ``starts`` of workers per
    list, and the means ``t90_mean_s`` (None if no loss falls) and ``completion_mean_s`` of jobs;
    ``settings`` and ``notes`` say what was simulated. Raises `InvalidSetting`, `UnknownPolicy`,
    `CurveError` or `LogError`.
    """
    check_policy(policy)
    most, notes = settings.cores // threads, []
    if most < 1:
        raise InvalidSetting(f"{settings.cores} cores are no worker of {threads} threads")
    if settings.capacity:
        raise InvalidSetting("the number of cores cannot both follow the work and be given")
    lists: Sequence[tuple[int, list[SimulatedJob]]]
    if log is None:
        lists = job_lists(load_curves(curves, settings.seed), settings)
    else:
        jobs, found, notes = jobs_of_log(log)
        settings = replace(found, cores=settings.cores, capacity=())
        lists = [(0, jobs)]
    terms = terms._replace(maximum=most, minimum=min(terms.minimum, most))
    sizes = sorted({max(most // part, 1) for part in (8, 4, 2, 1)})
    ways = [*(Way(f"fixed {n}", n) for n in sizes), *ADAPTIVE, Way("worth")]
    every = [(way, seed, jobs) for way in ways for seed, jobs in lists]
    run = partial(_run, settings=settings, terms=terms, threads=threads, policy=policy)
    runs = run_all(run, every, progress, processes)
    each = len(lists)
    return {
        "ways": {
            way.name: _figures(runs[i * each :][:each], terms.price) for i, way in enumerate(ways)
        },
        "settings": {**asdict(settings), "policy": policy, "threads": threads, **terms._asdict()},
        "notes": notes,
    }


def _run(
    way: Way,
    seed: int,
    jobs: list[SimulatedJob],
    *,
    settings: Settings,
    terms: ScalingTerms,
    threads: int,
    policy: str,
    progress: Callable[[int], object] | None,
) -> Run:
    """Simulate a list of jobs on one kind of cluster."""
    truth = law(settings.scaling, jobs, seed)
    engine = make_engine(policy, jobs, truth, settings)
    given = {
        "max_cores": settings.max_cores,
        "move_pause": settings.move_pause,
        "gap": settings.gap,
        "dispatch": settings.dispatch,
    }
    if way.workers is not None:
        fixed = Simulation(jobs, engine, truth, way.workers * threads, **given)  # type: ignore[arg-type]
        run = Run(seed, jobs, fixed.run(progress))
        run.outcome.worker_seconds = way.workers * run.makespan
        run.outcome.starts = way.workers
        return run
    rule: Rule = ByWorth(terms, threads)
    if way.wait_count is not None:
        rule = Adaptive(wait_count=way.wait_count)
    most, start_up = terms.maximum, terms.start_up
    elastic = ElasticSimulation(
        jobs, engine, truth, rule=rule, threads=threads, most=most, start_up=start_up, **given
    )
    return Run(seed, jobs, elastic.run(progress))


def _figures(runs: Sequence[Run], price: float) -> dict[str, float | None]:
    t90 = np.concatenate([run.time_to(0.90) for run in runs])
    hours = float(np.mean([run.outcome.worker_seconds for run in runs])) / 3600.0
    known = t90[~np.isnan(t90)]
    return {
        "worker_hours": hours,
        "cost": price * hours,
        "t90_mean_s": float(known.mean()) if len(known) else None,
        "completion_mean_s": float(np.concatenate([run.completion for run in runs]).mean()),
        "starts": math.ceil(np.mean([run.outcome.starts for run in runs])),
    }
