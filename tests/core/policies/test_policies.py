"""Every policy passes a common checklist and keeps its own promises."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.policies import POLICIES, Snapshot, Traits, policy, traits_of
from dask_slaq.core.policies import baselines as finish_time
from dask_slaq.core.policies.base import GreedyPolicy, MarginalValues
from dask_slaq.core.policies.quality_driven import EXCHANGE_RATE_AT_END, NEARLY_PART
from dask_slaq.core.policies.snapshot import ARRAYS
from dask_slaq.core.policies.water_filling import fair_fill
from dask_slaq.testing import POLICY_RULES, Curves, draw_snapshot

every_policy = pytest.mark.parametrize("name", POLICIES)
seeds = st.integers(0, 2**32 - 1)


@given(seeds)
def test_a_part_of_a_part_has_the_fields_of_its_jobs(seed):
    rng = np.random.default_rng(seed)
    whole = draw_snapshot(seed, n_jobs=6)
    some, fewer = rng.integers(0, 6, 5), rng.integers(0, 5, 3)
    part, rows = whole.of(some).of(fewer), some[fewer]
    assert part.jobs == tuple(whole.jobs[i] for i in rows)
    assert part.capacity == whole.capacity
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(part, name), getattr(whole, name)[rows])
    threads = rng.uniform(0.0, 9.0, 3)
    everywhere = np.zeros(6)
    for i, row in enumerate(rows):
        everywhere[row] = threads[i]
        assert part.gain(threads)[i] == whole.gain(everywhere)[row]
        assert part.speed(threads)[i] == whole.speed(everywhere)[row]
    assert replace(part, capacity=1).jobs == part.jobs
    for snapshot in (whole, part):
        with pytest.raises(AttributeError, match="no_such_field"):
            _ = snapshot.no_such_field


def test_a_policy_need_not_have_traits():
    class Mine:
        name = "mine"

    assert traits_of(Mine()) == Traits(frozenset(), True, False, True)
    assert traits_of(policy("fair")) == Traits(follows_losses=False, by_service=True)
    assert traits_of(policy("none")) == Traits(follows_losses=False, holds_tasks=False)
    assert traits_of(policy("first-to-target")).needs == {"to_target", "to_end"}


@pytest.mark.parametrize("name", [n for n in POLICIES if isinstance(policy(n), GreedyPolicy)])
@given(seed=seeds)
def test_a_thread_is_worth_the_same_whoever_else_is_asked(name, seed):
    snapshot = draw_snapshot(seed, n_jobs=6)
    rng = np.random.default_rng(seed)
    start, rows = rng.integers(0, 20, 6).astype(float), rng.integers(0, 6, 9)
    all_of_them = MarginalValues(policy(name).marginal_value, snapshot)
    alone = all_of_them.of(rows)(start[rows], start[rows] + 1)
    assert alone.tolist() == all_of_them(start, start + 1)[rows].tolist()


@pytest.mark.parametrize("rule", POLICY_RULES)
@every_policy
@given(seed=seeds)
def test_every_policy_keeps_the_rules(name, rule, seed):
    POLICY_RULES[rule](lambda: policy(name), seed)


def small(seed):
    """Up to four jobs with forecasts and up to eight threads, in whole numbers."""
    rng = np.random.default_rng(seed)
    n_jobs = int(rng.integers(1, 5))
    floor = rng.choice([0.0, 0.0, 1.0, 2.0], n_jobs)
    normalized = rng.uniform(0.2, 1, n_jobs)
    size = normalized * rng.uniform(0, 1, n_jobs)
    return draw_snapshot(
        seed,
        n_jobs=n_jobs,
        capacity=int(rng.integers(floor.sum(), floor.sum() + 9)),
        floor=floor,
        cap=floor + rng.integers(0, 8, n_jobs),
        known=np.ones(n_jobs, dtype=bool),
        reporting=np.ones(n_jobs, dtype=bool),
        gain=Curves("curved", size, rng.uniform(0.05, 1, n_jobs)),
        normalized=normalized,
    )


def splits(snapshot):
    """Every way to hand out whole threads, as an array (n_splits, n_jobs)."""
    bounds = zip(snapshot.floor.astype(int), snapshot.cap.astype(int), strict=True)
    all_of_them = np.array(list(product(*(range(low, high + 1) for low, high in bounds))))
    return all_of_them[all_of_them.sum(axis=1) <= snapshot.capacity].astype(float)


@given(seed=seeds)
def test_max_total_no_split_is_better(seed):
    snapshot = small(seed)
    best = max(snapshot.weight @ snapshot.gain(split) for split in splits(snapshot))
    share = policy("max-total")(snapshot).share
    assert snapshot.weight @ snapshot.gain(share) == pytest.approx(best, rel=1e-9)


@given(seed=seeds)
def test_max_min_no_split_is_better(seed):
    snapshot = small(seed)

    def worst(split):
        left = snapshot.weight * (snapshot.normalized - snapshot.gain(split))
        return sorted(left.tolist(), reverse=True)

    best = min(worst(split) for split in splits(snapshot))  # the highest loss, then the next, …
    assert worst(policy("max-min")(snapshot).share) == pytest.approx(best, rel=1e-9)


def left_over_weight(snapshot):
    """Work left to the target, or to the end of what is nearly done: inf without either."""
    near = (snapshot.to_end > 0) & (snapshot.to_end <= NEARLY_PART * snapshot.attained)
    end = np.where(near, EXCHANGE_RATE_AT_END * snapshot.to_end, np.inf)
    target = np.where(snapshot.to_target > 0, snapshot.to_target, np.inf)
    return np.minimum(target, end) / snapshot.weight


@given(seed=seeds)
def test_first_to_target_no_split_serves_the_nearest_better(seed):
    snapshot = small(seed)
    left = left_over_weight(snapshot)
    order = [i for i in np.lexsort((snapshot.jobs, left)) if np.isfinite(left[i])]
    beyond = ~np.isfinite(left)

    def value(split):
        gain = snapshot.weight @ (snapshot.gain(split) * beyond)
        return (*split[order].tolist(), gain)

    best = max(value(split) for split in splits(snapshot))
    assert value(policy("first-to-target")(snapshot).share) == pytest.approx(best, rel=1e-9)


def test_first_to_target_without_milestones_is_max_total():
    none = np.full(8, np.nan)
    snapshot = draw_snapshot(18, n_jobs=8, capacity=20, to_target=none, to_end=none)
    here, there = (policy(name)(snapshot).share for name in ("first-to-target", "max-total"))
    assert here.tolist() == there.tolist()


@pytest.mark.parametrize("name", ["max-total", "max-min", "first-to-target"])
class TestByForecast:
    def test_new_jobs_come_first_and_silent_ones_last(self, name):
        gain = Curves("curved", np.array([0.9, 0.2, 0.3, 0.0, 0.0]), np.full(5, 0.5))
        snapshot = draw_snapshot(
            12,
            n_jobs=5,
            capacity=10,
            gain=gain,
            weight=np.array([9.0, 1.0, 1.0, 0.1, 5.0]),
            normalized=np.array([0.9, 0.2, 0.3, 1.0, 1.0]),
            known=np.array([True, True, True, False, False]),
            reporting=np.array([True, True, True, True, False]),
        )
        index = policy(name)(snapshot).index
        assert index[3] > index[0] > index[2] > index[1] > index[4]

    def test_jobs_that_nobody_can_judge_share_fairly(self, name):
        none = np.zeros(3, dtype=bool)
        snapshot = draw_snapshot(13, n_jobs=3, capacity=10, known=none, reporting=none)
        want = fair_fill(snapshot.weight, snapshot.floor, snapshot.cap, 10)
        allocation = policy(name)(snapshot)
        assert allocation.share == pytest.approx(want)
        assert len(set(allocation.index)) == 1

    def test_converged_jobs_share_what_is_left_fairly(self, name):
        snapshot = draw_snapshot(
            14,
            n_jobs=4,
            capacity=3,
            gain=Curves("curved", np.zeros(4), np.ones(4)),
            known=np.ones(4, dtype=bool),
            reporting=np.ones(4, dtype=bool),
            weight=np.ones(4),
            floor=np.zeros(4),
            cap=np.full(4, 9.0),
            to_end=np.full(4, np.inf),
        )
        assert policy(name)(snapshot).share == pytest.approx(np.full(4, 0.75))


def test_fair_is_blind_to_loss():
    snapshot = draw_snapshot(16, n_jobs=6, capacity=9)
    other = replace(snapshot, normalized=np.zeros(6), gain=snapshot.gain.of([5, 4, 3, 2, 1, 0]))
    assert policy("fair")(snapshot).share.tolist() == policy("fair")(other).share.tolist()


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        ("weight", np.array([1.0, 0.0]), "weight"),
        ("weight", np.array([1.0, np.nan]), "weight"),
        ("floor", np.array([-1.0, 0.0]), "floor"),
        ("cap", np.array([np.nan, 0.0]), "cap"),
        ("to_target", np.array([1.0, -1.0]), "work left"),
        ("known", np.ones(3, dtype=bool), r"known.*\(3,\).*2 jobs"),
    ],
)
def test_snapshots_are_checked(field, value, told):
    with pytest.raises(InvalidSetting, match=told):
        draw_snapshot(17, n_jobs=2, **{field: value})


def some(**fields):
    """Three jobs that scale straight, on four threads, each with a cap of three."""
    three = np.ones(3)
    return Snapshot(("a", "b", "c"), 4, three, 0 * three, 3 * three, three > 0, three, **fields)


def test_who_came_first_is_served_first():
    decided = policy("fifo")(some(age=np.array([1.0, 5.0, 3.0])))
    assert decided.share.tolist() == [0.0, 3.0, 1.0]
    assert decided.index.tolist() == [0.0, 2.0, 1.0]


def test_who_was_served_least_is_served_first_but_alike_by_arrival():
    served, age = np.array([50.0, 3.9, 1.0]), np.array([9.0, 5.0, 3.0])
    assert policy("las")(some(attained=served, age=age)).share.tolist() == [0.0, 3.0, 1.0]
    assert policy("las")(some(attained=40 * served, age=age)).share.tolist() == [0.0, 1.0, 3.0]


def test_who_has_least_left_is_served_first_and_the_unknown_before():
    left = np.array([30.0, np.inf, 10.0])
    assert policy("srtf")(some(to_end=left)).share.tolist() == [1.0, 0.0, 3.0]
    unknown = replace(some(to_end=left), known=np.array([True, False, True]))
    assert policy("srtf")(unknown).share.tolist() == [0.0, 3.0, 1.0]


def test_the_finish_time_ratio_is_that_of_themis():
    jobs = some(
        age=np.array([10.0, 10.0, 10.0]),
        attained=np.array([20.0, 0.0, 5.0]),
        to_end=np.array([20.0, 40.0, np.inf]),
    )
    # Alone on 4/3 of a thread both take 30 s; 10 s are over.
    ratio = finish_time.finish_time_ratio(jobs, np.array([1.0, 2.0, 1.0]))
    assert ratio == pytest.approx([(10 + 20) / 30, (10 + 20) / 30, 1.0])


def test_threads_are_offered_to_the_worst_off_first():
    jobs = some(age=np.array([10.0, 99.0, 10.0]), attained=np.ones(3), to_end=30 * np.ones(3))
    decided = policy("finish-time-fair")(jobs)
    assert decided.share.tolist() == [1.0, 3.0, 0.0]
    assert decided.index.argmax() == 1
