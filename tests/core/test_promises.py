"""Promises in numbers: who is new, and what accrues to whom."""

import numpy as np
import pytest

from dask_slaq.core.engine import Engine
from dask_slaq.core.promises import EXPLORED, advance_fair_clock, refill_tokens, still_new

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
    share = EXPLORED * EPOCH * CAPACITY / 4
    engine = engine_of(a=share - 0.1, b=share + 0.1, c=0.0, d=0.0)
    found = still_new(engine.jobs, CAPACITY, EPOCH)
    by_name = dict(zip(engine.jobs.order().names, found.tolist(), strict=True))
    assert by_name == {"a": True, "b": False, "c": True, "d": True}


def test_what_a_job_of_unknown_length_is_due_by_the_end_of_the_epoch_accrues():
    engine = engine_of(a=0.0, b=0.0)
    fair, nothing = np.full(2, 2.0), np.zeros(2)
    tokens, rate = refill_tokens(
        engine.jobs, 1.1, 0.9, EPOCH, 0.0, fair, nothing, np.full(2, np.inf)
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
    tokens, rate = refill_tokens(jobs, 2.0, 0.9, EPOCH, EPOCH, cap, one * 6.0, total)
    now, soon = (jobs.fair_clock.served(rows, one * (6.0 + s) / 2.0) for s in (0.0, EPOCH))
    assert now == pytest.approx(3.0 * CAPACITY) and soon == pytest.approx(4.0 * CAPACITY)
    assert tokens == pytest.approx(now)
    assert rate == pytest.approx((soon - now) / EPOCH)


def test_a_job_keeps_its_width_for_about_an_epoch_after_its_tasks_have_ended():
    engine = engine_of(a=0.0)
    jobs, one = engine.jobs, np.ones(1)
    rows = jobs.order().rows

    def width(elapsed: float) -> float:
        advance_fair_clock(jobs, one, 8 * one, np.inf * one, 8.0, elapsed, elapsed, 1.1, EPOCH)
        return jobs.table.column["fair_width"][rows].item()

    assert width(0.0) == 4.0
    engine.observe_demand("a", 1)
    assert width(EPOCH / 2) == pytest.approx(4.0 * np.exp(-0.5))
    assert width(10 * EPOCH) == 1.0
