"""Workers by their value: how many, how long idle ones are kept, and in words."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.policies import fair_fill
from dask_slaq.core.scaling import Demand, Value, in_words
from dask_slaq.core.scaling.scaler import Levels, seconds_to_keep
from dask_slaq.core.scaling_terms import IN_HOURS, ScalingTerms, check_scaling
from dask_slaq.core.settings import check_value_per_hour

number = st.floats(0.5, 500.0)
job = st.tuples(number, st.integers(1, 40), st.sampled_from([1.0, 2.0, 0.5]))


def demand(jobs, value_per_hour):
    work, width, weight = (np.array(column, float) for column in zip(*jobs, strict=True))
    return Demand(work, width, weight, np.full(len(jobs), value_per_hour))


def value_of(jobs, *, here=2, more=6, start_up=30.0, stay=60.0, price=1.0, value_per_hour=None):
    value_per_hour = (
        3600.0 * 2.0 * price if value_per_hour is None else value_per_hour
    )  # two workers
    arrive = [0.0] * here + [start_up] * more
    stays = [0.0] * here + [start_up + stay] * more
    return Value(demand(jobs, value_per_hour), np.array(arrive), np.array(stays), 2, price)


def slow(jobs, arrive, threads):
    """The seconds until each job ends, one event after the other."""
    left = np.array([work for work, _, _ in jobs], float)
    width, weight = (np.array([each[k] for each in jobs], float) for k in (1, 2))
    end, now = np.full(len(jobs), np.inf), 0.0
    while (left > 1e-7).any():
        here = threads * sum(at <= now for at in arrive)
        cap = np.where(left > 1e-7, width, 0.0)
        share = fair_fill(weight, np.zeros(len(left)), cap, here)
        later = [at - now for at in arrive if at > now]
        busy = share > 1e-9
        if not busy.any() and not later:
            return end
        step = min([*later, *(left[busy] / share[busy])])
        left = np.where(busy, left - share * step, left)
        now += step
        end[(left <= 1e-7) & np.isinf(end)] = now
    return end


@given(st.lists(job, min_size=1, max_size=5), st.integers(0, 3), st.floats(0.0, 60.0))
def test_jobs_end_as_they_do_one_event_after_the_other(jobs, here, start_up):
    value = value_of(jobs, here=here, more=3, start_up=start_up)
    for count in range(here + 4):
        arrive = ([0.0] * here + [start_up] * 3)[:count]
        expected = slow(jobs, arrive, 2)
        np.testing.assert_allclose(value.end[count], expected, rtol=1e-6)


@given(st.lists(job, min_size=1, max_size=8), st.integers(0, 4))
def test_more_workers_end_all_jobs_no_later_and_cost_at_least_their_stay(jobs, here):
    value = value_of(jobs, here=here)
    assert (np.diff(value.end[1:], axis=0) <= 1e-6 * value.end[1:-1] + 1e-6).all()
    assert (value.paid[here + 1 :] >= 90.0 * np.arange(1, 7)).all()
    found = value.best(1, 7)
    assert 1 <= found <= 7
    total = value.money + value.time
    assert total[found] == total[1:8].min()


@given(st.lists(job, min_size=1, max_size=8), st.floats(0.01, 100.0))
def test_the_unit_of_the_price_does_not_matter(jobs, unit):
    first = value_of(jobs, value_per_hour=5.0).best()
    assert value_of(jobs, price=unit, value_per_hour=5.0 * unit).best() == first
    assert value_of(jobs, price=unit).best() == value_of(jobs).best()


@given(st.lists(job, min_size=1, max_size=8), number)
def test_dearer_time_asks_for_no_fewer_workers(jobs, value_per_hour):
    cheap, dear = (
        value_of(jobs, value_per_hour=value_per_hour),
        value_of(jobs, value_per_hour=4 * value_per_hour),
    )
    assert dear.best() >= cheap.best()


def test_work_that_ends_before_a_worker_comes_asks_for_none():
    assert value_of([(40.0, 8.0, 1.0)]).best() == 2
    assert value_of([(4000.0, 80.0, 1.0)]).best() > 2


def test_a_job_gets_no_more_workers_than_it_has_tasks_for():
    assert value_of([(4000.0, 6.0, 1.0)]).best() == 3


def test_a_comparison_tells_what_is_saved_and_what_it_costs():
    value = value_of([(120.0, 2.0, 1.0)] * 2, here=4, more=0, price=0.1, value_per_hour=36.0)
    found = value.compare(1, 2)
    assert found == pytest.approx(
        {"seconds": 120.0, "jobs": 2, "last": 60.0, "worth": 1.2, "cost": 0.0}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"price": 0},
        {"price": 1, "minimum": 3, "maximum": 2},
        {"price": 1, "maximum": 2.5},
        {"price": 1, "stay": -1},
        {"price": 1, "colour": "red"},
    ],
)
def test_wrong_terms_are_refused(wrong):
    with pytest.raises(InvalidSetting):
        check_scaling(wrong)


def test_terms_are_read():
    found = check_scaling({"price": 0.1, "maximum": 8, "start-up": 60})
    assert found == (0.1, 0, 8, 60.0, 60.0, None)
    assert math.isnan(check_value_per_hour(None)) and check_value_per_hour(3) == 3.0
    with pytest.raises(InvalidSetting, match="value_per_hour"):
        check_value_per_hour(0)


times = st.lists(st.floats(0.0, 1000.0), max_size=40)


@given(times, st.floats(0.0, 300.0))
def test_a_worker_is_kept_for_at_most_what_it_costs_to_get_it_again(pauses, again):
    assert 0 <= seconds_to_keep(pauses, again) <= again + 1e-6


@given(st.floats(1.0, 500.0), st.floats(10.0, 300.0))
def test_equal_pauses_are_outlasted_or_not_waited_for(pause, again):
    kept = seconds_to_keep([pause] * 60, again)
    assert kept > pause if pause < 0.9 * again else kept <= max(pause, again)
    if pause > 1.2 * again:
        assert kept < 0.5 * again


@given(st.lists(st.integers(0, 8), min_size=1, max_size=60), st.floats(1, 50), st.floats(0, 50))
def test_a_level_stays_for_its_time_and_none_is_missing(pays, start_up, stay):
    levels, begun, target = Levels(), {}, 0
    for at, count in enumerate(pays):
        now, before = 10.0 * at, target
        use = [1.0] * count + [0.0] * (8 - count)
        target = levels.update(count, now, use=use, start_up=start_up, stay=stay)
        assert count <= target <= max(count, before)
        for k in range(1, 9):
            if k <= target:
                begun.setdefault(k, now)
                assert levels.asked(k) == begun[k]
            elif k in begun:
                assert now - begun.pop(k) >= start_up + stay
                assert levels.asked(k) is None


def test_it_learns_from_pauses():
    levels, now = Levels(), 0.0
    given = {"use": [1.0] * 3, "start_up": 60.0, "stay": 0.0}
    for _ in range(5):
        assert levels.update(3, now, **given) == 3
        assert levels.update(0, now + 1, **{**given, "use": [0.0] * 3}) == 3
        now += 40.0
    levels.update(3, now, **given)
    assert levels.pauses == (40.0,) * 15


def test_a_worker_that_is_missed_again_and_again_is_asked_for_at_last():
    levels, asked = Levels(), []
    for second in range(600):
        busy = second % 60 < 12  # too short for a worker that comes after 30 s
        use = [1.0, 9.0 * busy, 0.2 * busy]
        pays = 2 if busy and asked[-31:-30] == [2] else 1  # once it is there
        asked.append(levels.update(pays, float(second), use=use, start_up=30.0, stay=60.0))
    assert asked[:15] == [1] * 15
    assert asked[100:] == [2] * 500  # and it is kept between two of them


def test_what_is_missed_is_forgotten():
    levels = Levels()
    for second in range(0, 36000, 60):
        use = [1.0, 1.0 if second % 3600 < 60 else 0.0]
        target = levels.update(1, float(second), use=use, start_up=30.0, stay=60.0)
        assert target == 1


def test_a_worker_that_would_mostly_be_idle_is_not_asked_for():
    levels = Levels()
    for second in range(36000):
        busy = second % 120 < 20  # worth 50 seconds of it, of the 120 that it would cost
        use = [1.0, 2.5 * busy]
        assert levels.update(1, float(second), use=use, start_up=30.0, stay=60.0) == 1


TERMS = ScalingTerms(0.1, maximum=20)


def value(jobs, terms=TERMS, price_of_time=1.0):
    """Jobs of 3600 core-seconds that can use four threads, two workers there, and six to come."""
    none = np.zeros(jobs)
    demand = Demand(none + 3600.0, none + 4.0, none + 1.0, none + price_of_time)
    arrive = np.array([0.0] * 2 + [30.0] * 6)
    return Value(demand, arrive, arrive, 1, terms.per_second)


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (in_words(value(0), 2, 0, None, TERMS), "no work waits: 0 workers"),
        (in_words(value(0), 2, 1, None, TERMS), "no work waits: 1 worker, for the data in memory"),
        (
            in_words(value(2), 2, 4, None, TERMS),
            "4 workers pay now: another one would save 12 min of 2 jobs, worth 0.20, "
            "and costs 0.00083",
        ),
        (
            in_words(value(1), 2, 4, None, TERMS),
            "4 workers pay now: another one would save no time",
        ),
        (
            in_words(value(2, IN_HOURS), 2, 4, None, IN_HOURS),
            "4 workers pay now: another one would save 12 min of 2 jobs, worth 0.20 worker-hours, "
            "and costs 0.0083 worker-hours",
        ),
        (
            in_words(value(1), 2, 4, None, ScalingTerms(0.1, minimum=4)),
            "4 workers, the minimum: another one would save no time",
        ),
        (
            in_words(value(1), 2, 4, None, ScalingTerms(0.1, maximum=4)),
            "4 workers pay now, and no more are allowed: another one would save no time",
        ),
        (
            in_words(value(2), 2, 4, 8, TERMS),
            "8 workers instead of 2: all ends 45 min sooner, for 0.005 more",
        ),
        (
            in_words(value(2), 2, 4, 1, TERMS),
            "1 worker instead of 2: all ends 1.0 h later, for the same",
        ),
        (
            in_words(value(2, IN_HOURS), 2, 4, 8, IN_HOURS),
            "8 workers instead of 2: all ends 45 min sooner, for 0.05 worker-hours more",
        ),
        (
            in_words(value(2), 2, 4, 0, TERMS),
            "0 workers instead of 2: nothing would end, for 0.20 less",
        ),
    ],
)
def test_it_is_told_in_one_sentence(found, text):
    assert found == text
