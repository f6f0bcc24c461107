"""Simulation on a cluster whose number of workers follows the work."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from dask_slaq.core.scaling import Demand, Scaler, ScalingRule, work_left
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.simulation.fluid.cluster import Cluster, FloatArray, workers
from dask_slaq.simulation.fluid.simulator import DIVISIONS, Outcome, Simulation

__all__ = ["Adaptive", "ByWorth", "ElasticSimulation", "Rule"]

#: Seconds between two looks, as of Dask's `Adaptive`.
INTERVAL = 1.0
#: Core-seconds that a task of unknown duration takes, as Dask assumes.
UNKNOWN = 0.5


class Rule(Protocol):
    """How many workers there are to be: asked once per `INTERVAL`."""

    def __call__(self, simulation: ElasticSimulation) -> int:
        """Return the number of workers that there are to be, from 0 to the maximum."""


class ElasticCluster(Cluster):
    """Cluster of workers of `threads` that compute `start_up` seconds after they were asked for.

    Each is paid for from the request until it is given back. Tasks on a worker that is given back
    count as done: live workers drain before.
    """

    def __init__(self, n_jobs: int, threads: int, start_up: float, move_pause: float) -> None:
        self.threads, self.starts, self.look = threads, 0, 0.0
        self._start_up = start_up
        self._asked: deque[float] = deque()  # of each worker to come, when it was asked for
        self._since: list[float] = []  # of each worker that is there
        self._paid = 0.0
        super().__init__(n_jobs, 0, (), move_pause)

    def _set(self, cores: int) -> None:
        self.cores, self.workers = cores, workers(cores, self.threads)

    @property
    def next_change(self) -> float:
        """Time of the next look, or at which the next worker computes."""
        coming = self._asked[0] + self._start_up if self._asked else math.inf
        return min(coming, self.look)

    @property
    def here(self) -> int:
        """Number of workers that compute."""
        return len(self._since)

    @property
    def plan(self) -> int:
        """Number of workers that compute or were asked for."""
        return len(self._since) + len(self._asked)

    def come(self, now: float) -> None:
        """Let the workers compute that are due."""
        while self._asked and self._asked[0] + self._start_up <= now:
            self._since.append(self._asked.popleft())
        self._set(self.threads * self.here)

    def scale(self, count: int, now: float) -> None:
        """Ask for workers until there are to be `count`, or give back the last ones."""
        more = count - self.plan
        self._asked += [now] * more
        self.starts += max(more, 0)
        for _ in range(-more):
            self._paid += now - (self._asked.pop() if self._asked else self._since.pop())
        self._set(self.threads * self.here)

    def worker_seconds(self, now: float) -> float:
        """Return the worker-seconds paid for until `now`."""
        return self._paid + sum(now - since for since in (*self._since, *self._asked))


class ElasticSimulation(Simulation):
    """Simulation that begins without workers and has as many as a `rule` says, up to `most`.

    Other arguments are those of `Simulation`.
    """

    cluster: ElasticCluster

    def __init__(
        self, *given: Any, rule: Rule, threads: int, most: int, start_up: float, **settings: Any
    ) -> None:
        super().__init__(*given, threads * most, **settings)
        self.rule, self.most, self.threads = rule, most, threads
        pause = settings.get("move_pause", 0.0)
        self.cluster = ElasticCluster(len(self.jobs), threads, start_up, pause)

    def run(self, progress: Callable[[int], object] | None = None) -> Outcome:
        """Run until the last job ends; see `Simulation.run`."""
        outcome = super().run(progress)
        outcome.worker_seconds = self.cluster.worker_seconds(self.now)
        outcome.starts = self.cluster.starts
        return outcome

    def _resize(self) -> int:
        before, cluster = self.cluster.cores, self.cluster
        cluster.come(self.now)
        if self.now >= cluster.look:
            cluster.look = self.now + INTERVAL
            cluster.scale(min(max(self.rule(self), 0), self.most), self.now)
        return int(cluster.cores != before)

    def _divide(self) -> None:
        if self.cluster.cores:
            super()._divide()
        else:
            self.iterations.rate[self.active] = self.iterations.compute[self.active] = 0.0

    def _at_once(self, i: int) -> int:
        width = self.jobs[i].partitions
        return int(width) if math.isfinite(width) else DIVISIONS * self.most * self.threads


class Adaptive:
    """Dask's own number: as many workers as end the tasks that wait in `seconds`.

    After `wait_count` looks that agree, workers above it are given back, but not those that were
    there when a job began: they have its data.
    """

    def __init__(self, seconds: float = 5.0, wait_count: int = 3) -> None:
        self._seconds = seconds
        self._wait_count = wait_count
        self._down: deque[int] = deque(maxlen=wait_count)
        self._data: dict[int, int] = {}  # by job, the workers that were there when it began

    def __call__(self, simulation: ElasticSimulation) -> int:
        """Return the number of workers that there are to be."""
        here, plan = simulation.cluster.here, simulation.cluster.plan
        target = math.ceil(self._threads(simulation) / simulation.threads)
        active = simulation.active.tolist()
        if here:
            self._data = {i: self._data.get(i, here) for i in active}
        if target >= plan:
            self._down.clear()
            return target
        data = max((self._data.get(i, 0) for i in active), default=0)
        self._down.append(max(target, min(data, here)))
        if len(self._down) < self._wait_count:
            return plan
        return max(self._down)

    def _threads(self, simulation: ElasticSimulation) -> int:
        """Return the threads that end the tasks that wait or run in time."""
        iterations, seconds, tasks = simulation.iterations, 0.0, 0
        ready = simulation.active[simulation.resume[simulation.active] <= simulation.now]
        for i, left in zip(ready.tolist(), iterations.left(ready).tolist(), strict=True):
            some = math.ceil(simulation._at_once(i) * min(left, 1.0))
            known = iterations.finished[i] > 0
            seconds += simulation.jobs[i].work * left if known else UNKNOWN * some
            tasks += some
        return min(math.ceil(seconds / self._seconds), tasks)


class ByWorth:
    """The plugin's number with the setting ``slaq.scaling``, from what its engine knows."""

    def __init__(self, terms: ScalingTerms, threads: int, rule: ScalingRule | None = None) -> None:
        self._scaler = Scaler(terms, rule)
        self._scaler.threads = threads

    def __call__(self, simulation: ElasticSimulation) -> int:
        """Return the number of workers that there are to be."""
        return self._scaler.update(
            self._demand(simulation), simulation.cluster.here, simulation.now
        )

    @staticmethod
    def _demand(simulation: ElasticSimulation) -> Demand:
        engine, now, active = simulation.engine, simulation.now, simulation.active.tolist()
        order = engine.jobs.order()
        if not order.names:
            return Demand(*np.zeros((4, 0)))
        by_name = {simulation.jobs[i].name: i for i in active}
        rows = [by_name[name] for name in order.names]
        tasks = np.array([simulation._at_once(i) for i in rows], float)
        forecast = engine._predictor.forecast(order.reported)
        work, width = work_left(engine.jobs, forecast, tasks)
        width = np.minimum(width, simulation.most * simulation.threads)
        # None of its tasks has ended: as long again as it has taken.
        so_far = now - np.array([simulation.jobs[i].arrival for i in rows])
        unknown: FloatArray = np.minimum(tasks, width) * np.maximum(so_far, UNKNOWN)
        weight = engine.jobs.table.column["weight"][order.rows]
        work = np.where(np.isnan(work), unknown, work)
        return Demand(work, width, weight, np.full(len(rows), math.nan))
