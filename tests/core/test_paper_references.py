"""The paper's mechanisms in a few lines each, and what the project answers to the same jobs.

The paper leaves open how fast weights decay, how the family of a job is chosen, what a job without
a forecast gets, what minimum quality compares losses of unlike units by, its weights, and more jobs
than cores. There the references do as the project does.
"""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import curve_fit

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast.corrections import scale
from dask_slaq.core.forecast.paper import DECAY_FACTOR, PaperPredictor
from dask_slaq.core.policies import Snapshot, policy

EPOCH = 3.0
seeds = st.integers(0, 2**32 - 1)


def largest_changes(losses):
    """§4.1: what the change of each iteration is divided by."""
    return np.maximum.accumulate(np.abs(np.diff(losses)))


def sublinear(k, a, b, c, d):
    return 1 / (a * k**2 + b * k + c) + d


def linear(k, mu, b, c):
    return mu ** (k - b) + c


def weighted_fit(losses):
    """§4.2.2: both families by least squares, with weights that decay; the one that fits better."""
    k, least, best = np.arange(1.0, len(losses) + 1), np.inf, None
    weight, first, fall = DECAY_FACTOR ** (k[-1] - k), losses[0], losses[0] - losses[-1]
    low = {sublinear: [0, 0, 0, -np.inf], linear: [0, -np.inf, -np.inf]}
    for limit in losses[-1] - fall * np.array([0.01, 0.1, 0.5]):
        b = 1 + np.log(first - limit) / -np.log(0.9)
        for family, start in ((sublinear, (1e-3, 0.1, 1 / (first - limit))), (linear, (0.9, b))):
            bounds = low[family], [1.0 if family is linear else np.inf, *[np.inf] * len(start)]
            how = {"sigma": weight**-0.5, "bounds": bounds, "max_nfev": 9000}
            p, _ = curve_fit(family, k, losses, (*start, limit), **how)
            if (error := weight @ (family(k, *p) - losses) ** 2) < least:
                least, best = error, (family, p)
    return lambda k: best[0](k, *best[1])


def iteration_time(work, cores):
    return work / cores  # §4.2.1: c S core-seconds on N cores


def core_by_core(worth, most, cores):
    """§4.3: one core per job; then each to the job to which it is worth most."""
    share = [1] * len(most)
    while sum(share) < min(cores, sum(most)):
        able = [j for j in range(len(most)) if share[j] < most[j]]
        share[max(able, key=lambda j: worth(j, share[j]))] += 1
    return share


# Algorithm 1 goes by how much a predicted loss falls, minimum quality by the predicted loss itself.
WORTH = {
    "slaq2017": lambda loss: lambda j, cores: loss(j, cores) - loss(j, cores + 1),
    "slaq2017-min": lambda loss: loss,
}


def curve(rng, family=None):
    k = np.arange(1.0, 501.0)
    if (family or rng.choice([sublinear, linear])) is sublinear:
        return sublinear(k, *rng.uniform([0.0, 0.01, 0.05, -2], [0.05, 1.0, 1.0, 2]))
    return linear(k, *rng.uniform([0.5, -5.0, -2.0], [0.95, 20.0, 2.0]))


def forecast_of(losses):
    predictor = PaperPredictor()
    predictor.add("a")
    for loss in losses:
        predictor.report("a", loss)
    predictor.fit()
    return predictor.forecast(["a"])


class Jobs:
    """Jobs by the losses that they have reported, and their core-seconds `work` per iteration."""

    def __init__(self, losses, work, cores):
        self.losses, self.work, self.cores = losses, work, cores
        self.fits = [weighted_fit(each) for each in losses]

    @classmethod
    def drawn(cls, seed):
        rng = np.random.default_rng(seed)
        n = int(rng.integers(2, 6))
        losses = [curve(rng)[: rng.integers(6, 40)] for _ in range(n)]
        return cls(losses, rng.uniform(0.5, 5.0, n), n + int(rng.integers(4, 30)))

    def loss(self, j, cores):
        """Return a normalized loss at the end of the epoch, above the limit of its curve."""
        then = len(self.losses[j]) + EPOCH / iteration_time(self.work[j], cores)
        return (self.fits[j](then) - self.fits[j](1e9)) / largest_changes(self.losses[j])[-1]

    def falls(self, shares):
        return [self.loss(j, 1e-9) - self.loss(j, cores) for j, cores in enumerate(shares)]

    def shares(self, name):
        return core_by_core(WORTH[name](self.loss), [np.inf] * len(self.work), self.cores)

    def grants(self, name):
        """Return what the project grants them by a policy."""
        engine = Engine(name, epoch=EPOCH)
        for j, losses in enumerate(self.losses):
            engine.add_job(f"{j}", now=0.0)
            for k, loss in enumerate(losses):
                engine.observe_task(f"{j}", seconds=self.work[j])
                engine.report(f"{j}", loss, now=float(k))
        return list(engine.reallocate({"w": self.cores}, now=40.0).values())


def snapshot_of(seed, jobs=None, capacity=None):
    """Return jobs whose loss is ``loss * rate**threads`` after an epoch, with weights and caps."""
    rng = np.random.default_rng(seed)
    n = jobs or rng.integers(1, 7)
    cores = capacity or int(n + rng.integers(0, 20))
    rate, loss = rng.uniform(0.3, 0.999, n), rng.uniform(0.1, 1.0, n)
    weight, most = rng.choice([0.5, 1.0, 2.0], n), rng.choice([1.0, 3.0, np.inf], n)
    names = tuple("abcdefghi"[:n])
    gain = lambda threads: loss * (1.0 - rate**threads)  # noqa: E731
    snapshot = Snapshot(names, cores, weight, 0 * loss, most, loss > 0, loss, gain)
    return snapshot, lambda j, threads: weight[j] * loss[j] * rate[j] ** threads


@given(seeds)
def test_losses_are_divided_by_the_largest_change_so_far(seed):
    losses = np.cumsum(np.random.default_rng(seed).normal(0, 1, 9))
    for k in range(2, 10):
        found = scale(forecast_of(losses[:k]), "largest-change")
        assert found == pytest.approx(largest_changes(losses)[k - 2])


@pytest.mark.parametrize("family", [sublinear, linear])
@pytest.mark.parametrize("seed", range(4))
def test_noisy_losses_are_predicted_by_the_better_weighted_fit(seed, family):
    rng = np.random.default_rng(seed)
    losses = curve(rng, family)[:30]
    losses += 0.003 * np.ptp(losses) * rng.normal(0, 1, 30)
    found, fit = forecast_of(losses), weighted_fit(losses)
    at = [list(found.horizons).index(ahead) for ahead in (0, 1, 5, 10)]
    expected, most = fit(30 + found.horizons[at]), 2e-3 * np.ptp(losses)
    np.testing.assert_allclose(found.level - found.reduction[0, at], expected, rtol=0, atol=most)


@pytest.mark.parametrize("name", WORTH)
@given(seeds)
def test_cores_are_given_one_by_one(name, seed):
    snapshot, loss = snapshot_of(seed)
    expected = core_by_core(WORTH[name](loss), snapshot.cap, snapshot.capacity)
    np.testing.assert_allclose(policy(name)(snapshot).share, expected)


@given(seeds)
def test_with_fewer_threads_than_jobs_all_get_a_part(seed):
    """The paper starts every job with one core, and says nothing of this. Here weights decide."""
    snapshot, _ = snapshot_of(seed, jobs=9, capacity=4)
    share, weight = policy("slaq2017")(snapshot).share, snapshot.weight
    assert share.sum() == pytest.approx(4.0)
    expected = 4.0 * weight / weight.sum()
    np.testing.assert_allclose(share[expected < 1], expected[expected < 1], rtol=0.3)
    assert (share > 0).all() and (share <= 1.0 + 1e-9).all()


# Between the horizons of a forecast losses are interpolated: gains are right to a few percent.


@pytest.mark.parametrize("seed", range(6))
def test_reports_and_task_times_make_the_shares_of_algorithm_1(seed):
    jobs = Jobs.drawn(seed)
    grants = jobs.grants("slaq2017")
    falls, best = jobs.falls(grant.share for grant in grants), jobs.falls(jobs.shares("slaq2017"))
    np.testing.assert_allclose([grant.predicted for grant in grants], falls, rtol=0.05, atol=1e-3)
    assert sum(falls) == pytest.approx(sum(best), rel=0.01)


@pytest.mark.parametrize("seed", range(6))
def test_reports_and_task_times_make_the_shares_of_minimum_quality(seed):
    jobs = Jobs.drawn(seed)
    shares = [grant.share for grant in jobs.grants("slaq2017-min")]
    np.testing.assert_allclose(shares, jobs.shares("slaq2017-min"), atol=1.0)


@pytest.mark.parametrize("level", [0.0, 5.0])
def test_a_loss_that_falls_to_a_thousandth_counts_as_it_would_anywhere(level):
    jobs = Jobs([level + 0.3 ** np.arange(12), 3 + 1 / np.arange(1, 13)], [1.0, 1.0], 8)
    shares = [grant.share for grant in jobs.grants("slaq2017")]
    assert shares == jobs.shares("slaq2017") == [1, 7]
