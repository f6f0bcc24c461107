"""Speeds of workers are found where they differ, and nowhere else."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.runtime import WorkerSpeeds
from dask_slaq.core.runtime.worker_speeds import MOST_PAIRS

seeds = st.integers(0, 2**31)


def compute(
    speeds: WorkerSpeeds,
    factors: dict[str, float],
    *,
    seed: int = 0,
    groups: int = 3,
    epochs: int = 6,
    noise: float = 0.15,
    kind: str = "work",
    begin: float = 0.0,
) -> None:
    """Compute some tasks of each group on every worker in each epoch of a second."""
    rng = np.random.default_rng(seed)
    level = np.exp(rng.normal(-1.0, 0.7, groups))
    for epoch in range(epochs):
        for group in range(groups):
            for worker, factor in factors.items():
                for _ in range(3):
                    seconds = level[group] * factor * math.exp(noise * rng.standard_normal())
                    speeds.observe((kind, group), worker, max(seconds, 0.006))
        speeds.learn(begin + epoch + 1)


def workers(n: int, **unlike: float) -> dict[str, float]:
    return {f"w{i}": 1.0 for i in range(n - len(unlike))} | unlike


@given(seeds, st.floats(0.2, 10.0), st.floats(0.0, 0.3))
def test_recovers_a_known_factor(seed: int, factor: float, noise: float):
    speeds = WorkerSpeeds()
    compute(speeds, workers(8, other=factor), seed=seed, noise=noise)
    known = speeds.workers["other"]
    assert abs(math.log(known.estimate / factor)) < 5 * known.error
    if abs(math.log(factor)) > 0.7:
        assert known.factor == known.estimate
    assert all(speeds.factor(f"w{i}") == 1.0 for i in range(7))


@given(seeds, st.floats(0.0, 1.5), st.integers(1, 6), st.integers(2, 24))
def test_like_workers_are_exactly_alike(seed: int, noise: float, groups: int, n: int):
    """With any noise, in any number of epochs."""
    speeds = WorkerSpeeds()
    compute(speeds, workers(n), seed=seed, noise=noise, groups=groups, epochs=12)
    assert not speeds.unlike
    assert {speeds.factor(worker) for worker in workers(n)} == {1.0}


@pytest.mark.parametrize("slow", [1, 4])
def test_half_of_the_workers_may_be_slow(slow: int):
    speeds = WorkerSpeeds()
    compute(speeds, {f"w{i}": 3.0 if i < slow else 1.0 for i in range(8)})
    found = [speeds.factor(f"w{i}") for i in range(8)]
    assert found[slow:] == [1.0] * (8 - slow)
    assert found[:slow] == pytest.approx([3.0] * slow, rel=0.15)


@pytest.mark.parametrize(("before", "after"), [(1.0, 3.0), (3.0, 1.0)])
def test_follows_a_change_after_a_few_tasks(before: float, after: float):
    speeds = WorkerSpeeds()
    compute(speeds, workers(8, changes=before), epochs=100)
    compute(speeds, workers(8, changes=after), epochs=3, begin=100.0)
    assert speeds.factor("changes") == pytest.approx(after, rel=0.15)


def test_follows_a_change_although_earlier_jobs_said_otherwise():
    speeds = WorkerSpeeds()
    for number in range(20):
        compute(speeds, workers(8, changes=1.0), kind=f"job {number}", epochs=2, begin=2 * number)
    compute(speeds, workers(8, changes=3.0), kind="new", groups=1, epochs=15, begin=40.0)
    assert speeds.factor("changes") == pytest.approx(3.0, rel=0.15)


def test_outliers_change_nothing():
    speeds = WorkerSpeeds()
    compute(speeds, workers(8), epochs=10)
    for group in range(3):
        for _ in range(2):
            speeds.observe(("work", group), "w0", 100.0)
    speeds.learn(11.0)
    assert not speeds.unlike


def test_a_worker_with_larger_blocks_of_one_job_does_not_count_as_slow():
    speeds = WorkerSpeeds()
    compute(speeds, workers(8, larger=2.0), groups=1, epochs=50, noise=0.02)
    assert not speeds.unlike


def test_tasks_that_only_one_worker_computes_tell_nothing():
    speeds = WorkerSpeeds()
    for i in range(100):
        speeds.observe("long", "a", 9.0)
        speeds.observe("short", "b", 0.1)
        speeds.learn(float(i))
    assert not speeds.unlike


def test_memory_is_bounded():
    speeds = WorkerSpeeds()
    compute(speeds, workers(8, slow=3.0))
    for i in range(3 * MOST_PAIRS):
        speeds.observe(("other", i // 4), f"w{i % 4}", 0.1)
    assert len(speeds._times) == MOST_PAIRS
    speeds.learn(7.0)
    compute(speeds, workers(8, slow=3.0), begin=8.0)
    assert speeds.factor("slow") == pytest.approx(3.0, rel=0.15)


def test_what_was_seen_long_ago_is_no_longer_sure():
    """So a worker that is avoided is tried again."""
    speeds = WorkerSpeeds()
    compute(speeds, workers(8, slow=2.0))
    assert speeds.factor("slow") > 1.5
    speeds.observe("new", "w0", 0.1)
    speeds.learn(3600.0)
    assert speeds.factor("slow") == 1.0
