"""How the jobs of a cluster usually scale: where a new job starts, and what doubtful ones lean on.

Jobs differ in size but are often of a kind, so their times are put on one scale and pooled. Only
jobs seen on several thread counts tell anything of scaling; what they told is remembered.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.runtime import ernest as scaling

__all__ = ["GOOD", "Population", "clearly_better"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

#: Observations that the scaling of other jobs is worth to each one.
PRIOR = 0.5
#: Observations of linear scaling with which the first jobs start; those remembered of jobs that
#: are gone or no longer telling, and the part of these that is replaced in an epoch.
FIRST, KEPT, REMEMBER = 2.0, 100.0, 0.05
#: Relative error below which linear scaling is good enough, and what noise is taken for granted.
GOOD, NOISE = 0.1, 0.1
#: Observations that the noise taken for granted counts for.
NOISE_WEIGHT = 4.0
#: Noise variances by which Ernest's law must explain more: three more terms, looked at often.
CLEARLY = 20.0
#: Standard deviations below the mean of a normal law at which is its lower quartile.
QUARTILE = 0.674
#: Least part of the parallel work among the terms of a law.
PARALLEL = 0.01


class Population:
    """What all jobs have in common.

    Attributes
    ----------
    nonlinear : bool
        Whether they clearly do not scale linearly.
    shape : (4,) array
        Their law, in units of the time on a usual number of threads.
    """

    def __init__(self) -> None:
        threads = np.array([1.0, 2.0, 4.0])  # more would deny what is seen on many
        linear = scaling.moments(threads, 1.0 / threads)
        self.nonlinear = False
        self.shape: FloatArray = scaling.LINEAR
        self._remembered: FloatArray = linear.mean(axis=0) * FIRST
        self._pool: FloatArray = self._remembered
        # Squares, sum and number of the logs of optima, of jobs that are gone and of all.
        self._optima_gone: FloatArray = np.zeros(3)
        self._optima: FloatArray = np.zeros(3)

    def remember(self, sums: FloatArray, optima: FloatArray) -> None:
        """Keep the moments (n, 15) of jobs that are gone, and the optima (n,) of some."""
        self._remembered = _at_most(self._remembered + self._on_one_scale(sums), KEPT)
        self._optima_gone = _at_most(self._optima_gone + _logs(optima), KEPT)

    def learn(self, sums: FloatArray, usual: float, optima: FloatArray) -> None:
        """Fit the common shape to the moments (n, 15) of jobs that tell of it, and see on how many
        threads those that do not scale linearly are fastest, `optima` (m,).

        Jobs are put on one scale by the time they would take on the `usual` number of threads:
        how long they would take on one is an extrapolation.
        """
        self._optima = self._optima_gone + _logs(optima)
        unit = scaling.fitted_seconds(self.shape, np.array(usual))
        self.shape = self.shape / unit
        self._remembered = scaling.rescaled(self._remembered[None, :], unit[None])[0]
        own = self._on_one_scale(sums)
        self._pool = self._remembered + own
        rate = REMEMBER * min(1.0, own[-1] / KEPT)
        self._remembered = (1.0 - rate) * self._remembered + rate * _at_most(own, KEPT)
        pool = self._pool[None, :]
        count = pool[:, -1]
        law = _with_parallel_part(scaling.fit(pool))
        linear = scaling.LINEAR[None, :] * scaling.scale_of(pool, scaling.LINEAR)[:, None]
        error = scaling.residual(pool, linear), scaling.residual(pool, law)
        # What is known of the jobs is not given up because they stay where they are.
        still = self.nonlinear and error[0][0] - error[1][0] > 0.25 * GOOD**2 * count[0]
        self.nonlinear = bool(still or clearly_better(*error, count)[0])
        shape = law[0] if self.nonlinear else scaling.LINEAR
        self.shape = shape / scaling.fitted_seconds(shape, np.array(usual))

    def optimum(self) -> float:
        """Whole threads on which jobs are usually fastest; inf if more always help."""
        return max(float(np.floor(scaling.optimum(self.shape[None, :])[0])), 1.0)

    def first(self) -> float:
        """Threads that a job of which nothing is known can be said to use: on three of four of
        those that were seen, it was so many or more. More are not just idle: jobs slow down.
        """
        squares, logs, count = self._optima.tolist()
        if not (self.nonlinear and count):
            return self.optimum()
        mean = logs / count
        spread = np.sqrt(max(squares / count - mean * mean, 0.0))
        return max(float(np.floor(np.exp(mean - QUARTILE * spread))), 1.0)

    def laws(self, sums: FloatArray) -> FloatArray:
        """Laws (n, 4) by the jobs' own moments (n, 15) and a little of what all have in common."""
        unit = scaling.scale_of(sums, self.shape)
        others = _at_most(self._pool, PRIOR)[None, :]
        return _with_parallel_part(scaling.fit(sums + scaling.rescaled(others, 1.0 / unit)))

    def _on_one_scale(self, sums: FloatArray) -> FloatArray:
        """The moments (15,) of all jobs together, each in units of its own scale."""
        return scaling.pooled(sums, scaling.scale_of(sums, self.shape))


def clearly_better(error: FloatArray, other: FloatArray, count: FloatArray) -> BoolArray:
    """Whether `other` (n,) leaves so much less of `count` squared errors that it is no chance."""
    noise = NOISE_WEIGHT * NOISE**2 + np.minimum(error, other)
    variance = noise / (NOISE_WEIGHT + np.maximum(count - 2.0, 0.0))
    better: BoolArray = error - other > np.maximum(CLEARLY * variance, GOOD**2 * count)
    return better


def _with_parallel_part(law: FloatArray) -> FloatArray:
    """Laws (n, 4) by which no job is infinitely fast on few threads."""
    law[:, 1] = np.maximum(law[:, 1], PARALLEL * law.sum(axis=1))
    return law


def _logs(optima: FloatArray) -> FloatArray:
    """Squares, sum and number (3,) of their logs."""
    logs = np.log(optima)
    return scaling.total(np.column_stack([logs * logs, logs, np.ones_like(logs)]))


def _at_most(sums: FloatArray, count: float) -> FloatArray:
    """Moments, the last of which is a number, scaled down to so many observations."""
    scaled: FloatArray = sums * min(1.0, count / max(sums[-1], count))
    return scaled
