"""Kinds of jobs with runs of the past and runs to be tested, which never share a loss curve."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.common.curves import resample
from benchmarks.curves.repeated import FAMILIES, run_of_kind
from dask_slaq.core.run_history import Kind, PastRun, thinned
from dask_slaq.lab.simulation.workload.curves import LossCurve, fit_for_jobs, parse, records

Array = NDArray[np.float64]

#: Range of the usual iterations of a kind, as in `benchmarks.live`, and by which those of a run
#: differ.
ITERATIONS, VARIED = (14, 24), (0.8, 1.25)
#: Runs of the past of each kind, and runs to be tested.
PAST, TESTED = 5, 3


@dataclass(frozen=True)
class PastCurve:
    """One run: its parameters in orders of magnitude, and its loss curve."""

    features: dict[str, float]
    loss: Array


@dataclass(frozen=True)
class KnownKind:
    """One kind of job: runs of the past, and runs of which the jobs of a list are drawn."""

    name: str
    past: list[PastCurve]
    tested: list[PastCurve]


def trained(seed: int) -> list[KnownKind]:
    """Train one kind of each family, with other parameters and seeds in each run."""
    found = []
    for number, family in enumerate(FAMILIES):
        rng = np.random.default_rng([seed, 0, number, 7])
        usual = rng.uniform(*ITERATIONS)
        runs: list[PastCurve] = []
        for tried in range(4 * (PAST + TESTED)):
            iterations = round(usual * rng.uniform(*VARIED))
            made = run_of_kind(family, 1000 * seed, tried, iterations)
            if fit_for_jobs([LossCurve("", "", made.loss, False)]):
                runs.append(PastCurve(made.features, made.loss))
            if len(runs) == PAST + TESTED:
                found.append(KnownKind(f"{family} 0", runs[:PAST], runs[PAST:]))
                break
    return found


def from_files(paths: Iterable[str | Path], seed: int) -> list[KnownKind]:
    """Group the curves of files by repository and model, and draw which are of the past.

    The files have JSON lines with ``id``, ``loss``, and any of ``repo``, ``model``, ``algorithm``.
    Groups have several runs, which are brought to about the same number of iterations, since
    programs log at different intervals.
    """
    rng = np.random.default_rng([seed, 8])
    groups: dict[str, list[LossCurve]] = {}
    for path in paths:
        for record in records(path, ValueError, lambda record, _: record):
            curve = parse(record)
            if fit_for_jobs([curve]):
                groups.setdefault(_group(record), []).append(curve)
    found = []
    for name, curves in sorted(groups.items()):
        if len(curves) < 2:
            continue
        usual = rng.uniform(*ITERATIONS)
        runs = [
            PastCurve({}, resample(curves[i], round(usual * rng.uniform(*VARIED))))
            for i in rng.permutation(len(curves))
        ]
        n_tested = min(TESTED, max(1, len(runs) // 3))
        found.append(KnownKind(name, runs[n_tested:], runs[:n_tested]))
    return found


def _group(record: dict[str, Any]) -> str:
    known = [record[key] for key in ("repo", "model", "algorithm") if record.get(key)]
    return " / ".join(map(str, known)) or str(record.get("source") or record["id"])


def past_run(curves: PastCurve, kind: str, name: str, work: float, tasks: float) -> PastRun:
    """Return what a memory keeps of a run with so many core-seconds and tasks per iteration."""
    iteration = np.arange(1, len(curves.loss) + 1)
    kept = thinned(iteration)
    return PastRun(
        name,
        Kind(kind, tuple(sorted(curves.features.items()))),
        iteration[kept],
        curves.loss[kept],
        len(curves.loss),
        work=work,
        tasks=tasks,
    )
