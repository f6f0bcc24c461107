"""Job lists of repeated training, and memories of past runs that are right, partial or wrong."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.live_jobs.emulated import PARTITIONS, WORK, EmulatedJob, arrivals_of
from benchmarks.memory.kinds import KnownKind, past_run
from dask_slaq.core.memory import Kind, Run

__all__ = ["SCENARIOS", "RepeatedJobs", "repeated_jobs"]

Array = NDArray[np.float64]

#: What the memory holds of the kinds of the jobs.
SCENARIOS = ("none_known", "half_known", "all_known", "misleading")
#: By how much the data of a run differ in size from those of other runs of its kind.
SIZES = (0.8, 1.25)


@dataclass(frozen=True)
class RepeatedJobs:
    """Jobs of one run, their kinds, and the memory in each scenario.

    Attributes
    ----------
    jobs : list of EmulatedJob
    kinds : dict of str to Kind
        Kind of each job by its name.
    memory : dict of str to list of Run
        Past runs by scenario.
    """

    jobs: list[EmulatedJob]
    kinds: dict[str, Kind]
    memory: dict[str, list[Run]]


def repeated_jobs(
    kinds: list[KnownKind], arrival: str, seed: int, *, count: int | None = None,
    scale: float = 1.0, noise: float = 0.0, told: bool = False,
) -> RepeatedJobs:  # fmt: skip
    """Draw a list of jobs from kinds that have run before.

    Parameters
    ----------
    kinds : list of KnownKind
    arrival : {"staggered", "burst"}
    seed : int
    count : int, optional
        Number of jobs; by default as in `benchmarks.live`.
    scale : float
        Relative length of the run.
    noise : float
        Standard deviation of the noise of reports, relative to the range of the curve. Past runs
        have the same noise.
    told : bool
        Whether jobs announce their number of iterations.
    """
    rng = np.random.default_rng([seed, 4 if arrival == "staggered" else 5])
    arrivals = arrivals_of(arrival, rng, count, scale)
    order = rng.permutation(len(kinds))
    drawn = [order[i % len(kinds)] for i in range(len(arrivals))]
    partitions = rng.choice(PARTITIONS, len(kinds))
    size = rng.uniform(0.5, 1.5, len(kinds))  # of a whole job
    usual = np.array([np.mean([len(run.loss) for run in kind.past]) for kind in kinds])
    work = size / usual  # of an iteration, in a unit that is chosen below
    runs, used = [], dict.fromkeys(range(len(kinds)), 0)
    for k in drawn:
        runs.append(kinds[k].tested[used[k] % len(kinds[k].tested)])
        used[k] += 1
    own = rng.uniform(*SIZES, len(drawn)) * work[drawn]
    unit = scale * WORK / sum(w * len(run.loss) for w, run in zip(own, runs, strict=True))
    jobs, kind_of = [], {}
    for i, (k, run) in enumerate(zip(drawn, runs, strict=True)):
        name = f"job-{i:02d}"
        tasks = int(partitions[k])
        jitter = rng.uniform(0.8, 1.2, (len(run.loss), tasks))
        span = np.ptp(run.loss)
        jobs.append(
            EmulatedJob(
                name=name,
                curve=kinds[k].name,
                arrival=float(arrivals[i]),
                loss=run.loss,
                reports=run.loss + noise * span * rng.standard_normal(len(run.loss)),
                seconds=unit * own[i] / tasks * jitter,
                max_iter=len(run.loss) if told else None,
            )
        )
        kind_of[name] = Kind(kinds[k].name, tuple(sorted(run.features.items())))
    met = sorted(set(drawn))
    past = {}
    for k in met:
        past[k] = []
        for run in kinds[k].past:
            noisy = run.loss + noise * np.ptp(run.loss) * rng.standard_normal(len(run.loss))
            size_of_data = rng.uniform(*SIZES)
            past[k].append((type(run)(run.features, noisy), unit * work[k] * size_of_data))
    shuffled = rng.permutation(met)
    half = set(shuffled[: len(met) // 2].tolist())
    wrong = dict(zip(shuffled.tolist(), np.roll(shuffled, 1).tolist(), strict=True))
    memory: dict[str, list[Run]] = {name: [] for name in SCENARIOS}
    for k in met:
        mine = _runs(kinds[k].name, past[k], partitions[k])
        memory["all_known"] += mine
        if k in half:
            memory["half_known"] += mine
        others = wrong[k]
        memory["misleading"] += _runs(
            kinds[k].name, past[others], partitions[others], {**kind_of_features(kinds[k])}
        )
    return RepeatedJobs(jobs, kind_of, memory)


def kind_of_features(kind: KnownKind) -> dict[str, float]:
    """Return the parameters of the first of the past runs."""
    return dict(kind.past[0].features)


def _runs(name, past, tasks, features=None) -> list[Run]:
    found = []
    for i, (run, work) in enumerate(past):
        if features is not None:
            run = type(run)(features, run.loss)
        found.append(past_run(run, name, f"{name}-past-{i}", float(work), float(tasks)))
    return found
