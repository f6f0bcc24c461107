"""Work without a loss is a row like any other: its loss is the share of its tasks that are left."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import train

from dask_slaq.core.engine import Engine
from dask_slaq.core.milestones import FIRST_PART
from dask_slaq.core.policies import EXCHANGE_RATE
from dask_slaq.core.policies.quality_driven import EXCHANGE_RATE_AT_END

WORKERS = {"w0": 4, "w1": 4}
BY_FORECAST = ["max-total", "first-to-target"]
seconds = st.floats(0.1, 1000.0)


def index_of(policy, used, left, *, now=4.0, more=False, reports=True, weight=1.0):
    """Index of a job without a loss beside one that trains."""
    engine = Engine(policy)
    engine.add_job("training", 0.0, max_iter=30)
    engine.add_job("work", 0.0, reports=reports, weight=weight)
    train(engine, "training", [0.8**k for k in range(6)])
    engine.observe_demand("work", 8)
    engine.reallocate(WORKERS, 3.0)
    engine.observe_task("work", used, 8)
    engine.observe_left("work", left, more=more)
    engine.reallocate(WORKERS, now)
    return engine.grants["work"].index


@given(used=st.floats(50.0, 1000.0), left=seconds)
@pytest.mark.parametrize("policy", BY_FORECAST)
def test_a_job_and_a_plain_client_with_the_same_work_have_the_same_index(policy, used, left):
    assert index_of(policy, used, left) == index_of(policy, used, left, reports=False) > 0


def test_the_index_is_the_part_of_the_work_left_that_a_core_second_does():
    assert index_of("first-to-target", 50.0, 20.0) == pytest.approx(1 / (EXCHANGE_RATE * 20.0))
    assert index_of("first-to-target", 50.0, 20.0, weight=2.0) == pytest.approx(
        2 / (EXCHANGE_RATE * 20.0)
    )
    assert index_of("max-total", 50.0, 20.0) == pytest.approx(1 / (EXCHANGE_RATE * 70.0))


@given(used=st.floats(50.0, 1000.0), left=seconds, hidden=st.floats(0.0, 1000.0))
@pytest.mark.parametrize("policy", BY_FORECAST)
def test_more_work_left_is_never_before_less(policy, used, left, hidden):
    assert index_of(policy, used, left + hidden) <= index_of(policy, used, left)


@given(used=st.floats(50.0, 1000.0), left=seconds)
def test_work_that_is_submitted_by_and_by_falls_back_with_what_it_had_beyond_its_share(used, left):
    whole = index_of("first-to-target", used, left)
    parts = index_of("first-to-target", used, left, more=True)
    beyond = max(used - 4 * 4.0, 0.0)  # half of eight threads for four seconds
    assert parts == pytest.approx(1 / (EXCHANGE_RATE * (left + beyond)))
    assert parts <= whole


@given(used=st.floats(0.0, 1000.0), left=st.one_of(st.just(math.nan), st.floats(0.0, 1000.0)))
@pytest.mark.parametrize(
    ("policy", "reports"), [("max-total", True), ("first-to-target", False), ("las", True)]
)
def test_no_job_is_of_a_second_class(policy, used, left, reports):
    found = index_of(policy, used, left, reports=reports, now=30.0)
    assert math.isfinite(found) and found >= 0


def test_a_training_at_its_target_goes_on_to_its_end_as_other_work_does():
    engine = Engine("first-to-target")
    for name in ("training", "later"):
        engine.add_job(name, 0.0, max_iter=200)
        train(engine, name, [0.8**k for k in range(100 if name == "training" else 10)])
    engine.add_job("batch", 0.0, reports=False)
    engine.observe_task("batch", 100.0, 8)
    engine.observe_left("batch", 10.0)
    engine.reallocate(WORKERS, 60.0)
    index = {name: engine.grants[name].index for name in ("training", "later", "batch")}
    assert index["batch"] == pytest.approx(1 / (EXCHANGE_RATE * 10.0))
    assert index["later"] > index["batch"] > index["training"] > 1 / (EXCHANGE_RATE_AT_END * 101.0)


@pytest.mark.parametrize("policy", BY_FORECAST)
def test_a_training_before_its_first_report_has_its_iterations_left(policy):
    engine = Engine(policy)
    engine.add_job("new", 0.0, max_iter=10)
    engine.observe_task("new", 30.0, 8)
    engine.observe_demand("new", 8)
    engine.observe_left("new", 10.0, more=True)
    engine.reallocate(WORKERS, 30.0)
    # An iteration takes 40 so far.
    target, end = (10.0 + n * 40.0 for n in (10 * FIRST_PART - 1, 9))
    assert engine.grants["new"].index == pytest.approx(
        1 / target if policy == "first-to-target" else 1 / (end + 30.0)
    )
