"""Speeds of workers, from the compute times of like tasks on several of them.

A task's time is taken to be the product of what such tasks take and a factor of the worker. It is
exactly 1 unless it surely is not.
"""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict, deque
from collections.abc import Hashable, Iterable
from typing import NamedTuple

#: Maximum number of pairs of a worker and a group of like tasks that are kept.
MOST_PAIRS = 2048


class Known(NamedTuple):
    """Time of tasks on one worker, relative to a median worker."""

    factor: float  # 1 unless it surely differs
    estimate: float
    error: float  # standard error of the logarithm of the estimate


class _Times:
    """Logarithms of the newest compute times of a group on a worker."""

    def __init__(self) -> None:
        # Newest compute times that are kept of like tasks on one worker. Their median resists
        # outliers, and follows a change after four tasks.
        self.newest, self.seen = deque[float](maxlen=7), 0.0

    @property
    def median(self) -> float:
        return _median(self.newest)

    def is_of_now(self, newest: float) -> bool:
        """Whether it is as recent as the `newest` of its worker, which may have changed since."""
        return newest - self.seen <= 10.0 * max(math.exp(self.median), 1.0)


class WorkerSpeeds:
    """Factors of the compute times of workers."""

    def __init__(self) -> None:
        self.workers: dict[str, Known] = {}
        self._times: OrderedDict[tuple[Hashable, str], _Times] = OrderedDict()
        self._now, self._new = 0.0, False

    @property
    def unlike(self) -> bool:
        """Whether any worker surely differs."""
        return any(known.factor != 1.0 for known in self.workers.values())

    def observe(self, group: Hashable, worker: str, seconds: float) -> None:
        """Record the compute time of a finished task in seconds. O(1).

        Tasks of a `group` do the same on like amounts of data.
        """
        if not 0.005 <= seconds < math.inf:  # of a shorter one, mostly the overhead is measured
            return
        times = self._times.setdefault((group, worker), _Times())
        self._times.move_to_end((group, worker))
        if len(self._times) > MOST_PAIRS:
            self._times.popitem(last=False)
        times.newest.append(math.log(seconds))
        times.seen, self._new = self._now, True

    def factor(self, worker: str) -> float:
        """Return how much longer a task takes on a worker than on a median one; 1 if unsure."""
        known = self.workers.get(worker)
        return 1.0 if known is None else known.factor

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self.workers.pop(worker, None)
        for key in [key for key in self._times if key[1] == worker]:
            del self._times[key]

    def learn(self, now: float) -> None:
        """Find all factors. Until the next call, what is observed counts as of `now` (seconds)."""
        self._now = now
        if not self._new:
            return
        self._new = False
        for key in [k for k, times in self._times.items() if now - times.seen > 600.0]:
            del self._times[key]
        newest: defaultdict[str, float] = defaultdict(float)
        for (_, worker), times in self._times.items():
            newest[worker] = max(newest[worker], times.seen)
        groups: defaultdict[Hashable, dict[str, _Times]] = defaultdict(dict)
        for (group, worker), times in self._times.items():
            if times.is_of_now(newest[worker]):
                groups[group][worker] = times
        found: defaultdict[str, list[tuple[float, float]]] = defaultdict(list)
        for of_group in groups.values():
            if len(of_group) > 1:
                for worker, offset, variance in _offsets(of_group):
                    found[worker].append((offset, variance))
        self.workers = {worker: _known(offsets) for worker, offsets in found.items()}


def _median(values: Iterable[float]) -> float:
    """Return a median that is one of the values, the lower one of two."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) // 2]


def _offsets(
    of_group: dict[str, _Times], between: float = 0.2, within: float = 0.3
) -> list[tuple[str, float, float]]:
    """Return what each worker's logarithm has above that of a median one, and its variance.

    Spreads are `between` tasks on different workers, as one may hold the larger blocks of data, and
    `within` tasks on one worker, until four of them have ended.
    """
    # A worker, and not the middle between two: half of the workers may be slow.
    level = _median(times.median for times in of_group.values())
    spreads = [
        _median(abs(each - times.median) for each in times.newest)
        for times in of_group.values()
        if len(times.newest) >= 4
    ]
    if spreads:  # of a normal distribution, and of a median of seven
        within = 1.8 * sum(spreads) / len(spreads)
    found = []
    for worker, times in of_group.items():
        variance = between**2 + 1.57 * within**2 / len(times.newest)
        variance *= 1.0 + 1.57 / len(of_group)  # that of the level
        found.append((worker, times.median - level, variance))
    return found


def _known(offsets: list[tuple[float, float]], ratio: float = 1.25, errors: float = 4.0) -> Known:
    """Return the factor of a worker that differs by a `ratio`, and by so many standard `errors`."""
    weight = sum(1.0 / variance for _, variance in offsets)
    mean = sum(offset / variance for offset, variance in offsets) / weight
    # Groups that differ by more than they should say that the mean is less sure.
    misfit = sum((offset - mean) ** 2 / variance for offset, variance in offsets)
    error = math.sqrt(max(misfit / max(len(offsets) - 1, 1), 1.0) / weight)
    surely = abs(mean) > max(math.log(ratio), errors * error)
    return Known(math.exp(mean) if surely else 1.0, math.exp(mean), error)
