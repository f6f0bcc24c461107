"""Jobs before their first report: how long they are, and what they are due."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.owner_terms import OwnerTerms

WORKERS = {f"w{i}": 1 for i in range(4)}


def total(engine, name):
    """Return the core-seconds that a job is expected to take."""
    rows = engine.jobs.order().rows
    work = engine.jobs.runtimes.speeds(rows).work
    return engine.jobs.total(rows, work)[engine.jobs.order().position[name]]


def test_announced_iterations_are_as_long_as_the_tasks_of_the_first_one():
    engine = Engine("fair")
    engine.add_job("new", 0.0, max_iter=60)
    assert total(engine, "new") == math.inf  # nothing is known
    engine.observe_task("new", 0.2)
    engine.observe_left("new", 0.8)
    assert total(engine, "new") == pytest.approx(60.0)
    engine.observe_left("new", math.nan)  # more tasks of the iteration may come
    assert total(engine, "new") == pytest.approx(12.0)


def test_they_are_as_long_as_those_of_other_jobs_until_its_own_tasks_tell():
    engine = Engine("fair")
    for name in ("old", "new"):
        engine.add_job(name, 0.0, max_iter=10)
    for now in range(1, 5):
        engine.observe_task("old", 3.0)
        engine.report("old", 1.0 / now, float(now))
    engine.reallocate(WORKERS, 5.0)
    assert total(engine, "new") == pytest.approx(30.0)
    engine.observe_task("new", 5.0)
    assert total(engine, "new") == pytest.approx(50.0)
    engine.observe_left("new", 1.0)
    assert total(engine, "new") == pytest.approx(60.0)


@given(
    attained=st.floats(0, 1e6), left=st.floats(0, 1e6) | st.just(math.nan),
    max_iter=st.integers(1, 10**6),
)  # fmt: skip
def test_a_length_is_never_below_what_is_known(attained, left, max_iter):
    engine = Engine("fair")
    engine.add_job("new", 0.0, max_iter=max_iter)
    engine.observe_task("new", attained)
    engine.observe_left("new", left)
    found = total(engine, "new")
    assert found >= attained + (0.0 if math.isnan(left) else left)
    assert not math.isnan(found)


def test_jobs_of_an_owner_are_promised_no_more_than_its_limit():
    engine = Engine("fair", owners={"ann": OwnerTerms(max_threads=1.0)})
    for name in ("a", "b"):
        engine.add_job(name, 0.0, owner="ann", max_iter=100)
    for now in range(1, 41):
        for name in ("a", "b"):
            engine.observe_demand(name, 4)
            engine.observe_task(name, 0.5)
            engine.report(name, 0.9**now, float(now))
        engine.reallocate(WORKERS, float(now))
    rows = engine.jobs.order().rows
    served = engine.jobs.table.column["fair_served"][rows]
    assert served.sum() == pytest.approx(40.0, rel=0.06)  # four threads served 160 before


def test_what_is_due_before_the_first_report_comes_before_older_debts():
    engine = Engine("max-total")
    for name in ("old", "new"):
        engine.add_job(name, 0.0 if name == "old" else 20.0, max_iter=60)
        for now in range(1, 11):
            if name == "old":
                engine.observe_demand("old", 4)
                engine.observe_task("old", 0.1)
                engine.report("old", 1.0, float(now))
                engine.reallocate(WORKERS, float(now))
    for now in range(20, 31):
        engine.observe_demand("new", 4)
        engine.observe_demand("old", 4)
        engine.observe_left("new", 4.0)
        engine.observe_task("new", 0.01)
        engine.reallocate(WORKERS, float(now))
    terms = {each.job: each for each in engine.grants.terms()}
    assert terms["new"].tokens > 0
    assert terms["new"].rate == 0.0  # so that it does not wait for its turn among debts
