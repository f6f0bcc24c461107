"""Promises: the fair clock, what is due to jobs, and when they are expected to end."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.engine import Engine
from dask_slaq.core.jobs import ends as ends_module
from dask_slaq.core.jobs.arrays import JobArrays
from dask_slaq.core.jobs.ends import ANNOUNCED, GUESSED, EndForecasts
from dask_slaq.core.jobs.fair_clock import COLUMNS, MOST_AGES, FairClock
from dask_slaq.core.jobs.jobs import Epoch
from dask_slaq.core.jobs.promises import EXPLORED_EPOCHS, refill_tokens, still_new
from dask_slaq.core.owners.terms import OwnerTerms

CORES = 8.0


class World:
    """A fair clock of some jobs that have arrived at times."""

    def __init__(self, *, arrivals, weight=1.0, cap=100.0, total=np.inf):
        self.table = JobArrays(COLUMNS)
        self.clock = FairClock(self.table)
        self.rows = np.array([self.table.acquire() for _ in arrivals])
        self.arrivals = np.array(arrivals, float)
        self.weight, self.cap, self.total = (
            np.broadcast_to(np.array(x, float), self.rows.shape) for x in (weight, cap, total)
        )
        self.now = 0.0

    def go(self, seconds, step=1.0):
        """Let time pass in steps, and return what each job received by the end of each."""
        found = []
        for _ in range(round(seconds / step)):
            self.now += step
            here = np.flatnonzero(self.arrivals < self.now)
            self.clock.advance(
                self.rows[here], self.weight[here], self.cap[here], self.total[here],
                CORES, step, self.now - self.arrivals[here], 1.0,
            )  # fmt: skip
            found.append(self.served())
        return np.array(found)

    def served(self):
        return self.table.column["fair_served"][self.rows]


@pytest.mark.parametrize(
    ("jobs", "step", "served"),
    [
        ({"arrivals": [0, 0, 0], "weight": [1, 1, 3], "cap": [100, 1, 100]}, 1, [17.5, 10, 52.5]),
        ({"arrivals": [0, 0], "total": [10, np.inf]}, 10, [10, 70]),  # done after 2.5 s
        ({"arrivals": [0, 4]}, 1, [4 * 8 + 6 * 4, 6 * 4]),
    ],
)
def test_jobs_share_what_others_cannot_use_at_once(jobs, step, served):
    assert World(**jobs).go(10, step)[-1] == pytest.approx(served)


def test_who_has_ended_in_the_real_world_goes_on_here_by_what_it_used():
    world = World(arrivals=[0, 0])
    world.go(5)  # 20 each
    world.clock.leave(world.rows[1], 28.0)  # so that 8 are left: two seconds
    world.rows, world.arrivals = world.rows[:1], world.arrivals[:1]
    world.weight, world.cap, world.total = (x[:1] for x in (world.weight, world.cap, world.total))
    assert world.go(4)[-1] == pytest.approx([20 + 2 * 4 + 2 * 8])


@pytest.mark.parametrize("step", [0.3, 1.0, 7.0])
def test_the_past_is_known_to_a_part_of_the_age(step):
    rng = np.random.default_rng(0)
    world = World(arrivals=np.append(0.0, rng.uniform(0, 600, 20)), total=rng.uniform(50, 900, 21))
    received = world.go(1000, step)
    ages = np.arange(1, len(received) + 1) * step
    for age in rng.uniform(0, 1000, 50):
        known = world.clock.served(world.rows[:1], np.array([age])).item()
        near = 3 * 1000 / MOST_AGES
        low, high = np.interp([age - near, age + near], ages, received[:, 0])
        assert low - 1e-6 <= known <= high + 1e-6


def test_it_is_known_when_jobs_end_here():
    world = World(arrivals=[0, 0], total=[20, 60])
    world.go(3)
    rows, age = world.rows, np.array([3.0, 3.0])
    threads = np.array([4.0, 4.0])
    until = world.clock.until_end(rows, world.total, threads, age)
    assert until == pytest.approx([2.0, 12.0])
    world.go(7)
    until = world.clock.until_end(rows, world.total, np.array([0.0, 8.0]), np.array([10.0, 10.0]))
    assert until == pytest.approx([-5.0, 0.0], abs=1e-6)  # 20 + 40 in 5 s, and 40 in 5 s more
    assert np.isnan(world.clock.until_end(rows, np.full(2, np.inf), threads, age)).all()


CAPACITY, EPOCH = 4.0, 2.0


def engine_of(**seconds: float) -> Engine:
    """Engine with jobs that have computed for some core-seconds, and have tasks for all threads."""
    engine = Engine("fair")
    for name, used in seconds.items():
        engine.add_job(name, 0.0)
        engine.observe_demand(name, 4)
        engine.observe_task(name, used)
    return engine


def test_a_job_is_new_until_it_has_used_two_epochs_of_its_share_of_the_threads():
    share = EXPLORED_EPOCHS * EPOCH * CAPACITY / 4
    engine = engine_of(a=share - 0.1, b=share + 0.1, c=0.0, d=0.0)
    found = still_new(engine.jobs, Epoch(0.0, EPOCH, EPOCH, CAPACITY))
    by_name = dict(zip(engine.jobs.order().names, found.tolist(), strict=True))
    assert by_name == {"a": True, "b": False, "c": True, "d": True}


def test_what_a_job_of_unknown_length_is_due_by_the_end_of_the_epoch_accrues():
    engine = engine_of(a=0.0, b=0.0)
    fair, nothing = np.full(2, 2.0), np.zeros(2)
    tokens, rate = refill_tokens(
        engine.jobs, Epoch(0.0, 0.0, EPOCH, CAPACITY), 1.1, 0.9, fair, nothing, np.full(2, np.inf)
    )
    assert tokens == pytest.approx([0.0, 0.0])
    assert rate == pytest.approx(0.9 * fair)


def test_a_job_of_known_length_is_due_more_by_the_end_of_the_epoch():
    engine = engine_of(a=0.0)
    jobs = engine.jobs
    rows, total = jobs.order().rows, np.array([1000.0])
    weight, cap, one = np.ones(1), np.full(1, CAPACITY), np.ones(1)
    for age in (2.0, 4.0, 6.0):  # the fair clock gives it all threads
        jobs.fair_clock.advance(rows, weight, cap, total, CAPACITY, EPOCH, one * age, EPOCH)
    tokens, rate = refill_tokens(
        jobs, Epoch(6.0, EPOCH, EPOCH, CAPACITY), 2.0, 0.9, cap, one * 6.0, total
    )
    now, soon = (jobs.fair_clock.served(rows, one * (6.0 + s) / 2.0) for s in (0.0, EPOCH))
    assert now == pytest.approx(3.0 * CAPACITY) and soon == pytest.approx(4.0 * CAPACITY)
    assert tokens == pytest.approx(now)
    assert rate == pytest.approx((soon - now) / EPOCH)


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


def stated(ends, table, settled=True, now=0.0, left=49.0, fair=20.0, share=5.0):
    """Return the row of a new job of so many core-seconds, and the ends stated of it."""
    row, one = table.acquire(), np.ones(1)
    total = 1.0 + left
    return row, ends.forecast(
        np.array([row]), one, total * one, share * np.ones((3, 1)),
        np.array([ANNOUNCED if settled else GUESSED]), fair * one, 40 * one, 1.0, now, 8.0,
    )  # fmt: skip


@pytest.mark.parametrize(("bias", "settled"), [(0.3, False), (1.0, True), (4.0, False)])
def test_the_band_holds_four_of_five_ends_however_wrong_the_expectation_is(bias, settled):
    rng = np.random.default_rng(1)
    table = JobArrays(ends_module.COLUMNS)
    ends, held, kept, judged = EndForecasts(table), [], [], []
    for k in range(600):
        now = 1000.0 * k
        row, found = stated(ends, table, settled, now, fair=10.0)
        real = 10.0 * bias * rng.lognormal(0.0, 0.5)  # 50 core-seconds on 5 threads
        held.append(found.low.item() <= real <= found.high.item())
        kept.append(real <= found.promised.item())
        judged += [held[-1]] if real > 1.0 and np.isfinite(found.expected) else []
        ends.learn(row, now + real)
        table.release(row)
    assert 0.75 <= np.mean(held[200:]) <= 0.85
    assert np.mean(kept[200:]) >= 0.96
    assert ends.hits == (50, sum(judged[-50:]))


@pytest.mark.parametrize("spread, shown", [(0.2, True), (1.2, False)])
def test_nothing_is_expected_before_the_second_report_until_like_jobs_have_shown_it(spread, shown):
    rng = np.random.default_rng(1)
    table = JobArrays(ends_module.COLUMNS)
    ends = EndForecasts(table)
    _, found = stated(ends, table, settled=False, left=99.0)
    assert np.isnan([found.low, found.expected, found.high]).all()
    assert found.promised > 40 and found.fair == 20  # these are known
    assert stated(ends, table, left=99.0)[1].expected > 0
    said = 0
    for k in range(100):
        row, found = stated(ends, table, False, 1000.0 * k, left=99.0)
        said += bool(np.isfinite(found.expected).item())
        ends.learn(row, 1000.0 * k + 20.0 * rng.lognormal(0.0, spread))
        table.release(row)
    _, found = stated(ends, table, False, 1e6, left=99.0)
    assert np.isfinite(found.expected) == shown
    assert ends.hits.ended == min(said, ends.held.maxlen)  # what was not shown is not counted


@pytest.mark.parametrize("seconds", [1e-300, 1e300])
def test_one_absurd_end_leaves_all_bands_finite(seconds):
    table = JobArrays(ends_module.COLUMNS)
    ends = EndForecasts(table)
    row, _ = stated(ends, table)
    ends.learn(row, seconds)
    table.release(row)
    _, found = stated(ends, table)
    assert 0 < found.low < found.expected < found.high < np.inf


def test_an_end_within_an_epoch_of_what_was_stated_is_not_judged():
    table = JobArrays(ends_module.COLUMNS)
    ends = EndForecasts(table)
    for seconds, judged in ((0.5, 0), (10.0, 1)):
        row, _ = stated(ends, table)
        ends.learn(row, seconds)
        table.release(row)
        assert ends.hits.ended == judged


def test_an_engine_says_when_jobs_of_known_length_end():
    engine, workers = Engine("fair"), {"w": 4}
    for name in ("known", "unknown"):
        engine.add_job(name, 0.0, max_iter=10 if name == "known" else None)
    for now in range(6):
        for name in engine.jobs:
            engine.observe_demand(name, 8)
            if now:
                engine.observe_task(name, 2.0, 8)
                engine.report(name, 1.0 / now, float(now))
        engine.reallocate(workers, float(now))
    assert engine.end_of("unknown", 5.0) is None
    ends = engine.end_of("known", 5.0)
    # 20 core-seconds at two threads: of five seconds, one passed before its first tasks.
    assert ends["fair"] == pytest.approx(5.0, abs=1.5)
    assert ends["promised"] > 2 * (5.0 + ends["fair"]) - 5.0  # with room for jobs to come
    assert ends["low"] < ends["expected"] < ends["high"]
    later = engine.end_of("known", 7.0)
    assert later["promised"] == pytest.approx(ends["promised"] - 2.0)


def test_the_end_of_what_was_submitted_is_not_that_of_announced_iterations():
    engine, workers = Engine("fair"), {"w": 4}
    engine.add_job("fit", 0.0)
    engine.observe_demand("fit", 8)
    engine.observe_task("fit", 0.1, 8)
    engine.observe_left("fit", 0.8)
    engine.reallocate(workers, 1.0)
    assert engine.end_of("fit", 1.0)["expected"] < 2
    engine.set_max_iter("fit", 100)
    assert engine.end_of("fit", 1.0) is None  # until the next decision
    engine.reallocate(workers, 2.0)
    assert math.isnan(engine.end_of("fit", 2.0)["expected"])


def test_a_job_without_a_task_at_the_moment_goes_on_as_before():
    engine = Engine("fair")
    for name in "ab":
        engine.add_job(name, 0.0, max_iter=20)
    for k in range(8):
        for name in "ab":
            engine.observe_demand(name, 0 if k == 7 and name == "a" else 4)
            engine.observe_task(name, seconds=4.0, at_once=4)
            engine.report(name, 0.8**k, float(k))
        engine.reallocate({"w": 8}, float(k))
    ends = engine.end_of("a", 7.0)
    assert 5 < ends["fair"] < 20 and ends["fair"] < ends["promised"] < 70
    assert ends["low"] < ends["expected"] < ends["high"] < 100


def test_nothing_is_expected_of_a_job_that_may_have_no_thread():
    engine = Engine("fair")
    engine.add_job("paused", 0.0, max_iter=10)
    engine.observe_demand("paused", 4)
    engine.observe_task("paused", 1.0, 4)
    engine.report("paused", 1.0, 0.5)
    engine.pause("paused")
    engine.reallocate({"w": 4}, 1.0)
    assert engine.end_of("paused", 1.0) is None
