"""Prior for the scaling of jobs with few observations or none, from all jobs of a cluster."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, FloatArray
from dask_slaq.core.runtime import ernest as scaling

#: Weight of the prior in the fit of each job, in observations.
PRIOR = 0.5
#: Weight of linear scaling at the start and maximum weight of past jobs, in observations, and the
#: maximum fraction of the memory of past jobs that current jobs replace in one update.
FIRST, KEPT, REMEMBER = 2.0, 100.0, 0.05
#: Relative error below which linear scaling is good enough, and relative noise assumed beforehand.
GOOD, NOISE = 0.1, 0.1
#: Weight of the assumed noise, in observations.
NOISE_WEIGHT = 4.0
#: Noise variances by which Ernest's law must reduce the squared errors. It has three more terms
#: and is tested often.
CLEARLY = 20.0
#: Distance of the lower quartile of a normal distribution from its mean, in standard deviations.
QUARTILE = 0.674
#: Minimum fraction of the parallel work in the sum of a law's terms.
PARALLEL = 0.01


class Population:
    """Common scaling law `shape` (4,) of all jobs, in units of the time on the usual threads.

    Jobs differ in size but often scale alike, so their times are put on one scale and pooled. Only
    jobs observed on several thread counts are informative; their moments are kept when they end.
    `nonlinear` is set while jobs clearly do not scale linearly.
    """

    def __init__(self) -> None:
        threads = np.array([1.0, 2.0, 4.0])  # higher counts would outweigh what is observed there
        linear = scaling.moments(threads, 1.0 / threads)
        self.nonlinear = False
        self.shape: FloatArray = scaling.LINEAR
        self._remembered: FloatArray = linear.mean(axis=0) * FIRST
        self._pool: FloatArray = self._remembered
        # Sums of squares, sum and number of the logs of optima: of past jobs, and of all jobs.
        self._optima_gone: FloatArray = np.zeros(3)
        self._optima: FloatArray = np.zeros(3)

    def remember(self, sums: FloatArray, optima: FloatArray) -> None:
        """Keep the moments (n, 15) of jobs that ended, and the optima (m,) of nonlinear ones."""
        self._remembered = _at_most(self._remembered + self._on_one_scale(sums), KEPT)
        self._optima_gone = _at_most(self._optima_gone + _logs(optima), KEPT)

    def learn(self, sums: FloatArray, usual: float, optima: FloatArray) -> None:
        """Fit the common law to the memory and to jobs observed on several thread counts.

        Jobs are put on one scale by their time on the `usual` threads: on one it would be
        extrapolated.
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
        # Hysteresis: jobs that stay on their thread counts give no new evidence of nonlinearity.
        still = self.nonlinear and error[0][0] - error[1][0] > 0.25 * GOOD**2 * count[0]
        self.nonlinear = bool(still or clearly_better(*error, count)[0])
        shape = law[0] if self.nonlinear else scaling.LINEAR
        self.shape = shape / scaling.fitted_seconds(shape, np.array(usual))

    def optimum(self) -> float:
        """Return the whole threads on which jobs are usually fastest; inf if more always help."""
        return max(float(np.floor(scaling.optimum(self.shape[None, :])[0])), 1.0)

    def first(self) -> float:
        """Return the threads that a new job is assumed to use well; inf while jobs are linear.

        It is the lower quartile of the fastest counts: threads beyond slow a job down.
        """
        squares, logs, count = self._optima.tolist()
        if not (self.nonlinear and count):
            return self.optimum()
        mean = logs / count
        spread = np.sqrt(max(squares / count - mean * mean, 0.0))
        return max(float(np.floor(np.exp(mean - QUARTILE * spread))), 1.0)

    def laws(self, sums: FloatArray) -> FloatArray:
        """Return laws (n, 4) fitted to the moments (n, 15) of each job and, lightly, the prior."""
        unit = scaling.scale_of(sums, self.shape)
        others = _at_most(self._pool, PRIOR)[None, :]
        return _with_parallel_part(scaling.fit(sums + scaling.rescaled(others, 1.0 / unit)))

    def _on_one_scale(self, sums: FloatArray) -> FloatArray:
        """Return the moments (15,) of all jobs together, each in units of its own scale."""
        return scaling.pooled(sums, scaling.scale_of(sums, self.shape))


def clearly_better(error: FloatArray, other: FloatArray, count: FloatArray) -> BoolArray:
    """Return where squared relative errors (n,) fall to `other` by more than noise explains."""
    noise = NOISE_WEIGHT * NOISE**2 + np.minimum(error, other)
    variance = noise / (NOISE_WEIGHT + np.maximum(count - 2.0, 0.0))
    return error - other > np.maximum(CLEARLY * variance, GOOD**2 * count)


def _with_parallel_part(law: FloatArray) -> FloatArray:
    """Raise the parallel part of laws (n, 4) in place, so that no predicted time is 0."""
    law[:, 1] = np.maximum(law[:, 1], PARALLEL * law.sum(axis=1))
    return law


def _logs(optima: FloatArray) -> FloatArray:
    """Return the sum of squares, the sum and the number (3,) of the logs of `optima` (m,)."""
    logs = np.log(optima)
    return scaling.total(np.column_stack([logs * logs, logs, np.ones_like(logs)]))


def _at_most(sums: FloatArray, count: float) -> FloatArray:
    """Scale moments down to at most `count` observations, which their last element counts."""
    scaled: FloatArray = sums * min(1.0, count / max(sums[-1], count))
    return scaled
