"""Ernest's scaling law for many jobs at once: time of an iteration as a function of its threads.

One iteration on N threads takes ``a + b/N + c.log N + d.N`` seconds: a serial part, parallel work,
a tree of sums, and a cost per thread, all nonnegative (Ernest, NSDI 2016). Times are fitted by
least squares on relative errors. The fit needs only sums of squares and products.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dask_slaq.core.job_arrays import BoolArray, FloatArray

#: Number of terms of the law: constant, 1/N, log N, N.
N_TERMS = 4
#: Law of a job that scales linearly, in units of its time on one thread.
LINEAR: FloatArray = np.array([0.0, 1.0, 0.0, 0.0])
#: Pairs of terms in the order of `moments`. The last term is the observation itself.
_LEFT, _RIGHT = np.triu_indices(N_TERMS + 1)
#: Power of a job's unit of time in each pair.
_POWER = (_LEFT < N_TERMS).astype(float) + (_RIGHT < N_TERMS)
#: Number of times that each pair occurs in a square matrix.
_TIMES = np.where(_LEFT == _RIGHT, 1.0, 2.0)


def features(threads: ArrayLike) -> FloatArray:
    """Return the terms of the law, (n, 4), at `threads` (n,), each at least 1."""
    n = np.asarray(threads, dtype=float)
    return np.stack([np.ones_like(n), 1.0 / n, np.log(n), n], axis=-1)


def fitted_seconds(law: FloatArray, threads: FloatArray) -> FloatArray:
    """Return the time (n,) of an iteration by laws (n, 4) on `threads` (n,), each at least 1."""
    seconds = law[..., 0] + law[..., 1] / threads + law[..., 3] * threads
    if law[..., 2].any():
        seconds += law[..., 2] * np.log(threads)
    return np.asarray(seconds)


def moments(threads: FloatArray, seconds: FloatArray) -> FloatArray:
    """Return the moments (n, 15) of one observation per job; those of several add up."""
    terms = np.empty((len(threads), N_TERMS + 1))
    np.divide(features(threads), seconds[:, None], out=terms[:, :N_TERMS])
    terms[:, N_TERMS] = 1.0
    return terms[:, _LEFT] * terms[:, _RIGHT]


def rescaled(sums: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the moments (n, 15) of the same observations in new units of `unit` (n,) seconds."""
    out: FloatArray = sums * np.asarray(unit, dtype=float)[:, None] ** _POWER
    return out


def pooled(sums: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the moments (15,) of all jobs together, each in units of `unit` (n,) seconds."""
    powers = np.column_stack([np.ones_like(unit), unit, unit * unit])
    return total(sums * powers[:, _POWER.astype(int)])


def total(terms: FloatArray) -> FloatArray:
    """Return the sum of the rows of `terms` (n, k), bit for bit independent of their order."""
    found: FloatArray = np.sort(terms, axis=0).sum(axis=0)
    return found


def residual(sums: FloatArray, law: FloatArray) -> FloatArray:
    """Return the sum of squared relative errors (n,) that each law (n, 4) leaves, at least 0."""
    less = np.concatenate([law, np.full((len(law), 1), -1.0)], axis=1)
    pairs = less[:, _LEFT] * less[:, _RIGHT]
    left: FloatArray = np.maximum((sums * pairs * _TIMES).sum(axis=1), 0.0)
    return left


def scale_of(sums: FloatArray, shape: FloatArray) -> FloatArray:
    """Return the factor (n,) by which one law `shape` (4,) fits each job best; 1 if unobserved."""
    terms = np.append(shape, 1.0)
    pairs = terms[_LEFT] * terms[_RIGHT]
    across = (sums * np.where(_POWER == 1, pairs, 0.0)).sum(axis=1)
    along = (sums * np.where(_POWER == 2, pairs * _TIMES, 0.0)).sum(axis=1)
    return np.where(along > 0, across / np.where(along > 0, along, 1.0), 1.0)


def fit(sums: FloatArray) -> FloatArray:
    """Return the laws (n, 4) with the least squared relative errors for moments (n, 15)."""
    full = np.empty((len(sums), N_TERMS + 1, N_TERMS + 1))
    full[:, _LEFT, _RIGHT] = sums
    full[:, _RIGHT, _LEFT] = sums
    return nnls(full[:, :N_TERMS, :N_TERMS], full[:, :N_TERMS, N_TERMS])


def optimum(law: FloatArray) -> FloatArray:
    """Return the threads (n,) on which each law (n, 4) is fastest; inf if more always help."""
    work, tree, each = law[:, 1], law[:, 2], law[:, 3]
    # The root of d N^2 + c N - b = 0, in a form that is also accurate for small d.
    below = tree + np.sqrt(tree * tree + 4.0 * each * work)
    best = np.divide(2.0 * work, below, out=np.full(len(law), np.inf), where=below > 0)
    return np.where((work > 0) | (tree + each == 0), best, 1.0)


def efficient(law: FloatArray, part: float) -> FloatArray:
    """Return the threads (n,) beyond which a further one adds less than `part` of the mean speed.

    That is where ``b/N - c - d N = part (a + b/N + c log N + d N)``, quadratic but for the
    logarithm, which is taken from the previous of ten solutions: exact to a percent.
    """
    least, work, tree, each = law.T
    squared, free = (1.0 + part) * each, (1.0 - part) * work
    log = np.zeros(len(law))
    for _ in range(10):
        once = part * least + tree * (1.0 + part * log)
        below = once + np.sqrt(once * once + 4.0 * squared * free)
        with np.errstate(over="ignore"):
            best = np.divide(2.0 * free, below, out=np.full(len(law), np.inf), where=below > 0)
        log = np.log(np.clip(best, 1.0, 1e9))
    return np.asarray(np.maximum(best, 1.0))


def bounded(law: FloatArray, least: FloatArray, threads: FloatArray) -> FloatArray:
    """Return laws (n, 4) with an optimum of at least `least`, and equal times on `threads`."""
    fall, rise = law[:, 1], law[:, 2] * least + law[:, 3] * least * least
    kept = np.divide(fall, rise, out=np.ones_like(fall), where=rise > fall)
    out = law * np.stack([np.ones_like(kept), np.ones_like(kept), kept, kept], axis=1)
    out[:, 0] += fitted_seconds(law, threads) - fitted_seconds(out, threads)
    return np.asarray(out)


#: A term of which the others explain all but this fraction is left out: it is not identifiable.
_SAME = 1e-10


def nnls(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Solve small nonnegative least-squares problems with Gram matrices (n, k, k) exactly.

    Each solution (n, k) is the best nonnegative one among those of all subsets of terms, a tree in
    which each differs from its parent by one sweep of Gauss-Jordan for all jobs at once.
    """
    return _Subsets(gram, right).best()


class _Subsets:
    """Search of `nnls` through the subsets of terms. Jobs are the last axis of its arrays."""

    def __init__(self, gram: FloatArray, right: FloatArray) -> None:
        n, self.k = right.shape
        diagonal = np.sqrt(np.einsum("nii->ni", gram))
        # All terms have size 1, so the rest of a term after a sweep shows whether it is redundant.
        self.unit = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        table = np.empty((self.k + 1, self.k + 1, n))
        table[: self.k, : self.k] = np.moveaxis(
            gram * self.unit[:, :, None] * self.unit[:, None, :], 0, -1
        )
        table[self.k, : self.k] = table[: self.k, self.k] = (right * self.unit).T
        table[self.k, self.k] = 0.0
        self.least = np.zeros(n)
        self.which = np.zeros(n, dtype=np.int64)
        self.solutions: list[tuple[tuple[int, ...], FloatArray]] = [((), np.zeros((0, n)))]
        self._visit(table, (), 0, np.ones(n, dtype=bool))

    def best(self) -> FloatArray:
        """Return the solutions, (n, k)."""
        x: FloatArray = np.zeros(self.unit.shape)
        for number, (subset, solution) in enumerate(self.solutions):
            mine = np.flatnonzero(self.which == number)
            if len(mine) and subset:
                x[mine[:, None], subset] = solution[:, mine].T
        x *= self.unit
        return x

    def _visit(
        self, table: FloatArray, chosen: tuple[int, ...], first: int, sound: BoolArray
    ) -> None:
        """Try all subsets that contain `chosen` and at least one of the terms from `first` on.

        Jobs that are not `sound` are ignored: a chosen term is redundant for them.
        """
        for term in range(first, self.k):
            done, ahead = len(chosen), term - first
            pivot = table[done + ahead, ahead]
            good = sound & (pivot > _SAME)
            row = table[done + ahead, ahead + 1 :] / np.where(good, pivot, 1.0)
            keep = [*range(done), *range(done + ahead + 1, len(table))]
            rest = table[keep, ahead + 1 :] - table[keep, ahead, None] * row
            child = np.concatenate([rest[:done], row[None], rest[done:]])
            self._judge((*chosen, term), child, good)
            if term + 1 < self.k:
                self._visit(child, (*chosen, term), term + 1, good)

    def _judge(self, subset: tuple[int, ...], table: FloatArray, sound: BoolArray) -> None:
        solution, left = table[: len(subset), -1], table[-1, -1]
        better = sound & (left < self.least) & (solution >= 0).all(axis=0)
        self.least = np.where(better, left, self.least)
        self.which[better] = len(self.solutions)
        self.solutions.append((subset, solution))
