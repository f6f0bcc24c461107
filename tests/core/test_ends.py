"""Expected ends: bands that hold as many ends as they state."""

from __future__ import annotations

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
    ends, held, kept = EndForecasts(table), [], []
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
        ends.learn(rows[0], now + real)
        table.release(rows[0])
    assert 0.75 <= np.mean(held[200:]) <= 0.85
    assert np.mean(kept[200:]) >= 0.96
    assert ends.hits == (50, sum(held[-50:]))


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
