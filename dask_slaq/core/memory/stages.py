"""Stages of past runs: what each took, and what like runs let expect of those to come."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping
from dataclasses import dataclass

from dask_slaq.core.memory.kinds import Kind, distance
from dask_slaq.core.memory.runs import MOST_KINDS, MOST_LIKE, kernel

#: Expected core-seconds and number of blocks of each stage, by name.
ExpectedStages = Mapping[str, tuple[float, float]]

#: Maximum number of runs kept per name of a kind: more than forecasts rest on, for some distance.
MOST_STAGED = 2 * MOST_LIKE


@dataclass(frozen=True, eq=False)
class StagedRun:
    """Stages of a job that was done: core-seconds and number of blocks, by name."""

    kind: Kind
    times: Mapping[str, tuple[float, int]]
    ended: float = 0.0


class PastStages:
    """Stages of past runs by the name of their kind, of which the oldest are forgotten.

    >>> past = PastStages()
    >>> past.add(StagedRun(Kind("churn"), {"features": (3.0, 1), "train": (1.0, 1)}))
    >>> past.add(StagedRun(Kind("churn"), {"features": (5.0, 1)}))
    >>> past.expected(Kind("churn"))
    {'features': (4.0, 1.0), 'train': (0.5, 1.0)}
    """

    def __init__(self) -> None:
        self._runs: OrderedDict[str, deque[StagedRun]] = OrderedDict()

    def add(self, run: StagedRun) -> None:
        """Add a run that has ended."""
        self._runs.setdefault(run.kind.name, deque(maxlen=MOST_STAGED)).append(run)
        self._runs.move_to_end(run.kind.name)
        if len(self._runs) > MOST_KINDS:
            self._runs.popitem(last=False)

    def expected(self, kind: Kind) -> dict[str, tuple[float, float]]:
        """Return means of the nearest runs of like kind, weighted by `kernel`."""
        found = [(distance(kind, run.kind), run) for run in self._runs.get(kind.name, ())]
        like = sorted(found, key=lambda pair: (pair[0], -pair[1].ended))[:MOST_LIKE]
        weights = kernel([apart for apart, _ in like]).tolist()
        expected: dict[str, tuple[float, float]] = {}
        for name in dict.fromkeys(name for _, run in like for name in run.times):
            some = [
                (w, *run.times[name])
                for w, (_, run) in zip(weights, like, strict=True)
                if name in run.times
            ]
            seconds = sum(weight * used for weight, used, _ in some)
            entered = sum(weight * blocks for weight, _, blocks in some)
            expected[name] = seconds, entered / sum(weight for weight, *_ in some)
        return expected


def check_times(times: object) -> dict[str, tuple[float, int]]:
    """Return times of stages that were read from a file. Raises ValueError if they are damaged."""
    if not isinstance(times, Mapping):
        raise ValueError("the stages are damaged")
    found = {}
    for name, (used, entered) in times.items():
        if not (0 < float(used) < 1e15 and int(entered) >= 1):
            raise ValueError("the times of a stage are damaged")
        found[str(name)] = float(used), int(entered)
    return found
