"""Ernest's scaling law for many jobs at once: time of an iteration as a function of its threads.

One iteration on N threads takes ``a + b/N + c.log N + d.N`` seconds: a serial part, parallel work,
a tree of sums, and a cost per thread, all nonnegative (Ernest, NSDI 2016). Times are fitted by
least squares on relative errors. The fit needs only sums of squares and products.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray

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
    return sums * np.asarray(unit, dtype=float)[:, None] ** _POWER


def pooled(sums: FloatArray, unit: FloatArray) -> FloatArray:
    """Return the moments (15,) of all jobs together, each in units of `unit` (n,) seconds."""
    powers = np.column_stack([np.ones_like(unit), unit, unit * unit])
    return total(sums * powers[:, _POWER.astype(int)])


def total(terms: FloatArray) -> FloatArray:
    """Return the sum of the rows of `terms` (n, k), bit for bit independent of their order."""
    return np.sort(terms, axis=0).sum(axis=0)


def residual(sums: FloatArray, law: FloatArray) -> FloatArray:
    """Return the sum of squared relative errors (n,) that each law (n, 4) leaves, at least 0."""
    less = np.concatenate([law, np.full((len(law), 1), -1.0)], axis=1)
    pairs = less[:, _LEFT] * less[:, _RIGHT]
    return np.maximum((sums * pairs * _TIMES).sum(axis=1), 0.0)


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


def nnls(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Solve small nonnegative least-squares problems with Gram matrices (n, k, k) exactly.

    Each solution (n, k) is the best nonnegative one among those of all subsets of terms, a tree in
    which each differs from its parent by one sweep of Gauss-Jordan for all jobs at once.
    """
    n, k = right.shape
    diagonal = np.sqrt(np.einsum("nii->ni", gram))
    # All terms have size 1, so the rest of a term after a sweep shows whether it is redundant.
    unit = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    whole = np.empty((k + 1, k + 1, n))  # jobs are the last axis
    whole[:k, :k] = np.moveaxis(gram * unit[:, :, None] * unit[:, None, :], 0, -1)
    whole[k, :k] = whole[:k, k] = (right * unit).T
    whole[k, k] = 0.0
    least, x = np.zeros(n), np.zeros((k, n))

    def visit(table: FloatArray, chosen: tuple[int, ...], first: int, sound: BoolArray) -> None:
        """Try all subsets with `chosen` and a term from `first` on, where jobs are `sound`."""
        for term in range(first, k):
            done, ahead = len(chosen), term - first
            pivot = table[done + ahead, ahead]
            # A term of which the others explain all but this fraction is left out: it is not
            # identifiable.
            good = sound & (pivot > 1e-10)
            row = table[done + ahead, ahead + 1 :] / np.where(good, pivot, 1.0)
            keep = [*range(done), *range(done + ahead + 1, len(table))]
            rest = table[keep, ahead + 1 :] - table[keep, ahead, None] * row
            child = np.concatenate([rest[:done], row[None], rest[done:]])
            subset, solution, left = (*chosen, term), child[: done + 1, -1], child[-1, -1]
            better = np.flatnonzero(good & (left < least) & (solution >= 0).all(axis=0))
            least[better] = left[better]
            x[:, better] = 0.0
            x[np.array(subset)[:, None], better] = solution[:, better]
            visit(child, subset, term + 1, good)

    visit(whole, (), 0, np.ones(n, dtype=bool))
    return x.T * unit


#: Maximum weight of past jobs, in observations.
MOST_OBSERVATIONS = 100.0
#: Relative error below which linear scaling is good enough.
ERROR_PART = 0.1


class Population:
    """Common scaling law `shape` (4,) of all jobs, in units of the time on the usual threads."""

    def __init__(self) -> None:
        threads = np.array([1.0, 2.0, 4.0])  # higher counts would outweigh what is observed there
        linear = moments(threads, 1.0 / threads)
        self.nonlinear = False
        self.shape: FloatArray = LINEAR
        self._remembered: FloatArray = linear.mean(axis=0) * 2.0  # observations
        self._pool: FloatArray = self._remembered
        # Sums of squares, sum and number of the logs of optima: of past jobs, and of all jobs.
        self._optima_gone: FloatArray = np.zeros(3)
        self._optima: FloatArray = np.zeros(3)

    def remember(self, sums: FloatArray, optima: FloatArray) -> None:
        """Keep the moments (n, 15) of jobs that ended, and the optima (m,) of nonlinear ones."""
        self._remembered = _at_most(self._remembered + self._on_one_scale(sums), MOST_OBSERVATIONS)
        self._optima_gone = _at_most(self._optima_gone + _logs(optima), MOST_OBSERVATIONS)

    def learn(self, sums: FloatArray, usual: float, optima: FloatArray) -> None:
        """Fit the common law to the memory and to jobs seen on several thread counts."""
        self._optima = self._optima_gone + _logs(optima)
        unit = fitted_seconds(self.shape, np.array(usual))
        self.shape = self.shape / unit
        self._remembered = rescaled(self._remembered[None, :], unit[None])[0]
        own = self._on_one_scale(sums)
        self._pool = self._remembered + own
        # Maximum fraction of the memory of past jobs that current jobs replace in one update.
        rate = 0.05 * min(1.0, own[-1] / MOST_OBSERVATIONS)
        self._remembered = (1.0 - rate) * self._remembered + rate * _at_most(own, MOST_OBSERVATIONS)
        pool = self._pool[None, :]
        count = pool[:, -1]
        law = _with_parallel_part(fit(pool))
        linear = LINEAR[None, :] * scale_of(pool, LINEAR)[:, None]
        error = residual(pool, linear), residual(pool, law)
        # Hysteresis: jobs that stay on their thread counts give no new evidence of nonlinearity.
        still = self.nonlinear and error[0][0] - error[1][0] > 0.25 * ERROR_PART**2 * count[0]
        self.nonlinear = bool(still or clearly_better(*error, count)[0])
        shape = law[0] if self.nonlinear else LINEAR
        self.shape = shape / fitted_seconds(shape, np.array(usual))

    def optimum(self) -> float:
        """Return the whole threads on which jobs are usually fastest; inf if more always help."""
        return max(float(np.floor(optimum(self.shape[None, :])[0])), 1.0)

    def first(self) -> float:
        """Return the threads that a new job is assumed to use well; inf while jobs are linear.

        It is the lower quartile of the fastest counts: threads beyond slow a job down.
        """
        squares, logs, count = self._optima.tolist()
        if not (self.nonlinear and count):
            return self.optimum()
        mean = logs / count
        spread = np.sqrt(max(squares / count - mean * mean, 0.0))
        # Distance of the lower quartile of a normal distribution from its mean, in standard
        # deviations.
        return max(float(np.floor(np.exp(mean - 0.674 * spread))), 1.0)

    def laws(self, sums: FloatArray) -> FloatArray:
        """Return laws (n, 4) fitted to the moments (n, 15) of each job and, lightly, the prior."""
        unit = scale_of(sums, self.shape)
        # Weight of the prior in the fit of each job, in observations.
        others = _at_most(self._pool, 0.5)[None, :]
        return _with_parallel_part(fit(sums + rescaled(others, 1.0 / unit)))

    def _on_one_scale(self, sums: FloatArray) -> FloatArray:
        """Return the moments (15,) of all jobs together, each in units of its own scale."""
        return pooled(sums, scale_of(sums, self.shape))


def clearly_better(error: FloatArray, other: FloatArray, count: FloatArray) -> BoolArray:
    """Return where squared relative errors (n,) fall to `other` by more than noise explains."""
    # Weight of the assumed noise, in observations.
    noise_weight = 4.0
    # Relative noise assumed beforehand.
    noise = noise_weight * 0.1**2 + np.minimum(error, other)
    variance = noise / (noise_weight + np.maximum(count - 2.0, 0.0))
    # Noise variances by which Ernest's law must reduce the squared errors. It has three more terms
    # and is tested often.
    return error - other > np.maximum(20.0 * variance, ERROR_PART**2 * count)


def _with_parallel_part(law: FloatArray) -> FloatArray:
    """Raise the parallel part of laws (n, 4) in place, so that no predicted time is 0."""
    # Minimum fraction of the parallel work in the sum of a law's terms.
    law[:, 1] = np.maximum(law[:, 1], 0.01 * law.sum(axis=1))
    return law


def _logs(optima: FloatArray) -> FloatArray:
    """Return the sum of squares, the sum and the number (3,) of the logs of `optima` (m,)."""
    logs = np.log(optima)
    return total(np.column_stack([logs * logs, logs, np.ones_like(logs)]))


def _at_most(sums: FloatArray, count: float) -> FloatArray:
    """Scale moments down to at most `count` observations, which their last element counts."""
    return sums * min(1.0, count / max(sums[-1], count))
