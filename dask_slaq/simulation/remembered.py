"""Past runs in simulations: their curves as jobs, and as the memory of the engine.

A run is never both: an engine that remembers the very curve of a job would know its future.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from dask_slaq.core.memory import Kind, PastRun, PastRuns
from dask_slaq.simulation.workload import Curve, SimulatedJob

__all__ = ["FORGETFUL", "Remembered", "fixed_memory", "losses_of"]

#: Ending of the name of a policy that runs without memory, beside itself with memory.
FORGETFUL = " without memory"
#: Maximum number of iterations of a run that are used.
MOST_ITERATIONS = 5_000


class _Fixed(PastRuns):
    """Past runs to which no job of the simulation is added: several jobs may share one curve."""

    def add(self, run: PastRun) -> None:
        """Ignore a job that ended."""


def fixed_memory(runs: Iterable[PastRun]) -> PastRuns:
    """Return a memory of these runs, oldest first, that stays as it is."""
    memory = _Fixed()
    for run in runs:
        PastRuns.add(memory, run)
    return memory


class Remembered:
    """Past runs of a store: of each kind, the later half are `curves` of jobs, the others `past`.

    The past runs are sorted by age, oldest first, and without running times: simulated jobs have
    sizes of their own, so they would mislead.
    """

    def __init__(self, runs: Sequence[PastRun]) -> None:
        by_kind: dict[str, list[PastRun]] = {}
        for run in sorted(runs, key=lambda run: run.ended):
            if len(run.iteration) > 1:
                by_kind.setdefault(run.kind.name, []).append(run)
        self.past: list[PastRun] = []
        self.curves: list[Curve] = []
        self._kind: dict[str, Kind] = {}
        for same in by_kind.values():
            half = len(same) // 2
            nan = math.nan
            self.past += [replace(run, work=nan, tasks=nan, law=None) for run in same[:half]]
            for run in same[half:]:
                name = f"{len(self.curves)}: {run.job}"
                self._kind[name] = run.kind
                self.curves.append(Curve(name, run.kind.name, losses_of(run), noisy=False))
        self.past.sort(key=lambda run: run.ended)

    def named(self, jobs: Iterable[SimulatedJob]) -> list[SimulatedJob]:
        """Return jobs with these curves, each with the kind of its run."""
        return [replace(job, kind=self._kind.get(job.curve)) for job in jobs]


def losses_of(run: PastRun) -> np.ndarray:
    """Return the loss of each iteration of a run, up to `MOST_ITERATIONS`."""
    return run.losses(1, min(int(run.iteration[-1]), MOST_ITERATIONS))
