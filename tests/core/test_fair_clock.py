"""The fair clock: what jobs would have received on a cluster that shares fairly."""

import numpy as np
import pytest

from dask_slaq.core.fair_clock import COLUMNS, POINTS, FairClock
from dask_slaq.core.job_arrays import JobArrays

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


def test_jobs_share_by_weight_and_what_one_cannot_use_goes_to_the_others():
    world = World(arrivals=[0, 0, 0], weight=[1, 1, 3], cap=[100, 1, 100])
    assert world.go(10)[-1] == pytest.approx([17.5, 10, 52.5])


def test_a_job_that_is_done_leaves_its_threads_to_the_others_at_once():
    world = World(arrivals=[0, 0], total=[10, np.inf])
    assert world.go(10, step=10)[-1] == pytest.approx([10, 70])  # done after 2.5 s


def test_who_comes_later_shares_from_then_on():
    world = World(arrivals=[0, 4])
    assert world.go(10)[-1] == pytest.approx([4 * 8 + 6 * 4, 6 * 4])


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
        near = 3 * 1000 / POINTS
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
