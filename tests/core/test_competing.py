"""Jobs of one search: what they get together stays, and the best ones have it first."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import train

from dask_slaq.core.competing import in_order, spread, yield_to_first
from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import FitStatus, Forecast
from dask_slaq.core.policies import POLICIES, Snapshot
from dask_slaq.core.policies import policy as policy_named
from dask_slaq.core.search_settings import FEWEST_REPORTS


@st.composite
def snapshots(draw):
    """Jobs, of which the first few are models of one search, in a random order of their claims."""
    n = draw(st.integers(3, 9))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    cap = np.where(rng.random(n) < 0.3, rng.integers(1, 4, n), 100.0)
    snapshot = Snapshot(
        tuple("abcdefghi"[:n]),
        int(rng.integers(1, 20)),
        rng.uniform(0.5, 2, n),
        np.where(rng.random(n) < 0.2, 0.5, 0.0),
        cap,
        rng.random(n) < 0.8,
        rng.random(n),
        gain=lambda threads: 0.1 * (1 - 0.5**threads),
        efficient=rng.uniform(0.5, 8, n),
    )
    return snapshot, rng.permutation(draw(st.integers(2, n)))


@given(snapshots(), st.sampled_from(sorted(POLICIES)))
def test_the_first_use_what_the_search_gets(world, name):
    snapshot, at = world
    before = policy_named(name)(snapshot)
    after = yield_to_first(before, snapshot, [at])
    others = np.setdiff1d(np.arange(len(snapshot.jobs)), at)
    np.testing.assert_array_equal(after.share[others], before.share[others])
    np.testing.assert_array_equal(after.index[others], before.index[others])
    assert after.share[at].sum() == pytest.approx(before.share[at].sum())
    assert (after.share <= snapshot.cap + 1e-9).all()
    assert (after.share[at] >= np.minimum(snapshot.floor, before.share)[at] - 1e-9).all()
    assert (np.diff(after.index[at]) < 0).all()
    assert (after.index[at] <= np.sort(before.index[at])[::-1] + 1e-9).all()
    # One has more than its floor only once all before it have what they use well.
    most = np.minimum(snapshot.efficient, snapshot.cap)[at]
    beyond = after.share[at] > snapshot.floor[at] + 1e-9
    full = after.share[at] >= most - 1e-9
    for i in np.flatnonzero(beyond):
        assert full[:i].all()


@given(st.lists(st.floats(-9, 9), min_size=4, max_size=4), st.permutations(range(4)))
def test_what_jobs_are_owed_is_that_of_their_search(owed, order):
    share, groups = np.array([0.0, 3.0, 1.0, 2.0]), [np.array(order[:3])]
    found = spread(np.array(owed), share, groups)
    assert found[groups[0]].sum() == pytest.approx(np.array(owed)[groups[0]].sum(), abs=1e-6)
    assert found[order[3]] == owed[order[3]]


def test_the_order_is_by_reports_then_by_the_predicted_final_loss():
    forecast = Forecast(
        horizons=np.array([0.0, 10.0]),
        reduction=np.array([[0.0, 3.0], [0.0, 1.0], [0.0, 0.0], [0.0, 0.0], [0.0, 9.0]]),
        start=np.full(5, 9.0),
        level=np.array([4.0, 3.0, 1.0, 2.0, 9.0]),
        remaining=np.zeros(5),
        largest_change=np.ones(5),
        noise=np.zeros(5),
        n_reports=np.array([8, 8, 8, FEWEST_REPORTS - 1, 0]),
        status=np.array(
            [FitStatus.OK, FitStatus.OK, FitStatus.DIVERGING, FitStatus.OK, FitStatus.OK]
        ),
    )
    begun = np.array([True, True, True, True, False])
    ahead, attained, work = np.full(5, np.inf), np.full(5, 6.0), np.full(5, 1.0)
    (found,) = in_order(forecast, ahead, attained, work, begun, [np.arange(5)])
    assert found.tolist() == [3, 0, 1, 2, 4]  # 1.0 is below 2.0; what has no task comes last
    (soon,) = in_order(forecast, np.full(5, 1.0), attained, work, begun, [np.arange(2)])
    assert soon.tolist() == [1, 0]  # in one more step, 2.9 is below 3.7
    # One that has used far more than the reports of others take is known by what it has reported.
    (silent,) = in_order(forecast, ahead, 6.0 * attained, work, begun, [np.arange(5)])
    assert silent.tolist() == [0, 1, 3, 2, 4]


def test_a_model_whose_losses_are_all_lost_comes_last():
    engine = engine_of("grid")
    engine.add_job("lost", now=0.0, search="grid")
    train(engine, "lost", [float("nan")] * 9)
    found = engine.reallocate({"tcp://a": 4, "tcp://b": 4}, now=9.0)
    assert found["lost"].share == 0
    assert found["lost"].index == min(found[name].index for name in engine.jobs)


def engine_of(search: str) -> Engine:
    """Four jobs whose losses fall to ever lower losses, and ever more slowly."""
    engine = Engine("first-to-target")
    for k in range(4):
        engine.add_job(f"m{k}", now=0.0, max_iter=40, search=search)
        train(engine, f"m{k}", [3 - k + (0.6 + 0.1 * k) ** step for step in range(8)])
    return engine


def test_jobs_go_on_before_tasks_of_their_search_begin_more():
    engine = engine_of("grid")
    engine.add_job("grid", now=0.0, search="grid")
    train(engine, "grid", [-9 - step for step in range(9)])
    found = engine.reallocate({"tcp://a": 4, "tcp://b": 4}, now=9.0)
    assert found["grid"].index == min(found[name].index for name in engine.jobs)
    assert found["m3"].share == 8


def test_a_search_of_one_job_changes_nothing():
    engine, plain = Engine(), Engine()
    for each, search in ((engine, "grid"), (plain, "")):
        each.add_job("a", now=0.0, search=search)
        each.add_job("b", now=0.0)
    both = [list(e.reallocate({"tcp://a": 4}, now=1.0).terms()) for e in (engine, plain)]
    assert both[0] == both[1]
