"""Water-rounds agrees with a heap, enumeration and bisection; hulls agree with chords."""

import heapq

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.forecast import concave_hull
from dask_slaq.core.policies.water_filling import fair_fill, hand_out

seeds = st.integers(0, 2**32 - 1)


def heap_fill(gain, weight, lower, upper, capacity):
    """The paper's Algorithm 1: the next thread goes to the greatest marginal gain."""
    share = np.array(lower, dtype=float)
    left = capacity - share.sum()

    def marginal():
        value = weight * (gain(share + 1) - gain(share))
        return [(-v, i) for i, v in enumerate(value) if share[i] + 1 <= upper[i]]

    heap = marginal()
    heapq.heapify(heap)
    while left > 0 and heap:
        value, i = heapq.heappop(heap)
        if value >= 0:
            break
        share[i] += 1
        left -= 1
        if share[i] + 1 <= upper[i]:
            one = weight * (gain(share + 1) - gain(share))
            heapq.heappush(heap, (-one[i], i))
    return share


def water_fill(gain, weight, lower, upper, capacity):
    """The same by prices."""

    def value(start, stop):
        return weight * (gain(stop) - gain(start)) / (stop - start)

    return hand_out(value, lower, upper, capacity)


def curved(rng, n_jobs):
    """Strictly concave gains."""
    size, rate = rng.lognormal(0, 2, n_jobs), rng.lognormal(-2, 1.5, n_jobs)
    return lambda threads: size * threads / (1 / rate + threads)


def bent(rng, n_jobs):
    """Concave gains of straight pieces whose slopes, small integers, tie exactly."""
    first, second = rng.integers(1, 4, (2, n_jobs)).astype(float)
    bend, flat = rng.integers(0, 5, (2, n_jobs))

    def gain(threads):
        after = np.clip(threads - bend, 0, flat)
        return (first + second) * np.minimum(threads, bend) + second * after

    return gain


@pytest.mark.parametrize("gains", [curved, bent])
@given(seed=seeds, n_jobs=st.integers(1, 40), capacity=st.integers(0, 200))
def test_equals_algorithm_1(gains, seed, n_jobs, capacity):
    rng = np.random.default_rng(seed)
    gain, weight = gains(rng, n_jobs), rng.choice([1.0, 2.0, 4.0], n_jobs)
    lower = np.floor(rng.dirichlet(np.ones(n_jobs)) * capacity * rng.choice([0, 0.5, 1]))
    upper = lower + rng.integers(0, 60, n_jobs)
    want = heap_fill(gain, weight, lower, upper, capacity)
    assert water_fill(gain, weight, lower, upper, capacity).tolist() == want.tolist()


@given(seed=seeds, n_jobs=st.integers(1, 12), capacity=st.floats(0, 60))
def test_fractional_floors_and_capacity(seed, n_jobs, capacity):
    rng = np.random.default_rng(seed)
    gain = curved(rng, n_jobs)
    lower = rng.dirichlet(np.ones(n_jobs)) * capacity * rng.choice([0.1, 0.7, 1])
    upper = lower + rng.uniform(0, 12, n_jobs)
    share = water_fill(gain, np.ones(n_jobs), lower, upper, capacity)
    assert (share >= lower).all()
    assert (share <= np.maximum(upper, lower) + 1e-9).all()
    room = np.maximum(np.floor(upper + 1e-9), lower).sum()
    assert share.sum() == pytest.approx(min(capacity, room), abs=1e-8)
    odd = (share > lower + 1e-6) & (abs(share - np.round(share)) > 1e-6)
    assert odd.sum() <= 1  # only the last thread of the budget goes out in part


def test_equal_worths_are_served_in_the_order_given():
    def flat(start, stop):
        return np.ones(3)

    none, upper = np.zeros(3), np.full(3, 40.0)
    assert hand_out(flat, none, upper, 100).tolist() == [40, 40, 20]
    assert hand_out(flat, none, upper, 100, np.array([2, 0, 1])).tolist() == [40, 20, 40]


@given(seed=seeds)
def test_ends_and_fits_whatever_the_worth(seed):
    rng = np.random.default_rng(seed)
    junk = rng.choice([-1.0, 0.0, 0.5, 1.0, np.inf, np.nan], (400, 7))

    def value(start, stop):
        return junk[np.minimum(stop, 399).astype(int), np.arange(7)]

    upper = rng.integers(0, 300, 7).astype(float)
    share = hand_out(value, np.zeros(7), upper, 500)
    assert (share >= 0).all() and (share <= upper).all() and share.sum() <= 500


def test_gains_that_tie_but_for_rounding_are_shared_out_in_full():
    rng = np.random.default_rng(3)
    slope = rng.choice([0.1, 0.3], 50)
    share = water_fill(lambda n: slope * n / 7, np.ones(50), np.zeros(50), np.full(50, 900.0), 9000)
    assert share.sum() == 9000
    assert share[slope == 0.1].sum() == 0


@given(seed=seeds, n_jobs=st.integers(1, 12), capacity=st.floats(0, 50))
def test_fair_shares_are_one_level_by_weight(seed, n_jobs, capacity):
    rng = np.random.default_rng(seed)
    weight = rng.choice([1e-3, 0.5, 1.0, 2.0, 1e3], n_jobs)
    floor = rng.choice([0.0, 0.3, 2.0], n_jobs)
    cap = floor + rng.choice([0.0, 0.5, 4.0, np.inf], n_jobs)
    share = fair_fill(weight, floor, cap, capacity)
    assert share.sum() == pytest.approx(min(capacity, cap.sum()), abs=1e-8)
    if floor.sum() >= capacity:
        clipped = np.minimum(floor, capacity)
        scale = capacity / max(clipped.sum(), 1e-300)
        assert share == pytest.approx(clipped * scale, abs=1e-8)
        return
    assert (share >= np.minimum(floor, capacity) - 1e-9).all() and (share <= cap + 1e-9).all()
    level = share / weight
    can_give, can_take = share > floor + 1e-9, share < cap - 1e-9
    if can_give.any() and can_take.any():
        assert level[can_give].max() <= level[can_take].min() * (1 + 1e-9) + 1e-12


def test_fair_shares_of_nobody():
    nobody = np.zeros(0)
    assert fair_fill(nobody, nobody, nobody, 5).shape == (0,)
    assert hand_out(lambda a, b: a, nobody, nobody, 5).shape == (0,)


@given(seed=seeds, n_jobs=st.integers(1, 5), n_points=st.integers(1, 12))
def test_hull_is_the_highest_chord(seed, n_jobs, n_points):
    rng = np.random.default_rng(seed)
    threads = np.cumsum(rng.integers(1, 4, n_points)).astype(float)
    table = np.cumsum(rng.choice([0.0, 0.0, 1.0, 2.5], (n_jobs, n_points)), axis=1)
    got = concave_hull(threads, table)
    for row, values in zip(got, table, strict=True):
        for k, x in enumerate(threads):
            chords = [
                np.interp(x, [threads[i], threads[j]], [values[i], values[j]])
                for i in range(k + 1)
                for j in range(k, n_points)
            ]
            assert row[k] == pytest.approx(max(chords))
