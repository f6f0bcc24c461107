"""Workers by worth, against a slow and obvious rival, and its laws."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.policies import fair_fill
from dask_slaq.core.scaling import Demand, Worth
from dask_slaq.core.scaling_terms import check_scaling
from dask_slaq.core.settings import check_worth

number = st.floats(0.5, 500.0)
job = st.tuples(number, st.integers(1, 40), st.sampled_from([1.0, 2.0, 0.5]))


def demand(jobs, worth):
    work, width, weight = (np.array(column, float) for column in zip(*jobs, strict=True))
    return Demand(work, width, weight, np.full(len(jobs), worth))


def worth_of(jobs, *, here=2, more=6, start_up=30.0, stay=60.0, price=1.0, worth=None):
    worth = 3600.0 * 2.0 * price if worth is None else worth  # two workers
    arrive = [0.0] * here + [start_up] * more
    stays = [0.0] * here + [start_up + stay] * more
    return Worth(demand(jobs, worth), np.array(arrive), np.array(stays), 2, price)


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
    worth = worth_of(jobs, here=here, more=3, start_up=start_up)
    for count in range(here + 4):
        arrive = ([0.0] * here + [start_up] * 3)[:count]
        expected = slow(jobs, arrive, 2)
        np.testing.assert_allclose(worth.end[count], expected, rtol=1e-6)


@given(st.lists(job, min_size=1, max_size=8), st.integers(0, 4))
def test_more_workers_end_all_jobs_no_later_and_cost_at_least_their_stay(jobs, here):
    worth = worth_of(jobs, here=here)
    assert (np.diff(worth.end[1:], axis=0) <= 1e-6 * worth.end[1:-1] + 1e-6).all()
    assert (worth.paid[here + 1 :] >= 90.0 * np.arange(1, 7)).all()
    found = worth.best(1, 7)
    assert 1 <= found <= 7
    total = worth.money + worth.time
    assert total[found] == total[1:8].min()


@given(st.lists(job, min_size=1, max_size=8), st.floats(0.01, 100.0))
def test_the_unit_of_the_price_does_not_matter(jobs, unit):
    first = worth_of(jobs, worth=5.0).best()
    assert worth_of(jobs, price=unit, worth=5.0 * unit).best() == first
    assert worth_of(jobs, price=unit).best() == worth_of(jobs).best()


@given(st.lists(job, min_size=1, max_size=8), number)
def test_dearer_time_asks_for_no_fewer_workers(jobs, worth):
    cheap, dear = worth_of(jobs, worth=worth), worth_of(jobs, worth=4 * worth)
    assert dear.best() >= cheap.best()


def test_work_that_ends_before_a_worker_comes_asks_for_none():
    assert worth_of([(40.0, 8.0, 1.0)]).best() == 2
    assert worth_of([(4000.0, 80.0, 1.0)]).best() > 2


def test_a_job_gets_no_more_workers_than_it_has_tasks_for():
    assert worth_of([(4000.0, 6.0, 1.0)]).best() == 3


def test_without_workers_any_work_asks_for_one():
    assert worth_of([(1.0, 1.0, 1.0)], here=0).best() == 1
    assert worth_of([(1.0, 1.0, 1.0)], here=0, worth=1e-9).best() == 1


def test_a_comparison_tells_what_is_saved_and_what_it_costs():
    worth = worth_of([(120.0, 2.0, 1.0)] * 2, here=4, more=0, price=0.1, worth=36.0)
    found = worth.compare(1, 2)
    assert found == pytest.approx(
        {"seconds": 120.0, "jobs": 2, "last": 60.0, "worth": 1.2, "cost": 0.0}
    )


@pytest.mark.parametrize(
    "wrong",
    [
        None,
        {},
        {"price": 0},
        {"price": "free"},
        {"price": 1, "minimum": 3, "maximum": 2},
        {"price": 1, "maximum": 0},
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
    assert math.isnan(check_worth(None)) and check_worth(3) == 3.0
    with pytest.raises(InvalidSetting, match="worth_per_hour"):
        check_worth(0)
