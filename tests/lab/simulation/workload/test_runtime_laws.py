"""Runtime laws give the documented times for every number of threads."""

import numpy as np
import pytest
from lab.simulation.conftest import make

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.lab.simulation.workload.simulated_jobs import SCALINGS, fastest, law, rate

COUNTS = np.arange(1.0, 301.0)


def seconds(truth, count=COUNTS):
    """Of the first job, on each of these numbers of threads."""
    return np.array([truth.seconds(np.array([0]), np.array([n]))[0] for n in count])


def test_linear():
    truth = law("linear", [make(work=12.0)])
    assert seconds(truth, [1, 4, 12]).tolist() == [12.0, 3.0, 1.0]


def test_waves():
    truth = law("waves", [make(work=20.0, partitions=20)])
    assert seconds(truth, [1, 7, 10, 19, 20]).tolist() == [20.0, 3.0, 2.0, 2.0, 1.0]
    one = np.array([0])
    assert truth.useful(one, np.array([19.0])) == 10.0
    assert truth.step(one, np.array([10.0])) == 20.0
    assert np.isinf(truth.step(one, np.array([20.0])))


def test_waves_need_partitions():
    with pytest.raises(InvalidSetting, match="partitions"):
        law("waves", [make()])


def test_sublinear_has_a_fastest_count_and_is_like_linear_on_32_threads():
    jobs = [make(str(i), work=64.0) for i in range(40)]
    truth = law("sublinear", jobs, seed=1)
    best = fastest(truth, 640)
    assert (best >= 31).all() and (best <= 260).all() and np.ptp(best) > 50
    times = seconds(truth)
    assert (np.diff(times[: int(best[0] * 0.9)]) < 0).all()
    assert times[31] == pytest.approx(2.0)
    assert (times * COUNTS >= times[0] * (1 - 1e-9)).all()  # never more than linear


def test_one_seed_one_law():
    jobs = [make(str(i)) for i in range(4)]
    one, same, other = (law("sublinear", jobs, seed).terms for seed in (1, 1, 2))
    assert (one == same).all() and (one != other).any()


@pytest.mark.parametrize("name", SCALINGS)
def test_a_fraction_is_a_thread_for_part_of_the_time(name):
    truth = law(name, [make(partitions=64)])
    one = np.array([0])
    at = {n: rate(truth, one, np.array([n]))[0] for n in (0.0, 0.25, 1.0, 3.0, 3.5, 4.0)}
    assert at[0.0] == 0.0
    assert at[0.25] == pytest.approx(at[1.0] / 4)
    assert at[3.5] == pytest.approx((at[3.0] + at[4.0]) / 2)


def test_the_fastest_count_is_within_what_a_job_can_use():
    jobs = [make("a", partitions=40), make("b", partitions=7)]
    assert fastest(law("waves", jobs), 640).tolist() == [40.0, 7.0]
    assert fastest(law("linear", jobs[:1]), 16).tolist() == [16.0]
