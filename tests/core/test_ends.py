"""Expected ends: bands that hold as many ends as they state."""

import numpy as np
import pytest

from dask_slaq.core.ends import COLUMNS, EndForecasts
from dask_slaq.core.engine import Engine
from dask_slaq.core.job_arrays import JobArrays


@pytest.mark.parametrize("bias", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("settled", [False, True])
def test_the_band_holds_four_of_five_ends_however_wrong_the_expectation_is(bias, settled):
    rng = np.random.default_rng(1)
    table = JobArrays(COLUMNS)
    ends, held, kept, judged = EndForecasts(table), [], [], []
    for k in range(600):
        rows, now = np.array([table.acquire()]), 1000.0 * k
        one = np.ones(1)
        found = ends.forecast(
            rows, 50 * one, 100 * one, 5 * one, one == settled,
            10 * one, 40 * one, 1.0, now, 8.0,
        )  # fmt: skip
        real = 10.0 * bias * rng.lognormal(0.0, 0.5)  # 50 core-seconds on 5 threads
        held.append(found.low.item() <= real <= found.high.item())
        kept.append(real <= found.promised.item())
        judged += [held[-1]] if real > 1.0 and np.isfinite(found.expected) else []
        ends.learn(rows[0], now + real)
        table.release(rows[0])
    assert 0.75 <= np.mean(held[200:]) <= 0.85
    assert np.mean(kept[200:]) >= 0.96
    assert ends.hits == (50, sum(judged[-50:]))


@pytest.mark.parametrize("spread, shown", [(0.2, True), (1.2, False)])
def test_nothing_is_expected_before_the_second_report_until_like_jobs_have_shown_it(spread, shown):
    rng = np.random.default_rng(1)
    table, one = JobArrays(COLUMNS), np.ones(1)
    ends = EndForecasts(table)

    def forecast(settled, now):
        rows = np.array([table.acquire()])
        found = ends.forecast(
            rows, 1 * one, 100 * one, 5 * one, one == settled, 20 * one, 40 * one, 1.0, now, 8.0
        )
        return rows[0], found

    _, found = forecast(settled=False, now=0.0)
    assert np.isnan([found.low, found.expected, found.high]).all()
    assert found.promised > 40 and found.fair == 20  # these are known
    assert forecast(settled=True, now=0.0)[1].expected > 0
    said = 0
    for k in range(100):
        row, found = forecast(settled=False, now=1000.0 * k)
        said += bool(np.isfinite(found.expected).item())
        ends.learn(row, 1000.0 * k + 20.0 * rng.lognormal(0.0, spread))
        table.release(row)
    row, found = forecast(settled=False, now=1e6)
    assert np.isfinite(found.expected) == shown
    assert ends.judged == said  # what was not shown is not counted


def test_an_end_within_an_epoch_of_what_was_stated_is_not_judged():
    table, one = JobArrays(COLUMNS), np.ones(1)
    ends = EndForecasts(table)
    for seconds, judged in ((0.5, 0), (10.0, 1)):
        rows = np.array([table.acquire()])
        ends.forecast(rows, 1 * one, 50 * one, 5 * one, one > 0, 20 * one, 40 * one, 1.0, 0.0, 8.0)
        ends.learn(rows[0], seconds)
        table.release(rows[0])
        assert ends.judged == judged


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
    assert 5 < ends["fair"] < 20 and ends["fair"] < ends["promised"] < 60
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
