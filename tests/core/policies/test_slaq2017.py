"""`slaq2017` and `slaq2017-min`, against references written from the paper."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.policies import Snapshot, policy

seeds = st.integers(0, 2**32 - 1)


def drawn(seed, *, jobs=None, capacity=None):
    """Return jobs whose loss is ``loss * rate**threads`` after an epoch, and a snapshot of them."""
    rng = np.random.default_rng(seed)
    n = jobs or int(rng.integers(1, 7))
    cores = capacity or n + int(rng.integers(0, 20))
    rate, loss = rng.uniform(0.3, 0.999, n), rng.uniform(0.1, 1.0, n)
    weight, most = rng.choice([0.5, 1.0, 2.0], n), rng.choice([1.0, 3.0, np.inf], n)
    names = tuple(f"job-{i}" for i in range(n))
    known, none = np.ones(n, bool), np.zeros(n)

    def gain(threads):
        return loss * (1.0 - rate**threads)

    return rate, loss, Snapshot(names, cores, weight, none, most, known, loss, gain)


def as_in_the_paper(snapshot, worth):
    """One core per job; then core by core to the job with the highest worth of one more."""
    cores = np.minimum(1.0, snapshot.cap)
    while cores.sum() < snapshot.capacity:
        may = cores < snapshot.cap
        if not may.any():
            break
        cores[np.argmax(np.where(may, worth(cores), -np.inf))] += 1.0
    return cores


@given(seeds)
def test_algorithm_1_starts_with_one_core_per_job_and_goes_on_by_loss_reduction(seed):
    rate, loss, snapshot = drawn(seed)
    reduction = lambda n: snapshot.weight * loss * (rate**n - rate ** (n + 1))  # noqa: E731
    expected = as_in_the_paper(snapshot, reduction)
    np.testing.assert_allclose(policy("slaq2017")(snapshot).share, expected)


@given(seeds)
def test_minimum_quality_goes_on_by_the_worst_predicted_loss(seed):
    rate, loss, snapshot = drawn(seed)
    expected = as_in_the_paper(snapshot, lambda n: snapshot.weight * loss * rate**n)
    np.testing.assert_allclose(policy("slaq2017-min")(snapshot).share, expected)


@given(seeds)
def test_with_fewer_threads_than_jobs_all_get_a_part(seed):
    _, _, snapshot = drawn(seed, jobs=9, capacity=4)
    share = policy("slaq2017")(snapshot).share
    assert share.sum() == pytest.approx(4.0)
    expected = 4.0 * snapshot.weight / snapshot.weight.sum()
    np.testing.assert_allclose(share[expected < 1], expected[expected < 1], rtol=0.3)
    assert (share > 0).all() and (share <= 1.0 + 1e-9).all()


PAPER = {
    "predictor": "paper",
    "normalizer": "largest-change",
    "runtime": "linear",
    "latest": math.inf,
    "floor": 0.0,
}


@pytest.mark.parametrize("name", ["slaq2017", "slaq2017-min"])
def test_it_presets_what_was_left_at_its_default(name):
    engine = Engine(name)
    assert {setting: engine.in_force(setting) for setting in PAPER} == PAPER
    assert type(engine.forecaster).__name__ == "PaperPredictor"
    chosen = Engine(name, latest=3.0, floor=0.5)
    assert (chosen.in_force("latest"), chosen.in_force("floor")) == (3.0, 0.5)
    assert chosen.in_force("normalizer") == "largest-change"


def test_another_policy_later_has_the_settings_that_were_given():
    engine = Engine("slaq2017")
    engine.set_policy("first-to-target")
    assert (engine.in_force("latest"), engine.in_force("normalizer")) == (2.0, "range")


def test_one_by_one_the_settings_make_the_same_decisions():
    engines = [Engine("slaq2017"), Engine("slaq2017", **PAPER)]
    found = []
    for engine in engines:
        for job in ("a", "b", "c"):
            engine.add_job(job, now=0.0)
        for i in range(9):
            for job, rate in (("a", 0.9), ("b", 0.5), ("c", 0.99)):
                engine.observe_task(job, seconds=2.0, at_once=4)
                engine.report(job, rate**i, now=float(i))
        grants = engine.reallocate({"w": 12}, now=9.0)
        found.append({job: (grant.share, grant.tokens) for job, grant in grants.items()})
    assert found[0] == found[1]
    shares = {job: share for job, (share, _) in found[0].items()}
    assert shares["b"] == 1.0 and sum(shares.values()) == pytest.approx(12.0)
