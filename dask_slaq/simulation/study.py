"""A study: the same lists of jobs under several policies, and oracles among them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict
from multiprocessing import get_context, parent_process
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.core.policies import POLICIES, policy
from dask_slaq.simulation.fluid import Simulation, Watcher
from dask_slaq.simulation.metrics import Run, summarize
from dask_slaq.simulation.oracles import KnownTimes, OraclePredictor, ShortestRemaining
from dask_slaq.simulation.settings import Settings
from dask_slaq.simulation.workload import (
    Curve,
    Law,
    SimulatedJob,
    Trace,
    about,
    calibrate,
    follow,
    law,
    make_jobs,
    offered_load,
    read_trace,
)
from dask_slaq.simulation.workload import curves as curve_files

__all__ = ["ORACLES", "Settings", "check_policy", "simulate"]

#: Names beside those of policies, and what knows more than a scheduler can: `oracle:POLICY` the
#: true curves and running times of jobs from their arrival, `oracle-curves:POLICY` the true curves
#: alone and `oracle-times:POLICY` the running times alone (the rest is learned), each of
#: `max-total` if no policy is named; `srtf-oracle` serves the job first that has the least time
#: left to 95 % of its loss reduction.
_KNOWING = ("oracle", "oracle-curves", "oracle-times")
ORACLES = (*_KNOWING, *(f"{kind}:POLICY" for kind in _KNOWING), "srtf-oracle")
_ORACLE_OF = "max-total"


def parse_policy(name: str) -> tuple[str, str]:
    """What knows the truth (one of `ORACLES`, or nothing), and the policy.

    >>> parse_policy("oracle:fair"), parse_policy("oracle-curves"), parse_policy("fair")
    (('oracle', 'fair'), ('oracle-curves', 'max-total'), ('', 'fair'))
    """
    kind, colon, of = name.partition(":")
    if kind in _KNOWING and (of or not colon):
        return kind, of or _ORACLE_OF
    return ("srtf-oracle", "fair") if name == "srtf-oracle" else ("", name)


def check_policy(name: str) -> None:
    """Raise `UnknownPolicy` unless this is a policy or an oracle."""
    _, of = parse_policy(name)
    try:
        policy(of)
    except UnknownPolicy:
        allowed = ", ".join([*POLICIES, *ORACLES])
        raise UnknownPolicy(f"no policy is called {name!r}; choose from {allowed}") from None


def simulate(
    policies: Sequence[str] = ("fair", "max-total", "oracle"),
    curves: str | Path | Sequence[str | Path] | Sequence[Curve] | None = None,
    settings: Settings | None = None,
    *,
    arrivals: str | Path | Trace | None = None,
    trace: str | None = None,
    progress: Callable[[int], object] | None = None,
    processes: int = 1,
    **options: Any,
) -> dict[str, Any]:
    """Simulate a cluster on which training jobs arrive, under several policies.

    Parameters
    ----------
    policies : sequence of str
        Names of policies, or of `ORACLES`.
    curves : path, sequence of paths, or sequence of Curve, optional
        Loss curves of the jobs, JSON lines with `id` and `loss`; made from the seed if left out.
    settings : Settings, optional
    arrivals : path or Trace, optional
        A file of traces, JSON lines with `trace`, `arrivals_s`, `duration_s` and `gpus`: jobs come
        and are large as its first ones, scaled to the interarrival time and the work of the
        settings. By default arrivals are a Poisson process, and sizes uniform.
    trace : str, optional
        Name of the trace; may be left out if the file has one alone.
    progress : callable, optional
        Called with a number of jobs that have ended.
    processes : int
        Runs at once, each in a process of its own if more than one; a script that asks for that
        has to be guarded by ``if __name__ == "__main__"``. Results are the same.
    **options
        Single settings, see `Settings`.

    Returns
    -------
    dict
        ``{"policies": {name: figures}, "settings": {...}}``, see `measures.summarize`. With a
        trace, the settings say which in ``trace``, and what is assumed in ``assumption``.

    Raises
    ------
    UnknownPolicy, InvalidSetting, CurveError, TraceError

    Examples
    --------
    >>> found = simulate(["fair"], jobs=4, cores=32, seeds=1, load=0.5)
    >>> found["policies"]["fair"]["rho_max"]
    1.0
    """
    for name in policies:
        check_policy(name)
    settings = Settings(**{**(asdict(settings) if settings else {}), **options})
    found = _curves(curves, settings.seed)
    chosen = _trace(arrivals, trace, settings)
    lists = job_lists(found, settings, chosen)
    names = list(dict.fromkeys([*policies, "fair"]))
    runs = _run_all(names, lists, settings, progress, processes)
    return {
        "policies": {
            name: summarize(runs[name], runs["fair"], settings.cores) for name in policies
        },
        "settings": {
            **asdict(settings),
            "curves": len(found),
            "offered_load": offered_load(lists[0][1], settings.cores),  # alike in all lists
            **(about(chosen.first(settings.jobs), settings) if chosen else {}),
        },
    }


def job_lists(
    curves: Sequence[Curve], settings: Settings, trace: Trace | None = None
) -> list[tuple[int, list[SimulatedJob]]]:
    """The jobs of every seed; those of a trace differ in their losses alone."""
    if settings.load is None:
        work = calibrate(curves)
    else:
        work = settings.load * settings.cores * settings.interarrival
    lists = []
    for seed in range(settings.seed, settings.seed + settings.seeds):
        jobs = make_jobs(
            curves,
            seed,
            jobs=settings.jobs,
            interarrival=settings.interarrival,
            work=work,
            noise=settings.noise,
            stragglers=settings.stragglers,
            straggling=settings.straggling,
            partitioned=settings.scaling == "waves",
        )
        if trace is not None:
            gap, per_gpu = settings.interarrival, settings.cores_per_gpu
            jobs = follow(jobs, trace, interarrival=gap, work=work, cores_per_gpu=per_gpu)
        lists.append((seed, jobs))
    return lists


def _run_all(
    names: Sequence[str],
    lists: Sequence[tuple[int, list[SimulatedJob]]],
    settings: Settings,
    progress: Callable[[int], object] | None,
    processes: int,
) -> dict[str, list[Run]]:
    """All policies on all lists."""
    if processes == 1:
        return {
            name: [run(name, seed, jobs, settings, progress) for seed, jobs in lists]
            for name in names
        }
    with process_pool(processes) as pool:
        due = {
            name: [pool.submit(run, name, seed, jobs, settings) for seed, jobs in lists]
            for name in names
        }
        for _ in as_completed([future for futures in due.values() for future in futures]):
            if progress is not None:
                progress(settings.jobs)
        return {name: [future.result() for future in futures] for name, futures in due.items()}


def process_pool(processes: int) -> ProcessPoolExecutor:
    """Processes for runs, which end with this one.

    They are fresh: one that is forked off a program with threads, as of Dask, may hang.
    """
    return ProcessPoolExecutor(processes, get_context("spawn"), _end_with_parent)


def _end_with_parent() -> None:
    """Let this process end when the one that started it does, were it killed."""
    parent = parent_process()

    def wait() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=wait, daemon=True).start()


def run(
    name: str,
    seed: int,
    jobs: Sequence[SimulatedJob],
    settings: Settings,
    progress: Callable[[int], object] | None = None,
    watch: Watcher | None = None,
) -> Run:
    """One policy, or oracle, on one list of jobs; `progress` and `watch` as of `Simulation`."""
    truth = law(settings.scaling, jobs, seed)
    simulation = Simulation(
        jobs,
        make_engine(name, jobs, truth, settings),
        truth,
        settings.cores,
        max_cores=settings.max_cores,
        move_pause=settings.move_pause,
        capacity=settings.capacity,
        gap=settings.gap,
        dispatch=settings.dispatch,
        watch=watch,
    )
    return Run(seed, jobs, simulation.run(progress))


def make_engine(name: str, jobs: Sequence[SimulatedJob], truth: Law, settings: Settings) -> Engine:
    """The engine of this policy or oracle, before any job has come."""
    kind, of = parse_policy(name)
    known = OraclePredictor({job.name: job.loss for job in jobs})
    engine = Engine(
        of,
        epoch=settings.epoch,
        normalizer=settings.normalizer,
        # Of what is possible at best, nobody is held up by a floor.
        floor=0.0 if kind == "srtf-oracle" else settings.floor,
        predictor=None if kind in ("", "oracle-times") else known,
        move_pause=settings.move_pause,
    )
    if kind not in ("", "oracle-curves"):
        engine.jobs.runtimes = KnownTimes(engine.jobs, jobs, truth, settings.cores)
    if kind == "srtf-oracle":
        engine.policy = ShortestRemaining(jobs, known, truth, settings.cores)
    return engine


def _trace(
    arrivals: str | Path | Trace | None, name: str | None, settings: Settings
) -> Trace | None:
    if arrivals is None:
        for option, value in (("trace", name), ("cores_per_gpu", settings.cores_per_gpu)):
            if value is not None:
                raise InvalidSetting(f"{option} is {value!r}, but there are no arrivals to take")
        return None
    return arrivals if isinstance(arrivals, Trace) else read_trace(arrivals, name)


def _curves(
    curves: str | Path | Sequence[str | Path] | Sequence[Curve] | None, seed: int
) -> list[Curve]:
    if curves is None:
        return curve_files.make_curves(seed)
    if isinstance(curves, str | Path):
        curves = [curves]
    given = [item for item in curves if isinstance(item, Curve)]
    given += curve_files.read_curves([item for item in curves if not isinstance(item, Curve)])
    fit = curve_files.fit_for_jobs(given)
    if not fit:
        curve_files.sample([], 0, np.random.default_rng())  # says what a curve needs
    return fit
