"""Past runs: what is kept of a job that has ended, and what like runs let expect."""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.run_history.kinds import Kind, distance

#: Maximum number of points kept of one loss curve.
MOST_POINTS = 64
#: Maximum number of runs kept per name of a kind, and of such names.
MOST_RUNS_PER_KIND, MOST_KINDS = 64, 1000
#: Maximum number of like runs on which a forecast rests.
MOST_LIKE_RUNS = 8


@dataclass(frozen=True, eq=False)
class PastRun:
    """A job that has ended. Runs are equal only to themselves."""

    job: str
    kind: Kind
    iteration: IntArray  # (n,) increasing from 1, at most `MOST_POINTS`: those whose loss is kept
    loss: FloatArray  # (n,) loss after each of these, in raw units
    iterations: int  # when it ended
    outcome: str = (
        "done"  # or "stopped" or "failed", which do not tell how many iterations it takes
    )
    work: float = math.nan  # core-seconds per iteration, nan if unknown
    tasks: float = math.nan  # parallel tasks of an iteration, nan if unknown
    law: tuple[float, ...] | None = None  # Ernest's, in seconds, if it did not scale linearly
    ended: float = 0.0  # seconds since 1970

    def losses(self, first: int, last: int) -> FloatArray:
        """Return the loss of each iteration from `first` to `last`, interpolated."""
        return np.interp(np.arange(first, last + 1), self.iteration, self.loss)


def thinned(iteration: IntArray) -> IntArray:
    """Return positions of a curve to keep: the first, the last, and some evenly in log."""
    n = len(iteration)
    if n <= MOST_POINTS:
        return np.arange(n)
    wanted = np.geomspace(iteration[0], iteration[-1], MOST_POINTS)
    return np.unique(np.searchsorted(iteration, wanted.round()).clip(0, n - 1))


class PastRuns:
    """Past runs by the name of their kind, of which the oldest are forgotten.

    There are at most `MOST_RUNS_PER_KIND` runs of kinds of one name, and `MOST_KINDS` names: then
    the one that was added to least recently goes, with its runs. Runs that are done stay longer: a
    program that fails again and again would else push out those from which forecasts are made.

    >>> import numpy as np
    >>> runs = PastRuns()
    >>> for rows in (3.0, 4.0, 6.0):
    ...     kind = Kind("sgd", (("rows", rows),))
    ...     runs.add(PastRun(f"{rows:g}", kind, np.array([1, 2]), np.array([1.0, 0.5]), 2))
    >>> [(run.job, apart) for run, apart in runs.like(Kind("sgd", (("rows", 4.75),)))]
    [('4', 0.75), ('6', 1.25), ('3', 1.75)]
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[str, deque[PastRun]] = OrderedDict()

    def __len__(self) -> int:
        return sum(map(len, self._runs.values()))

    def __iter__(self) -> Iterator[PastRun]:
        for runs in self._runs.values():
            yield from runs

    def knows(self, name: str) -> bool:
        """Return whether there is a run of kinds of that name."""
        return name in self._runs

    def add(self, run: PastRun) -> None:
        """Add a run. O(1)."""
        runs = self._runs.setdefault(run.kind.name, deque(maxlen=MOST_RUNS_PER_KIND))
        if len(runs) == MOST_RUNS_PER_KIND:
            failed = (old for old in runs if old.outcome != "done")
            runs.remove(next(failed, runs[0]))
        runs.append(run)
        self._runs.move_to_end(run.kind.name)
        if len(self._runs) > MOST_KINDS:
            self._runs.popitem(last=False)

    def like(self, kind: Kind) -> list[tuple[PastRun, float]]:
        """Return the nearest runs of like kind, and their `distance`; those that failed at last."""
        runs = self._runs.get(kind.name, ())
        found = [(run, distance(kind, run.kind)) for run in runs]
        found.sort(key=_by_distance)
        found.sort(key=lambda pair: pair[0].outcome != "done")
        return sorted(found[:MOST_LIKE_RUNS], key=_by_distance)


def _by_distance(pair: tuple[PastRun, float]) -> tuple[float, float, str]:
    run, apart = pair
    return apart, -run.ended, run.job


def kernel(distances: Sequence[float]) -> FloatArray:
    """Return weights of past runs at these distances: a Gaussian as wide as they are far."""
    apart = np.asarray(distances, dtype=np.float64)
    if not len(apart):
        return apart
    # At least half an order of magnitude, for runs of one and the same kind: parameters that differ
    # by a factor of three change a curve visibly, but rarely its character.
    width = max(0.5, float(apart.mean()))
    nearest: FloatArray = apart.min() / width
    weight = np.exp(-0.5 * ((apart / width) ** 2 - nearest**2))
    return weight / weight.sum()


class ExpectedTime(NamedTuple):
    """Expected running time of one iteration."""

    work: float  # core-seconds, 0 if unknown
    width: float  # parallel tasks, 0 if unknown
    law: tuple[float, ...] | None  # Ernest's law in seconds, None for linear scaling


def expected_time(like: Sequence[tuple[PastRun, float]]) -> ExpectedTime:
    """Return the running time that runs at these distances let expect, by `kernel`."""
    known = [(run, apart) for run, apart in like if run.work > 0 and math.isfinite(run.work)]
    if not known:
        return ExpectedTime(0.0, 0.0, None)
    weight = kernel([apart for _, apart in known])
    work = math.exp(float(weight @ np.log([run.work for run, _ in known])))
    tasks = np.array([run.tasks if run.tasks >= 1 else 1.0 for run, _ in known])
    width = math.exp(float(weight @ np.log(tasks)))
    laws = [run.law for run, _ in known]
    lawful = np.array([law is not None for law in laws])
    law = None
    if weight[lawful].sum() >= 0.5:
        law = next(law for law in laws if law is not None)
    return ExpectedTime(work, width, law)
