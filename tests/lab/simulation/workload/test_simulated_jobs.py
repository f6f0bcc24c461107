"""Lists of jobs depend on the seed alone, and their work is calibrated to the paper."""

import numpy as np
import pytest

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.lab.simulation.workload.curves import LossCurve, make_curves
from dask_slaq.lab.simulation.workload.simulated_jobs import (
    calibrate,
    make_jobs,
    offered_load,
    time_shared,
    work_to,
)


def test_lists_are_a_function_of_the_seed():
    curves = make_curves(0)
    one, same, other = (make_jobs(curves, seed, jobs=12) for seed in (3, 3, 4))
    assert [(j.name, j.curve, j.arrival, j.work) for j in one] == [
        (j.name, j.curve, j.arrival, j.work) for j in same
    ]
    assert [j.arrival for j in one] != [j.arrival for j in other]


def test_every_seed_loads_alike():
    curves = make_curves(0)
    for seed in range(3):
        jobs = make_jobs(curves, seed, jobs=20, interarrival=6.0, work=50.0)
        assert np.mean([job.total for job in jobs]) == pytest.approx(50.0)
        assert jobs[0].arrival == 0 and jobs[-1].arrival == pytest.approx(19 * 6.0)
        assert offered_load(jobs, 10) == pytest.approx(50 / 60)
        assert (np.diff([job.arrival for job in jobs]) >= 0).all()


def test_noise_changes_reports_alone():
    curves = make_curves(0)
    clean, noisy = (make_jobs(curves, 0, jobs=8, noise=noise) for noise in (0.0, 0.05))
    for a, b in zip(clean, noisy, strict=True):
        assert (a.loss == b.loss).all() and (a.reports == a.loss).all()
        assert a.arrival == b.arrival and a.work == b.work
    ratio = [np.std(j.reports - j.loss) / np.ptp(j.loss) for j in noisy]
    assert np.mean(ratio) == pytest.approx(0.05, rel=0.2)


def test_one_job_and_all_at_once():
    assert len(make_jobs(make_curves(0), 0, jobs=1)) == 1
    burst = make_jobs(make_curves(0), 0, jobs=5, interarrival=0.0)
    assert [job.arrival for job in burst] == [0.0] * 5
    assert offered_load(burst, 4) is None


def test_equal_sharing_of_two_jobs():
    # Alone for 1 s on 4 cores, then both on 2; the first ends at 3 s, and the second has 4 left.
    times = time_shared(np.array([0.0, 1.0]), np.array([[4.0, 4.0], [8.0, 8.0]]), 4)
    assert times.tolist() == [[1.0, 2.0], [3.0, 3.0]]


@pytest.mark.parametrize("seed", [0, 7])
def test_calibration_meets_the_paper(seed):
    curves = make_curves(seed)
    work = calibrate(curves)
    t90, t95 = np.mean(
        [
            np.nanmean(
                time_shared(np.array([j.arrival for j in jobs]), work_to(jobs, (0.9, 0.95)), 640)[
                    :2
                ],
                axis=1,
            )
            for jobs in (make_jobs(curves, s, work=work) for s in range(6))
        ],
        axis=0,
    )
    assert np.sqrt(t90 * t95) == pytest.approx(np.sqrt(71 * 98), rel=0.01)
    assert t90 == pytest.approx(71, rel=0.15)


def test_curves_that_do_not_fall_cannot_be_calibrated():
    flat = [LossCurve("a", "a", np.ones(20), False)]
    with pytest.raises(InvalidSetting, match="no curve falls"):
        calibrate(flat)
