"""Job lists of repeated training, and memories of past runs that are right, partial or wrong."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.live_jobs.emulated import PARTITIONS, WORK, EmulatedJob, arrivals_of
from benchmarks.memory.kinds import KnownKind, PastCurve, past_run
from dask_slaq.core.run_history import Kind, PastRun

Array = NDArray[np.float64]

#: What the memory holds of the kinds of the jobs.
SCENARIOS = ("none_known", "half_known", "all_known", "misleading")
#: Sizes of the data of a run, relative to those that are usual for its kind.
SIZES = (0.8, 1.25)


@dataclass(frozen=True)
class RepeatedJobs:
    """Jobs of one run, their kinds by name, and the past runs in each scenario."""

    jobs: list[EmulatedJob]
    kinds: dict[str, Kind]
    memory: dict[str, list[PastRun]]


def repeated_jobs(
    kinds: Sequence[KnownKind],
    arrival: str,
    seed: int,
    *,
    count: int | None = None,
    scale: float = 1.0,
    noise: float = 0.0,
) -> RepeatedJobs:
    """Draw a list of jobs (by default as many as in `benchmarks.live`) from kinds that ran before.

    The total work has a `scale` relative to a full run. The `noise` of reports, and of past runs as
    well, is a standard deviation relative to the range of the curve.
    """
    rng = np.random.default_rng([seed, 4 if arrival == "staggered" else 5])
    arrivals = arrivals_of(arrival, rng, count, scale)
    order = rng.permutation(len(kinds))
    drawn = [int(order[i % len(kinds)]) for i in range(len(arrivals))]
    tasks = rng.choice(PARTITIONS, len(kinds))
    usual = np.array([np.mean([len(run.loss) for run in kind.past]) for kind in kinds])
    work = rng.uniform(0.5, 1.5, len(kinds)) / usual  # of an iteration, in a unit chosen below
    runs = [kinds[k].tested[drawn[:i].count(k) % len(kinds[k].tested)] for i, k in enumerate(drawn)]
    own = rng.uniform(*SIZES, len(drawn)) * work[drawn]
    unit = scale * WORK / sum(w * len(run.loss) for w, run in zip(own, runs, strict=True))
    jobs = []
    kind_of = {}
    for i, (k, run) in enumerate(zip(drawn, runs, strict=True)):
        name, n = f"job-{i:02d}", len(run.loss)
        jitter = rng.uniform(0.8, 1.2, (n, tasks[k]))
        jobs.append(
            EmulatedJob(
                name=name,
                curve=kinds[k].name,
                arrival=float(arrivals[i]),
                loss=run.loss,
                reports=_noisy(run.loss, noise, rng),
                seconds=unit * own[i] / tasks[k] * jitter,
                kind={"name": kinds[k].name, **{f: 10.0**x for f, x in run.features.items()}},
            )
        )
        kind_of[name] = Kind(kinds[k].name, tuple(sorted(run.features.items())))
    past = {}
    for k in sorted(set(drawn)):
        some = [(PastCurve(r.features, _noisy(r.loss, noise, rng))) for r in kinds[k].past]
        past[k] = some, unit * work[k] * rng.uniform(*SIZES, len(some)), float(tasks[k])
    return RepeatedJobs(jobs, kind_of, _memories(kinds, past, rng))


def _noisy(loss: Array, noise: float, rng: np.random.Generator) -> Array:
    return loss + noise * np.ptp(loss) * rng.standard_normal(len(loss))


def _memories(
    kinds: Sequence[KnownKind],
    past: dict[int, tuple[list[PastCurve], Array, float]],
    rng: np.random.Generator,
) -> dict[str, list[PastRun]]:
    """Return the past runs of each scenario. If they mislead, kinds have each other's runs."""
    shuffled = rng.permutation(list(past)).tolist()
    half = set(shuffled[: len(shuffled) // 2])
    other = dict(zip(shuffled, [*shuffled[1:], shuffled[0]], strict=True))
    memory: dict[str, list[PastRun]] = {name: [] for name in SCENARIOS}
    for k in past:
        name = kinds[k].name
        mine = [past_run(c, name, f"{name} {i}", w, past[k][2]) for i, c, w in _each(past[k])]
        memory["all_known"] += mine
        memory["half_known"] += mine if k in half else []
        own = kinds[k].past
        memory["misleading"] += [
            past_run(
                PastCurve(own[i % len(own)].features, c.loss),
                name,
                f"{name} {i}",
                w,
                past[other[k]][2],
            )
            for i, c, w in _each(past[other[k]])
        ]
    return memory


def _each(past: tuple[list[PastCurve], Array, float]) -> list[tuple[int, PastCurve, float]]:
    curves, work, _ = past
    return [(i, curve, float(work[i])) for i, curve in enumerate(curves)]
