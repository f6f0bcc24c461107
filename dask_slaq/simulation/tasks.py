"""The event loop task by task, on a cluster of one-thread workers: what a fluid leaves out.

A thread changes hands when its task ends, tasks are sent a little ahead, and the sums that end an
iteration wait behind what runs where their inputs are. `Simulation` divides threads at will, which
is enough where tasks are many and short; here a run costs time in proportion to its tasks.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.sets import Workers
from dask_slaq.simulation.jobs import SimulatedJob
from dask_slaq.simulation.simulator import Outcome

__all__ = ["TaskSimulation"]

FloatArray = npt.NDArray[np.float64]

#: What the live plugin does by default: expected seconds of work that a thread may have left and
#: be sent another task, and what is kept of the used core-seconds from epoch to epoch.
AHEAD, FADE = 0.025, 0.5


@dataclass(order=True)
class _Task:
    """A task; on a thread the one of the older graph comes first, and a sum before the rest."""

    order: tuple[int, int, int]
    job: _Job = field(compare=False)
    seconds: float = field(compare=False)
    level: int = field(compare=False)
    number: int = field(compare=False)
    expected: float = field(compare=False, default=0.0)
    held: bool = field(compare=False, default=False)  # was bound to a slot


@dataclass(eq=False)
class _Thread:
    number: int
    running: _Task | None = None
    queue: list[_Task] = field(default_factory=list)
    dry: float = 0.0  # when it is expected to have no work

    @property
    def load(self) -> int:
        return (self.running is not None) + len(self.queue)


@dataclass(eq=False)
class _Job:
    """A job that runs, and its pool."""

    i: int
    name: str
    finished: int = -1  # iterations; -1 while it loads
    graph: int = 0
    ready: deque[_Task] = field(default_factory=deque)
    running: int = 0
    sent: float = 0.0  # expected core-seconds of what runs
    share: float = 1.0
    index: float = 0.0
    granted: float = 0.0
    tokens: float = 0.0
    most: float = math.inf
    used: float = 0.0
    sizes: list[int] = field(default_factory=list)  # nodes of each level of the tree of sums
    inputs: dict[tuple[int, int], list[_Thread]] = field(default_factory=dict)

    def order(self) -> tuple[float, float, float, str]:
        share = max(self.share, 1e-9)
        return (-self.index, self.running / share, self.used / share, self.name)


def _behind(job: _Job) -> bool:
    return job.tokens > 0 and _within(job)


def _within(job: _Job) -> bool:
    return job.running < job.most


def _anyone(job: _Job) -> bool:
    return True


class TaskSimulation:
    """One run of a list of jobs.

    Parameters
    ----------
    jobs : sequence of SimulatedJob
        In order of arrival, with finite numbers of partitions.
    engine : Engine
        Without jobs.
    threads : int
    seconds : sequence of (n_iterations, n_partitions) array, optional
        Compute of each task of each job; by default those of an iteration are alike.
    loading : float, optional
        Seconds of the task that makes a partition, before the first iteration; without such tasks
        if left out.
    fan_in : int
        Inputs of a sum; sums take no time, but for waiting.
    ahead : float
        Expected seconds of work that a thread may have left and be sent another task.
    """

    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
        engine: Engine,
        threads: int,
        *,
        seconds: Sequence[FloatArray] | None = None,
        loading: float | None = None,
        fan_in: int = 8,
        ahead: float = AHEAD,
    ) -> None:
        if not all(math.isfinite(job.partitions) for job in jobs):
            raise InvalidSetting("tasks need jobs with a finite number of partitions")
        self.jobs, self.engine = jobs, engine
        self.seconds = [_alike(job) for job in jobs] if seconds is None else seconds
        self.loading, self.fan_in, self.ahead = loading, fan_in, ahead
        self.threads = [_Thread(n) for n in range(threads)]
        self.workers = Workers({f"worker-{n:04d}": 1 for n in range(threads)})
        self.now, self.due, self.ticking = 0.0, False, False
        self.active: dict[str, _Job] = {}
        self.outcome = Outcome([np.full(len(job.loss), np.nan) for job in jobs])
        self._events: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = 0

    def run(self, progress: Callable[[int], object] | None = None) -> Outcome:
        """Run to the end of the last job; `progress` is called with 1 when one ends."""
        self.progress = progress
        for i, job in enumerate(self.jobs):
            self._at(job.arrival, self._arrive, i)
        while self._events:
            self.now, _, happen, what = heapq.heappop(self._events)
            happen(*what)
            if self._events and self._events[0][0] <= self.now:
                continue  # what happens at once is answered once
            if self.due and self.active:
                self._decide()
            self._dispatch()
        return self.outcome

    def _at(self, time: float, happen: Callable[..., None], *what: Any) -> None:
        heapq.heappush(self._events, (time, self._number(), happen, what))

    def _number(self) -> int:
        self._count += 1
        return self._count

    # Jobs

    def _arrive(self, i: int) -> None:
        job = self.jobs[i]
        self.engine.add_job(job.name, self.now, **job.settings())
        mine = self.active[job.name] = _Job(i, job.name)
        self.due = True
        if not self.ticking:
            self.ticking = True
            self._at(self.now + self.engine.epoch, self._epoch)
        if self.loading is None:
            self._await_driver(mine)
        else:
            self._submit(mine, np.full(int(job.partitions), self.loading), sums=False)

    def _await_driver(self, job: _Job) -> None:
        """Let the driver work before the next iteration."""
        job.finished = max(job.finished, 0)
        alone = self.jobs[job.i].alone
        later = 0.0 if alone is None else float(alone[job.finished])
        self._at(self.now + later, self._next, job)

    def _next(self, job: _Job) -> None:
        self._submit(job, self.seconds[job.i][job.finished])

    def _submit(self, job: _Job, seconds: FloatArray, *, sums: bool = True) -> None:
        """Send a graph: tasks, and a tree of sums."""
        job.graph = self._number()
        job.sizes = [len(seconds)]
        while sums and job.sizes[-1] > 1:
            job.sizes.append(math.ceil(job.sizes[-1] / self.fan_in))
        job.inputs = {}
        expected = float(seconds.mean())
        for p, s in enumerate(seconds.tolist()):
            job.ready.append(_Task((job.graph, 1, p), job, s, 0, p, expected))

    def _end_iteration(self, job: _Job) -> None:
        k, truth = job.finished, self.jobs[job.i]
        self.outcome.times[job.i][k] = self.now
        self.engine.report(job.name, float(truth.reports[k]), self.now)
        job.finished += 1
        if job.finished < len(truth.loss):
            self._await_driver(job)
            return
        self.engine.remove_job(job.name, self.now)
        del self.active[job.name]
        self.due = True
        if self.progress is not None:
            self.progress(1)

    # Decisions

    def _epoch(self) -> None:
        self.ticking = bool(self.active)
        if self.ticking:
            self._at(self.now + self.engine.epoch, self._epoch)
            for job in self.active.values():
                job.used *= FADE
            self.due = True

    def _decide(self) -> None:
        self.due = False
        for job in self.active.values():
            self.engine.observe_demand(job.name, len(job.ready) + job.running)
        start = perf_counter()
        changes = self.engine.reallocate(self.workers, self.now)
        self.outcome.decisions.append(perf_counter() - start)
        for name, grant in changes.items():
            job = self.active[name]
            job.share, job.index, job.most = grant.share, grant.index, grant.most
            job.granted = grant.tokens
        for job in self.active.values():
            job.tokens = job.granted - job.sent

    # Tasks

    def _dispatch(self) -> None:
        """Fill slots as the live dispatcher does; the tasks of one job alone are not held."""
        if len(self.active) == 1:
            for job in self.active.values():
                while job.ready:
                    self._put(min(self.threads, key=_least), job.ready.popleft())
            return
        slots = [thread for thread in self.threads if self._has_slot(thread)]
        for served in (_behind, _within, _anyone):
            while slots:
                able = [job for job in self.active.values() if job.ready and served(job)]
                if not able:
                    break
                thread = min(slots, key=_least)
                self._bind(min(able, key=_Job.order), thread)
                if not self._has_slot(thread):
                    slots.remove(thread)

    def _has_slot(self, thread: _Thread) -> bool:
        return thread.load == 0 or (thread.load < 2 and thread.dry - self.now < self.ahead)

    def _bind(self, job: _Job, thread: _Thread) -> None:
        task = job.ready.popleft()
        task.held = True
        self._charge(job, task.expected)
        job.running += 1
        job.sent += task.expected
        thread.dry = max(thread.dry, self.now) + task.expected
        if thread.dry - self.ahead > self.now:
            self._at(thread.dry - self.ahead, _look)
        self._put(thread, task)

    def _charge(self, job: _Job, seconds: float) -> None:
        job.used += seconds
        job.tokens -= seconds

    def _put(self, thread: _Thread, task: _Task) -> None:
        heapq.heappush(thread.queue, task)
        if thread.running is None:
            self._start(thread)

    def _start(self, thread: _Thread) -> None:
        thread.running = heapq.heappop(thread.queue) if thread.queue else None
        if thread.running is not None:
            self._at(self.now + thread.running.seconds, self._end, thread)

    def _end(self, thread: _Thread) -> None:
        task = thread.running
        assert task is not None
        self._start(thread)  # a worker goes on by itself
        if not thread.load:
            thread.dry = self.now
        job = task.job
        if task.level == 0:
            self.outcome.busy += task.seconds
            at_once = len(job.ready) + job.running
            self.engine.observe_task(job.name, task.seconds, at_once)
        if task.held:
            job.running -= 1
            job.sent -= task.expected
            self._charge(job, task.seconds - task.expected)
        self._ended(job, task, thread)

    def _ended(self, job: _Job, task: _Task, thread: _Thread) -> None:
        """Send the sum whose inputs are all there, or end the iteration."""
        top = task.level == len(job.sizes) - 1
        above = (task.level + 1, 0 if top else task.number // self.fan_in)
        holders = job.inputs.setdefault(above, [])
        holders.append(thread)
        here = job.sizes[task.level]
        if len(holders) < (here if top else min(self.fan_in, here - above[1] * self.fan_in)):
            return
        if top:
            self._await_driver(job) if job.finished < 0 else self._end_iteration(job)
            return
        level, number = above
        order = (job.graph, 0, level)
        self._put(min(holders, key=_least), _Task(order, job, 0.0, level, number))


def _look() -> None:
    """Nothing happens, but threads are looked at."""


def _least(thread: _Thread) -> tuple[int, int]:
    return thread.load, thread.number


def _alike(job: SimulatedJob) -> FloatArray:
    each = job.work / job.partitions * job.slowdown
    return np.repeat(each[:, None], int(job.partitions), axis=1)
