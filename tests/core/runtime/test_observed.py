"""The runtime model estimates the work per iteration and the iterations that threads buy."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dask_slaq.core.runtime.job_speeds import Speeds, waves
from dask_slaq.core.runtime.observed import Runtimes

seconds = st.floats(1e-6, 1e6)
widths = st.integers(1, 1000)


class One:
    """One job among `Runtimes`."""

    def __init__(self, runtimes: Runtimes | None = None) -> None:
        self.runtimes = Runtimes() if runtimes is None else runtimes
        self.row = self.runtimes.acquire()

    def __getattr__(self, name: str):
        return self.runtimes.column[name].item(self.row)

    def iteration(self, *tasks: float, at_once: int = 1) -> None:
        for task in tasks:
            self.runtimes.observe_task(self.row, task, at_once)
        self.runtimes.end_iteration(self.row)
        self.runtimes.observe_iterations()

    def iterations(self, *work: float) -> None:
        """Several between two looks at them."""
        for task in work:
            self.runtimes.observe_task(self.row, task)
            self.runtimes.end_iteration(self.row)
        self.runtimes.observe_iterations()

    def run(self, threads: float, time: float, iterations: int = 1, width: int = 1000) -> None:
        """An epoch of iterations that take `time` seconds each on so many threads."""
        rows = np.array([self.row])
        self.runtimes.grant(rows, np.array([threads]), np.zeros(1))
        for _ in range(iterations):
            self.runtimes.advance(rows, time / min(threads, 1.0))
            self.iteration(max(threads, 1.0) * time, at_once=width)
        self.runtimes.learn(np.arange(self.row + 1))

    def speeds(self) -> Speeds:
        return self.runtimes.speeds(np.array([self.row]))

    def speed(self, threads: float) -> float:
        return float(self.speeds()(np.array([threads]))[0])


def law(serial: float, work: float, tree: float, each: float):
    return lambda n: serial + work / n + tree * np.log(n) + each * n


LINEAR = law(0.0, 10.0, 0.0, 0.0)
STRONG = law(0.3, 10.0, 0.05, 0.05)
STRONG_OPTIMUM = 13.65  # where its derivative is 0


def test_a_new_job_costs_nothing_yet():
    job = One()
    assert (job.work, job.width, job.attained) == (0.0, 1.0, 0.0)
    job.iteration()
    assert (job.work, job.width) == (0.0, 1.0)
    assert job.speed(0.0) == job.speed(9.0) == 0.0


def test_the_first_interval_counts_until_the_second():
    job = One()
    job.iteration(60.0, 40.0)  # imports, compilation, loading
    assert job.work == 100.0
    job.iteration(1.0)
    assert job.work == 1.0
    job.iteration(2.0)
    assert 1.0 < job.work < 2.0


@given(st.lists(seconds, min_size=3, max_size=30))
def test_work_stays_within_what_was_seen(costs):
    job = One()
    for cost in costs:
        job.iteration(cost)
    assert min(costs[1:]) * (1 - 1e-9) <= job.work <= max(costs[1:]) * (1 + 1e-9)
    assert job.attained == pytest.approx(sum(costs))


def test_reports_without_tasks_in_between_change_nothing():
    job = One()
    job.iteration(3.0, at_once=4)
    job.iteration(2.0, at_once=4)
    for _ in range(9):
        job.iteration()
    assert (job.work, job.width) == (2.0, 4.0)


def test_width_grows_at_once_and_shrinks_slowly():
    job = One()
    job.iteration(1.0, at_once=2)
    job.iteration(1.0, at_once=16)
    assert job.width == 16
    job.iteration(1.0, at_once=1)
    assert 8 < job.width < 16
    for _ in range(40):
        job.iteration(1.0, at_once=1)
    assert job.width == pytest.approx(1.0, abs=1e-3)


@given(seconds, widths, st.floats(0, 2000))
def test_a_linear_job_computes_on_as_many_threads_as_it_has_tasks(work, width, threads):
    job = One()
    job.iteration(work, at_once=width)
    assert job.speed(threads) == pytest.approx(min(threads, width) / work)


@given(widths, st.integers(1, 1000))
def test_waves_are_the_fewest_rounds_that_hold_all_tasks(width, threads):
    n = int(waves(width, threads))
    assert (n - 1) * threads < width <= n * threads
    assert waves([3, 3], [0.0, 0.5]).tolist() == [3.0, 3.0]  # a fraction counts as one


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_linear_jobs_stay_linear_under_noise(noise):
    draw = np.random.default_rng(1)
    judged = []
    for _ in range(4):
        job = One()
        for _ in range(60):
            threads = float(draw.choice([1, 2, 4, 8, 16, 32, 64]))
            job.run(threads, LINEAR(threads) * max(1 + noise * draw.standard_normal(), 0.3))
            judged.append(job.scaled)
        assert job.speed(32) == pytest.approx(1 / LINEAR(32), rel=1e-6 + 2 * noise)
    assert not any(judged)


@pytest.mark.parametrize("noise", [0.0, 0.05])
@given(seed=st.integers(0, 10**6))
def test_a_job_that_scales_badly_is_known_after_a_handful_of_thread_counts(noise, seed):
    draw = np.random.default_rng(seed)
    job = One()
    for threads in (1, 2, 4, 8, 16, 32, 1, 8, 32):
        job.run(threads, STRONG(threads) * (1 + noise * draw.standard_normal()))
    assert job.scaled
    assert job.speeds().useful[0] <= STRONG_OPTIMUM * (1.05 if noise == 0 else 1.5)
    for threads in (2.0, 4.0, 8.0):
        tolerance = 0.1 if noise == 0 else 0.3
        assert job.speed(threads) == pytest.approx(1 / STRONG(threads), rel=tolerance)


def test_growth_is_not_promised_far_beyond_what_was_tried():
    job = One()
    for threads in (1, 2, 4, 1, 2, 4, 1, 2, 4):
        job.run(threads, law(3.0, 10.0, 0.0, 0.0)(threads))
    assert job.scaled
    assert 4 < job.speeds().useful[0] <= 8


def test_a_new_job_scales_as_the_others_do():
    runtimes = Runtimes()
    for _ in range(4):
        job = One(runtimes)
        for threads in (1, 2, 4, 8, 16, 32):
            job.run(threads, 3 * STRONG(threads))
    new = One(runtimes)
    for _ in range(3):
        new.run(4.0, 7 * STRONG(4))
    assert new.scaled
    assert new.speed(8.0) == pytest.approx(1 / (7 * STRONG(8)), rel=0.15)
    for row in range(5):
        runtimes.forget(row)
    later = One(runtimes)
    for _ in range(3):
        later.run(4.0, STRONG(4))
    assert later.scaled


def test_a_job_of_which_nothing_is_known_is_not_sent_beyond_where_most_others_are_fastest():
    runtimes = Runtimes()
    optima = []
    for each_thread in (0.2, 0.05, 0.0125, 0.003):  # in relation to 10 core-seconds
        truth = law(0.0, 10.0, 0.0, each_thread)
        job = One(runtimes)
        for threads in (1, 2, 4, 8, 16, 32, 64, 1, 8, 32):
            job.run(threads, truth(threads))
        optima.append((10.0 / each_thread) ** 0.5)  # where its derivative is 0
    new = One(runtimes)
    assert min(optima) <= new.speeds().useful[0] <= np.median(optima)
    for row in range(4):
        runtimes.forget(row)
    assert min(optima) <= One(runtimes).speeds().useful[0] <= np.median(optima)


def test_one_that_scales_linearly_among_those_that_do_not_is_told_apart():
    runtimes = Runtimes()
    jobs = [One(runtimes) for _ in range(4)]
    rows = np.arange(4)
    for threads in (1, 2, 4, 8, 16, 32) * 3:
        for job in jobs[1:]:
            job.run(threads, STRONG(threads))
        jobs[0].run(threads, LINEAR(threads))
        runtimes.learn(rows)
    assert jobs[0].speed(32.0) == pytest.approx(1 / LINEAR(32), rel=0.15)
    assert jobs[1].speeds().useful[0] < 2 * STRONG_OPTIMUM


@pytest.mark.parametrize("share", [0.1, 0.5])
def test_waiting_for_threads_is_not_slowness(share):
    steady, waiting = One(), One()
    for _ in range(6):
        steady.run(1.0, LINEAR(1))
        waiting.run(share, LINEAR(1))
        rows = np.array([waiting.row])
        waiting.runtimes.grant(rows, np.zeros(1), np.zeros(1))
        waiting.runtimes.advance(rows, 100.0)
    assert not waiting.scaled
    assert waiting.speed(4.0) == pytest.approx(steady.speed(4.0))
    assert waiting.most == pytest.approx(1.0)


def test_work_that_is_lent_threads_is_not_read_as_slow():
    job = One()
    rows = np.array([job.row])
    job.runtimes.grant(rows, np.array([0.5]), np.zeros(1))
    for _ in range(6):
        job.runtimes.advance(rows, 1.0)
        job.iteration(8.0, at_once=8)  # on eight threads
        job.runtimes.learn(rows)
    assert not job.scaled
    assert job.speed(8.0) == pytest.approx(1.0)
    assert job.most == 8


laws = st.tuples(*[st.floats(0, 5), st.floats(0.1, 50), st.floats(0, 2), st.floats(0, 1)])


@given(laws, st.lists(st.integers(1, 500), min_size=1, max_size=12), st.integers(0, 1000))
def test_speed_is_finite_nondecreasing_and_concave(terms, counts, seed):
    draw = np.random.default_rng(seed)
    job = One()
    for threads in counts:
        job.run(threads, law(*terms)(threads) * draw.uniform(0.5, 2.0))
    grid = np.linspace(0.0, 700.0, 1401)
    speeds = job.runtimes.speeds(np.full(len(grid), job.row))
    value, cost = speeds(grid), speeds.core_seconds(grid)
    assert np.isfinite(value).all() and value[0] == 0.0
    assert (np.diff(value) >= -1e-12 * value.max()).all()
    assert (np.diff(value, n=2) <= 1e-9 * value.max()).all()
    assert np.isfinite(cost).all() and (cost >= 0).all()


def test_start_up_does_not_count_where_several_iterations_are_taken_in_at_once():
    job = One()
    job.iterations(50.0, 2.0, 2.0)
    assert job.work == 2.0
    job.iterations(2.0, 2.0)
    assert job.work == 2.0


def test_what_is_charged_after_a_report_belongs_to_the_next_iteration():
    job = One()
    job.iterations(9.0, 2.0, 2.0)
    job.runtimes.observe_task(job.row, 1.5)
    job.runtimes.end_iteration(job.row)
    job.runtimes.observe_task(job.row, 0.5)
    job.runtimes.observe_iterations()
    assert job.charged == 0.5
