"""A study: the same lists of jobs under several policies, and oracles among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.core.policies import POLICIES, policy
from dask_slaq.simulation import curves as curve_files
from dask_slaq.simulation.curves import Curve
from dask_slaq.simulation.dispatch import DISPATCH
from dask_slaq.simulation.jobs import SimulatedJob, calibrate, make_jobs, offered_load
from dask_slaq.simulation.laws import SCALINGS, Law, law
from dask_slaq.simulation.measures import Run, summarize
from dask_slaq.simulation.oracles import Foresight, KnownTimes, OraclePredictor, ShortestRemaining
from dask_slaq.simulation.simulator import Simulation, Watcher

__all__ = ["ORACLES", "Settings", "check_policy", "simulate"]

#: Names beside those of policies, and what knows more than a scheduler can: `oracle:POLICY` the
#: true curves and running times of jobs from their arrival, `oracle-curves:POLICY` the true curves
#: alone and `oracle-times:POLICY` the running times alone (the rest is learned), each of
#: `max-total` if no policy is named; `srtf-oracle` serves the job first that has the least time
#: left to 95 % of its loss reduction.
_KNOWING = ("oracle", "oracle-curves", "oracle-times")
ORACLES = (*_KNOWING, *(f"{kind}:POLICY" for kind in _KNOWING), "srtf-oracle")
_ORACLE_OF = "max-total"


@dataclass(frozen=True)
class Settings:
    """What is simulated; the defaults are those of the paper's §6.2.

    Attributes
    ----------
    jobs, cores : int
    interarrival : float
        Mean seconds between two arrivals.
    seeds, seed : int
        How many lists of jobs, and the seed of the first.
    noise : float
        Standard deviation of the noise on reports, in ranges of the curve.
    scaling : str
        True law of running times, one of `laws.SCALINGS`.
    move_pause : float
        Seconds in which a job computes nothing on a worker that it gained.
    max_cores : float, optional
        Threads that any one job can use at most.
    stragglers, straggling : float
        Share of the iterations that take `straggling` times as long.
    load : float, optional
        Core-seconds that arrive in a core-second; by default what makes the paper's setting.
    capacity : tuple of (seconds, cores)
        Changes of the number of cores.
    gap : float
        Least seconds between two decisions; 0 to react at once to arrivals and ends.
    dispatch : {"shares", "index"}
        Who has the threads between two decisions, see `dispatch.DISPATCH`.
    epoch, floor, normalizer
        As of `Engine`.
    """

    jobs: int = 160
    cores: int = 640
    interarrival: float = 15.0
    seeds: int = 6
    seed: int = 0
    noise: float = 0.0
    scaling: str = "linear"
    move_pause: float = 0.0
    max_cores: float | None = None
    stragglers: float = 0.0
    straggling: float = 4.0
    load: float | None = None
    capacity: tuple[tuple[float, int], ...] = ()
    gap: float = 0.0
    dispatch: str = "shares"
    epoch: float = 3.0
    floor: float = 0.5
    normalizer: str = "range"

    def __post_init__(self) -> None:
        Engine("fair", epoch=self.epoch, floor=self.floor, normalizer=self.normalizer)
        if self.scaling not in SCALINGS:
            allowed = ", ".join(SCALINGS)
            raise InvalidSetting(f"scaling must be one of {allowed}, not {self.scaling!r}")
        if self.dispatch not in DISPATCH:
            allowed = ", ".join(DISPATCH)
            raise InvalidSetting(f"dispatch must be one of {allowed}, not {self.dispatch!r}")
        for name in ("jobs", "cores", "seeds"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("interarrival", "noise", "move_pause", "stragglers", "gap"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidSetting(f"{name} must be a finite number >= 0, not {value!r}")
        for name, least in (("max_cores", 0.0), ("load", 0.0), ("straggling", 0.0)):
            value = getattr(self, name)
            if value is not None and not (value > least and math.isfinite(value)):
                raise InvalidSetting(f"{name} must be a finite number > {least:g}, not {value!r}")
        if self.load is not None and self.interarrival == 0:
            raise InvalidSetting("jobs that arrive all at once have no load: leave out one of both")
        times = [time for time, _ in self.capacity]
        if times != sorted(times) or any(time < 0 for time in times):
            raise InvalidSetting(
                f"the changes of capacity must be in order of time, not at {times}"
            )
        if any(cores < 1 for _, cores in self.capacity):
            raise InvalidSetting("every change of capacity must leave at least 1 core")


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
    progress: Callable[[int], object] | None = None,
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
    progress : callable, optional
        Called with a number of jobs that have ended.
    **options
        Single settings, see `Settings`.

    Returns
    -------
    dict
        ``{"policies": {name: figures}, "settings": {...}}``, see `measures.summarize`.

    Raises
    ------
    UnknownPolicy, InvalidSetting, CurveError

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
    lists = job_lists(found, settings)
    runs: dict[str, list[Run]] = {}
    for name in dict.fromkeys([*policies, "fair"]):
        runs[name] = [run(name, seed, jobs, settings, progress) for seed, jobs in lists]
    return {
        "policies": {
            name: summarize(runs[name], runs["fair"], settings.cores) for name in policies
        },
        "settings": {
            **asdict(settings),
            "curves": len(found),
            "offered_load": offered_load(lists[0][1], settings.cores),  # alike in all lists
        },
    }


def job_lists(curves: Sequence[Curve], settings: Settings) -> list[tuple[int, list[SimulatedJob]]]:
    """The jobs of every seed."""
    if settings.load is None:
        work = calibrate(curves)
    else:
        work = settings.load * settings.cores * settings.interarrival
    return [
        (
            seed,
            make_jobs(
                curves,
                seed,
                jobs=settings.jobs,
                interarrival=settings.interarrival,
                work=work,
                noise=settings.noise,
                stragglers=settings.stragglers,
                straggling=settings.straggling,
                partitioned=settings.scaling == "waves",
            ),
        )
        for seed in range(settings.seed, settings.seed + settings.seeds)
    ]


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
    common: dict[str, Any] = {"epoch": settings.epoch, "normalizer": settings.normalizer}
    if kind in ("", "oracle-times"):
        engine = Engine(of, floor=settings.floor, move_pause=settings.move_pause, **common)
        if kind:
            engine.jobs.runtimes = KnownTimes(engine.jobs, jobs, truth, settings.cores)
        return engine
    known = OraclePredictor({job.name: job.loss for job in jobs})
    # Of what is possible at best, nobody is held up by a floor.
    floor = 0.0 if kind == "srtf-oracle" else settings.floor
    engine = Engine(of, floor=floor, predictor=known, **common)
    if kind != "oracle-curves":
        engine.jobs.runtimes = KnownTimes(engine.jobs, jobs, truth, settings.cores)
    if kind == "srtf-oracle":
        engine.policy = ShortestRemaining(jobs, known, truth, settings.cores)
    elif kind == "oracle":
        engine.policy = Foresight(engine.policy, jobs, known, truth, settings.cores, **common)
    return engine


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
