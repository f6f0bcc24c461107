"""Speeds of workers, from the compute times of like tasks on several of them.

A task's time is taken to be the product of what such tasks take and a factor of the worker. Both
are fitted in logarithms, each epoch. A factor is exactly 1 unless it surely is not. Where some
kinds of task differ, as with GPUs, they have their own factors.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray

#: Newest compute times that are kept of like tasks on one worker. Their median resists outliers,
#: and follows a change after four tasks.
KEPT = 7
#: Maximum number of pairs of a worker and a group of like tasks that are kept: some 1 MB.
MOST = 8192
#: Seconds of a task below which mostly its overhead is measured.
SHORTEST = 0.005
#: Spread of logarithms between the tasks of a group that lie on different workers: one may hold the
#: larger blocks of data. And the spread within a group, until four tasks on one worker have ended.
BETWEEN, WITHIN = 0.2, 0.3
#: A factor is used from this ratio on, if it is as many standard errors from 1; and until it is
#: below the second ones.
BEGINS, ENDS = (math.log(1.25), 4.0), (math.log(1.15), 2.5)
#: Seconds after which an observation has half its weight.
HALF_LIFE = 600.0
#: The same, counted to the newest observation of the worker, or of the kind there, as it may have
#: changed since. In seconds: at least, and per second of a task.
OUTDATED = 3.0
#: Steps of the fit of groups and workers. It begins at the last one.
STEPS = 8


class Known(NamedTuple):
    """Time of tasks on one worker, relative to a median worker."""

    factor: float  # 1 unless it surely differs
    estimate: float
    error: float  # standard error of the logarithm of the estimate


class _Fit(NamedTuple):
    """Logarithm of factors (n,), their standard errors, and which of them count as not 1."""

    value: FloatArray
    error: FloatArray
    unlike: BoolArray

    def known(self, i: Any) -> Known:
        """Return what is known of one of them."""
        estimate = math.exp(self.value[i])
        return Known(estimate if self.unlike[i] else 1.0, estimate, float(self.error[i]))


class WorkerSpeeds:
    """Factors of the compute times of workers, in all and by kind of task."""

    def __init__(self) -> None:
        self.workers: dict[str, Known] = {}
        self.kinds: dict[tuple[str, str], Known] = {}  # where they differ from their worker's
        self._place: dict[tuple[Hashable, str], int] = {}
        self._about: list[tuple[Hashable, str, str]] = []  # group, kind and worker, by place
        self._newest = np.full((MOST, KEPT), math.nan)
        self._count = np.zeros(MOST, np.int64)
        self._seen = np.zeros(MOST)
        self._now = 0.0
        self._new = False
        self._gone: set[str] = set()  # workers that left since the last fit
        self.unlike = False  # whether any worker surely differs

    def observe(self, group: Hashable, kind: str, worker: str, seconds: float) -> None:
        """Record the compute time of a finished task in seconds. O(1).

        Tasks of a `group` do the same on like amounts of data. A `kind` may have many groups.
        """
        if not SHORTEST <= seconds < math.inf:
            return
        place = self._place.get((group, worker))
        if place is None:
            if len(self._about) >= MOST:
                self._keep(np.argsort(-self._seen, kind="stable")[: MOST // 2])
            place = self._place[group, worker] = len(self._about)
            self._about.append((group, kind, worker))
        count = self._count[place]
        self._newest[place, count % KEPT] = math.log(seconds)
        self._count[place] = count + 1
        self._seen[place] = self._now
        self._new = True

    def factor(self, worker: str, kind: str = "") -> float:
        """Return how much longer a task takes on a worker than on a median one; 1 if unsure."""
        if self.kinds and (own := self.kinds.get((worker, kind))) is not None:
            return own.factor
        known = self.workers.get(worker)
        return 1.0 if known is None else known.factor

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self.workers.pop(worker, None)
        for key in [key for key in self.kinds if key[0] == worker]:
            del self.kinds[key]
        self._gone.add(worker)
        self._new = True

    def _keep(self, places: Iterable[int]) -> None:
        """Keep only some of the pairs of a group and a worker."""
        kept = np.sort(np.fromiter(places, np.int64))
        self._about = [self._about[i] for i in kept]
        self._place = {(group, worker): i for i, (group, _, worker) in enumerate(self._about)}
        for array, empty in ((self._newest, math.nan), (self._count, 0), (self._seen, 0.0)):
            array[: len(kept)] = array[kept]
            array[len(kept) :] = empty

    def learn(self, now: float) -> None:
        """Fit all factors. Until the next call, what is observed counts as of `now`, in seconds."""
        self._now = now
        if not self._new:
            return
        self._new = False
        if self._gone:  # all at once: workers often leave together
            self._keep(i for i, each in enumerate(self._about) if each[2] not in self._gone)
            self._gone.clear()
        names = list(dict.fromkeys(worker for *_, worker in self._about))
        workers = {name: i for i, name in enumerate(names)}
        kinds: dict[str, int] = {}
        groups: dict[Hashable, int] = {}
        group, kind, worker = (
            np.fromiter(numbers, np.int64, len(self._about))
            for numbers in (
                (groups.setdefault(each[0], len(groups)) for each in self._about),
                (kinds.setdefault(each[1], len(kinds)) for each in self._about),
                (workers[each[2]] for each in self._about),
            )
        )
        shared = np.bincount(group, minlength=len(groups))[group] > 1
        used = np.flatnonzero(shared)
        group, kind, worker = group[used], kind[used], worker[used]
        value, variance = self._measured(used, group, len(groups))
        seen, lasts = self._seen[used], OUTDATED * np.maximum(np.exp(value), 1.0)
        by_kind = variance * _doublings(_newest(worker * len(kinds) + kind, seen) - seen, lasts)
        variance = variance * _doublings(_newest(worker, seen) - seen, lasts)
        before = np.array(
            [math.log(self.workers[w].estimate) if w in self.workers else 0.0 for w in names]
        )
        offset = _fit(value, 1 / variance, group, worker, before)
        weight = 1 / variance
        others = np.bincount(group, weight, len(groups))[group] - weight  # of its group
        of_others = 1 / np.maximum(others, 1e-300)
        was = np.array(
            [name in self.workers and self.workers[name].factor != 1.0 for name in names]
        )
        fit = _combined(offset, variance + of_others, worker, len(names), was)
        self.workers = {
            name: fit.known(i) for name, i in workers.items() if fit.error[i] < math.inf
        }
        # Kinds of task that surely differ from the other tasks on their worker.
        by_kind, used = by_kind + of_others, np.where(fit.unlike, fit.value, 0.0)
        differing: dict[tuple[str, str], Known] = {}
        for name, k in kinds.items() if len(kinds) > 1 else ():
            if not len(mine := np.flatnonzero(kind == k)):
                continue
            was = np.array([(each, name) in self.kinds for each in names])
            own = _combined(offset[mine], by_kind[mine], worker[mine], len(names), was)
            apart = np.abs(own.value - used) > _least(own.error, was)
            for i in np.flatnonzero(apart & np.isfinite(own.error)):
                differing[names[i], name] = own.known(i)
        self.kinds = differing
        self.unlike = bool(self.kinds) or bool(fit.unlike.any())

    def _measured(
        self, used: IntArray, group: IntArray, n_groups: int
    ) -> tuple[FloatArray, FloatArray]:
        """Return the medians (n,) of the logarithms of seconds, and their variances."""
        if not len(used):
            return np.zeros(0), np.zeros(0)
        newest, count = self._newest[used], np.minimum(self._count[used], KEPT)
        value = _medians(newest, count)
        spread = _medians(np.abs(newest - value[:, None]), count)
        enough = (count >= 4).astype(float)
        cells = np.bincount(group, enough, n_groups)
        total = np.bincount(group, enough * spread, n_groups)
        # The factor is that of a normal distribution, and of a median of seven.
        within = np.divide(1.8 * total, cells, out=np.full(n_groups, WITHIN), where=cells > 0)
        variance = 1.57 * within[group] ** 2 / count + BETWEEN**2
        return value, variance * _doublings(self._now - self._seen[used], HALF_LIFE)


def _medians(rows: FloatArray, count: IntArray) -> FloatArray:
    """Return the medians (n,) of rows (n, width) of which `count` (n,) values are not nan."""
    each, ordered = np.arange(len(rows)), np.sort(rows, axis=1)
    return (ordered[each, (count - 1) // 2] + ordered[each, count // 2]) / 2


def _doublings(age: FloatArray, after: FloatArray | float) -> FloatArray:
    """Return factors (n,) that double with each `after` seconds of age."""
    return 2.0 ** np.clip(age / after, 0.0, 60.0)


def _newest(owner: IntArray, seen: FloatArray) -> FloatArray:
    """Return the latest time (n,) at which anything of the same owner was seen."""
    latest = np.full(owner.max(initial=-1) + 1, -math.inf)
    np.maximum.at(latest, owner, seen)
    return latest[owner]


def _fit(
    value: FloatArray, weight: FloatArray, group: IntArray, worker: IntArray, factor: FloatArray
) -> FloatArray:
    """Return what each value (n,) has above that of its group, beginning with some factors."""
    if not len(value):
        return value
    n_groups, n_workers = int(group.max()) + 1, len(factor)
    per_group = np.maximum(np.bincount(group, weight, n_groups), 1e-300)
    per_worker = np.bincount(worker, weight, n_workers)
    offset = value
    for _ in range(STEPS):
        level = np.bincount(group, weight * (value - factor[worker]), n_groups) / per_group
        offset = value - level[group]
        total = np.bincount(worker, weight * offset, n_workers)
        factor = np.divide(total, per_worker, out=np.zeros(n_workers), where=per_worker > 0)
    return offset


def _combined(
    offset: FloatArray, variance: FloatArray, worker: IntArray, n_workers: int, was: BoolArray
) -> _Fit:
    """Return the factors of workers, relative to a median one, from the offsets (n,) of groups."""
    weight = 1 / variance
    total = np.bincount(worker, weight, n_workers)
    known = total > 0
    mean = np.bincount(worker, weight * offset, n_workers)
    mean = np.divide(mean, total, out=np.zeros(n_workers), where=known)
    error = np.divide(1.0, np.sqrt(total), out=np.full(n_workers, math.inf), where=known)
    # Groups that differ by more than they should say that the mean is less sure.
    groups = np.bincount(worker, minlength=n_workers)
    misfit = np.bincount(worker, weight * (offset - mean[worker]) ** 2, n_workers)
    error *= np.sqrt(np.maximum(misfit / np.maximum(groups - 1, 1), 1.0))
    if known.any():
        # A worker, and not the middle between two: half of the workers may be slow.
        mean = mean - np.sort(mean[known])[(np.count_nonzero(known) - 1) // 2]
    return _Fit(np.where(known, mean, 0.0), error, known & (np.abs(mean) > _least(error, was)))


def _least(error: FloatArray, was: BoolArray) -> FloatArray:
    """Return the logarithms (n,) from which on factors count, for those that `was` true or not."""
    begins, ends = (np.maximum(ratio, errors * error) for ratio, errors in (BEGINS, ENDS))
    return np.where(was, ends, begins)
