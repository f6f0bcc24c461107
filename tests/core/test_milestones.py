"""Work left to the target and to the end: estimates jump at reports, and only there."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from training import train

from dask_slaq.core.engine import Engine
from dask_slaq.core.policies.quality_driven import EXCHANGE_RATE_AT_END

WORKERS = {"w0": 4, "w1": 4}
#: Seconds from one look at the index to the next, in which eight threads compute at most.
LOOK = 0.05


def begin(engine, name, *, announced, work, falls):
    """Have a job make iterations of some core-seconds, in tasks of a tenth, and report each."""
    engine.add_job(name, 0.0, max_iter=announced)
    loss = 1.0
    for seconds, fall in zip(work, falls, strict=True):
        for _ in range(10):
            engine.observe_task(name, seconds / 10, 8)
        loss *= fall
        engine.report(name, loss, 1.0)
    engine.observe_demand(name, 8)


jobs = st.integers(0, 9).flatmap(
    lambda n: st.fixed_dictionaries(
        {
            "announced": st.none() | st.integers(n + 1, 60),
            "work": st.lists(st.floats(1.0, 30.0), min_size=n, max_size=n),
            "falls": st.lists(st.floats(0.2, 1.0), min_size=n, max_size=n),
        }
    )
)


@given(first=jobs, second=jobs, seed=st.integers(0, 999))
def test_without_a_report_an_end_or_a_second_no_index_changes_by_a_factor_of_two(
    first, second, seed
):
    rng, engine = np.random.default_rng(seed), Engine("first-to-target")
    names = {"first": first, "second": second}
    submitted = {}
    for name, given_ in names.items():
        begin(engine, name, **given_)
        for _ in range(400 if not given_["work"] else 0):  # those without a report are known
            engine.observe_task(name, 0.1, 8)
        submitted[name] = math.nan if given_["work"] else 60.0
    now, seen = 30.0, []
    engine.add_job("other", now - 5, reports=False)
    engine.observe_left("other", 20.0)
    for _ in range(80):
        for name in names:
            engine.observe_left(name, submitted[name], more=True)
        engine.observe_demand("other", rng.integers(9))
        engine.reallocate(WORKERS, now)
        seen.append([engine.grants[name].index for name in names])
        now += LOOK * rng.random()
        name, seconds = rng.choice(list(names)), 8 * LOOK * rng.random()
        engine.observe_task(name, seconds, 8)
        submitted[name] -= seconds
    assert min(map(min, seen)) > 0
    for before, after in pairwise(seen):
        assert np.abs(np.log2(np.divide(after, before))).max() < 1


@given(job=jobs.filter(lambda job: job["work"] and job["announced"]))
def test_an_iteration_that_takes_too_long_makes_its_job_come_later(job):
    engine, seen = Engine("first-to-target"), []
    begin(engine, "late", **job)
    for _ in range(3):
        for _ in range(100):
            engine.observe_task("late", 1.0, 8)
        engine.reallocate(WORKERS, 100.0)
        seen.append(engine.grants["late"].index)
    assert seen == sorted(seen, reverse=True) and seen[-1] < 0.6 * seen[0]


def test_two_reports_at_once_do_not_make_an_iteration_short():
    engine = Engine("first-to-target")
    for name in ("twice", "small"):
        engine.add_job(name, 0.0, max_iter=20)
        engine.observe_task(name, 24.0 if name == "twice" else 1.0, 2)
        for loss in (1.0, 0.6):
            engine.report(name, loss, 20.0)
            engine.observe_task(name, 0.001 if name == "twice" else 1.0, 2)
        engine.observe_demand(name, 4)
    engine.reallocate(WORKERS, 20.0)
    assert engine.grants["small"].index > 4 * engine.grants["twice"].index


def test_the_first_report_says_nothing_of_the_work_that_was_not_known():
    engine, found = Engine("first-to-target"), []
    engine.add_job("job", 0.0, max_iter=20)
    for _ in range(200):
        engine.observe_task("job", 0.1, 8)
    engine.observe_demand("job", 8)
    for left in (1.0, math.nan):
        engine.observe_left("job", left, more=True)
        if left != 1.0:
            engine.observe_task("job", 1.0, 8)
            engine.report("job", 1.0, 30.0)
        engine.reallocate(WORKERS, 30.0)
        found.append(engine.grants["job"].index)
    assert found[1] == pytest.approx(found[0], rel=0.1)


def test_a_job_that_is_taken_to_be_at_its_target_is_not_last():
    engine = Engine("first-to-target")
    for name, work in (("done", 1.0), ("big", 25.0)):
        begin(engine, name, announced=15, work=[work] * 12, falls=[0.3] * 6 + [1.0] * 6)
    begin(engine, "begun", announced=15, work=[25.0] * 2, falls=[0.5] * 2)
    engine.reallocate(WORKERS, 30.0)
    index = {name: engine.grants[name].index for name in ("done", "begun", "big")}
    assert index["done"] > index["begun"] > index["big"]
    assert index["done"] == pytest.approx(1 / (EXCHANGE_RATE_AT_END * 3.0))


@pytest.mark.parametrize("policy", ["first-to-target", "max-total"])
@pytest.mark.parametrize("n", [1, 3, 4, 8, 20, 60])
def test_a_target_that_losses_do_not_show_yet_is_believed(policy, n):
    """On a plateau, the job whose user says where the loss will go comes before the other one."""
    losses = 2.3 + 0.01 * np.random.default_rng(0).standard_normal(n)
    engine = Engine(policy)
    engine.add_job("hint", 0.0, target=0.1)
    engine.add_job("plain", 0.0)
    for job in ("hint", "plain"):
        train(engine, job, losses, seconds=0.125, tasks=8)
    engine.reallocate({"w": 8}, float(n))
    hint, plain = (engine.grants[job] for job in ("hint", "plain"))
    assert hint.share >= plain.share and hint.index >= plain.index


def test_a_target_is_refuted_by_losses_that_have_fallen_and_stop():
    engine = Engine("max-total")
    engine.add_job("hint", 0.0, target=0.1)
    engine.add_job("plain", 0.0)
    for job in ("hint", "plain"):
        train(engine, job, [0.5 + 2 * 0.5**k for k in range(30)], seconds=0.125, tasks=8)
    engine.reallocate({"w": 8}, 30.0)
    assert engine.grants["hint"].index == pytest.approx(engine.grants["plain"].index)
