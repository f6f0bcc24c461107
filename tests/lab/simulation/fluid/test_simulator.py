"""The fluid simulator agrees with results that can be derived by hand."""

import numpy as np
import pytest
from lab.simulation.conftest import make, run

from dask_slaq.core.engine import Engine
from dask_slaq.core.policies import POLICIES
from dask_slaq.lab.simulation.fluid import workers
from dask_slaq.lab.simulation.workload.curves import make_curves
from dask_slaq.lab.simulation.workload.simulated_jobs import make_jobs, time_shared, work_to


def ends(found):
    return [float(times[-1]) for times in found.outcome.times]


def test_a_job_alone_has_all_cores():
    found = run([make(work=8.0, iterations=10)], cores=16)
    assert found.outcome.times[0] == pytest.approx(0.5 * np.arange(1, 11))


def test_fair_is_equal_sharing(some_jobs):
    found = run(some_jobs, cores=64)
    arrivals = np.array([job.arrival for job in some_jobs])
    t90, t95, end = time_shared(arrivals, work_to(some_jobs, (0.9, 0.95)), 64)
    assert found.time_to(0.9) == pytest.approx(t90)
    assert found.time_to(0.95) == pytest.approx(t95)
    assert found.completion == pytest.approx(end)


@pytest.mark.slow
@pytest.mark.parametrize("policy", POLICIES)
def test_the_same_list_gives_the_same_run_and_all_work_is_done_once(some_jobs, policy):
    one, other = (run(some_jobs[:6], policy, cores=32) for _ in range(2))
    for a, b in zip(one.outcome.times, other.outcome.times, strict=True):
        assert (a == b).all()
    assert one.outcome.busy == pytest.approx(sum(job.total for job in some_jobs[:6]))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "scaling"),
    [
        *((policy, "waves") for policy in POLICIES),
        ("max-total", "linear"),
        ("max-total", "sublinear"),
    ],
)
def test_never_more_threads_than_there_are(policy, scaling):
    jobs = make_jobs(
        make_curves(0), 2, jobs=12, interarrival=3.0, work=150.0, partitioned=scaling == "waves"
    )
    used = []

    def watch(now, active, threads):
        assert threads.sum() <= 40 + 1e-6 and (threads >= 0).all()
        used.append(threads.sum())

    found = run(jobs, policy, cores=40, scaling=scaling, watch=watch)
    assert np.mean(used) > 20
    assert all(np.isfinite(times).all() for times in found.outcome.times)
    assert all((np.diff(times) >= 0).all() for times in found.outcome.times)


@pytest.mark.parametrize("policy", ["fair", "max-total"])
def test_cores_are_idle_only_when_no_job_is_there(some_jobs, policy):
    def watch(now, active, threads):
        assert threads.sum() == pytest.approx(64.0, rel=2e-3)

    run(some_jobs, policy, cores=64, watch=watch)


def test_a_cap_holds():
    jobs = [make("a", work=8.0), make("b", work=8.0)]
    assert ends(run(jobs, cores=16, max_cores=4.0)) == pytest.approx([20.0, 20.0])


def test_a_job_uses_no_more_threads_than_it_has_partitions():
    jobs = [make("a", work=8.0, partitions=4), make("b", work=24.0)]
    found = run(jobs, cores=16)  # the second is lent four of the first's eight threads
    assert ends(found) == pytest.approx([20.0, 20.0])


def test_waves():
    assert ends(run([make(work=20.0, partitions=20)], cores=16, scaling="waves")) == [20.0]


def test_threads_that_save_no_wave_are_lent():
    # Eight each: `b` needs three waves on eight threads as on seven, `a` on nine only one.
    jobs = [make("a", work=9.0, partitions=9), make("b", work=20.0, partitions=20)]
    found = run(jobs, cores=16, scaling="waves")
    assert found.outcome.times[0] == pytest.approx(np.arange(1.0, 11.0))


def test_threads_of_a_new_worker_wait_for_their_data():
    clean, paused = (run([make(work=8.0)], cores=16, move_pause=p) for p in (0.0, 2.0))
    assert paused.outcome.times[0] == pytest.approx(clean.outcome.times[0] + 2.0)


def test_noise_changes_nothing_under_fair_and_quality_is_the_true_one():
    found = [
        run(make_jobs(make_curves(0), 1, jobs=6, interarrival=5.0, work=100.0, noise=n))
        for n in (0.0, 0.2)
    ]
    assert (found[0].time_to(0.9) == found[1].time_to(0.9)).all()


class Listening(Engine):
    """Keeps what it was told, and when."""

    def __init__(self, *args, **settings):
        super().__init__(*args, **settings)
        self.charged, self.times, self.losses = {}, [], {}

    def observe_task(self, job, seconds, at_once=1):
        self.charged[job] = self.charged.get(job, 0.0) + seconds
        super().observe_task(job, seconds, at_once)

    def report(self, job, loss, now):
        self.times.append(now)
        self.losses.setdefault(job, []).append(loss)
        super().report(job, loss, now)

    def reallocate(self, workers, now, **settings):
        assert not self.times or now >= self.times[-1]
        return super().reallocate(workers, now, **settings)


def test_the_engine_is_told_every_report_in_time_and_every_core_second(some_jobs):
    engine = Listening("max-total", epoch=3.0)
    found = run(some_jobs, cores=64, engine=engine)
    assert engine.times == sorted(engine.times)
    for job in some_jobs:
        assert engine.losses[job.name] == job.reports.tolist()
        assert engine.charged[job.name] == pytest.approx(job.total)
    assert found.outcome.busy == pytest.approx(sum(engine.charged.values()))
    assert not engine.jobs


@pytest.mark.parametrize(
    ("gap", "expected"), [(0.0, [0.0, 3.0, 4.0, 7.0, 8.0]), (2.0, [0.0, 3.0, 5.0, 8.0, 10.0])]
)
def test_decisions_come_every_epoch_and_with_arrivals_and_ends(gap, expected):
    jobs = [make("a", work=16.0), make("b", arrival=4.0, work=16.0, iterations=2)]
    times = []

    class Clock(Engine):
        def reallocate(self, workers, now, **settings):
            times.append(now)
            return super().reallocate(workers, now, **settings)

    run(jobs, cores=16, engine=Clock("fair", epoch=3.0), gap=gap)
    assert times[:5] == pytest.approx(expected)


def test_workers_have_all_cores():
    assert sum(workers(640).values()) == 640 and len(workers(640)) == 40
    assert workers(3) == {"worker-000000": 3}
