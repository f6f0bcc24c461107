"""Event-driven simulation of jobs on a virtual clock, with the engine that also runs on clusters.

Events are arrivals, ends of iterations and jobs, epochs, and ends of pauses.
Between two events every job computes at a constant rate on the threads that `divide` gives it.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np

from dask_slaq.core.engine import Engine
from dask_slaq.core.job_arrays import FloatArray, IntArray
from dask_slaq.simulation.fluid.cluster import Cluster
from dask_slaq.simulation.fluid.dispatch import divide
from dask_slaq.simulation.fluid.progress import Iterations
from dask_slaq.simulation.workload import Law, SimulatedJob, rate

#: Parallel tasks per thread of the cluster, for jobs that can be divided at will.
DIVISIONS = 1000

#: Called at every change with the time in seconds, the indices (n_active,) of the active jobs, and
#: their threads (n_active,).
Watcher = Callable[[float, IntArray, FloatArray], None]


@dataclass
class Outcome:
    """Result of one run."""

    #: Per job, when each iteration ended, in seconds after the start.
    times: list[FloatArray]
    #: Real seconds of each reallocation.
    decisions: list[float] = field(default_factory=list)
    #: Core-seconds computed by tasks.
    busy: float = 0.0
    #: Number of times that a job gained a worker.
    moved: int = 0


class Simulation:
    """One run of a list of `jobs`, in order of arrival, by an `engine` without jobs.

    The `law` has the true running times of the jobs. Arrivals and ends within a `gap` wait for its
    end. `watch` is called whenever the threads are divided anew. For `max_cores` and
    `move_pause` see `Settings`. Arrays are (n_jobs,).
    """

    def __init__(
        self,
        jobs: Sequence[SimulatedJob],
        engine: Engine,
        law: Law,
        cores: int,
        *,
        max_cores: float | None = None,
        move_pause: float = 0.0,
        gap: float = 0.0,
        watch: Watcher | None = None,
    ) -> None:
        n = len(jobs)
        self.jobs, self.engine, self.law = jobs, engine, law
        self.cluster = Cluster(n, cores, move_pause)
        self.max_cores, self.gap, self.watch = max_cores, gap, watch
        self.now, self.decided = 0.0, -math.inf
        self.coming = deque(range(n))
        self.active: IntArray = np.zeros(0, dtype=np.int64)
        #: Jobs that have arrived since the last decision.
        self.new: list[int] = []
        self.iterations = Iterations(jobs)
        most = math.inf if max_cores is None else max_cores
        self.cap = np.minimum(law.width, [min(job.cap, most) for job in jobs])
        #: Position of each job in the last decision, -1 for new jobs.
        self.place = np.full(n, -1)
        self.outcome = Outcome(self.iterations.times)

    def run(self) -> Outcome:
        """Run until the last job ends."""
        decide = math.inf
        while self.coming or len(self.active):
            arrival = self.jobs[self.coming[0]].arrival if self.coming else math.inf
            moved = self.cluster.next_arrival(self.active, self.now)
            end = self.now + self.iterations.next_end(self.active)
            soon = min(end, moved)
            self._advance(min(arrival, decide, soon))
            ended = self._remove_ended()
            if ended + self._add_arrived():
                decide = min(decide, max(self.now, self.decided + self.gap))
            if self.now >= decide:
                self._decide()
                decide = self.now + self.engine.epoch if len(self.active) else math.inf
            self._divide()
        self.outcome.moved = self.cluster.moved
        return self.outcome

    def _advance(self, at: float) -> None:
        """Compute until `at`, and report the iterations that end before in order of time."""
        a, elapsed, start = self.active, at - self.now, self.now
        self.now = at
        if not len(a) or elapsed <= 0:
            return
        self.outcome.busy += float(self.iterations.compute[a].sum()) * elapsed
        for time, i, k, seconds in self.iterations.advance(a, start, at):
            if seconds > 0:
                self._observe(i, seconds)
            self.engine.report(self.jobs[i].name, self.jobs[i].reports.item(k), time)

    def _observe(self, i: int, seconds: float) -> None:
        """Charge a job for its compute."""
        self.engine.observe_task(self.jobs[i].name, seconds, self._at_once(i))

    def _remove_ended(self) -> int:
        """Remove the jobs that have ended. Returns their number."""
        through = self.iterations.through(self.active)
        for i in self.active[through]:
            self.engine.remove_job(self.jobs[i].name, self.now, "done")
        self.active = self.active[~through]
        return int(through.sum())

    def _add_arrived(self) -> int:
        """Admit the jobs that are due. Returns their number."""
        before = len(self.new)
        while self.coming and self.jobs[self.coming[0]].arrival <= self.now:
            i = self.coming.popleft()
            job = self.jobs[i]
            self.engine.add_job(job.name, self.now, **job.settings(self.max_cores))
            self.new.append(i)
        arrived = self.new[before:]
        self.active = np.append(self.active, np.array(arrived, dtype=np.int64))
        return len(arrived)

    def _decide(self) -> None:
        """Reallocate, and record which job holds which workers."""
        self.decided = self.now
        unsaid = self.iterations.unsaid
        for i in self.active[unsaid[self.active] > 0]:
            self._observe(i, float(unsaid[i]))
            unsaid[i] = 0.0
        start = perf_counter()
        self.engine.reallocate(self.cluster.workers, self.now)
        self.outcome.decisions.append(perf_counter() - start)
        for i in self.new:  # as on a cluster, tasks are submitted after the first grant
            self.engine.observe_demand(self.jobs[i].name, self._at_once(i))
        self.new.clear()
        grants = self.engine.grants
        place = np.array([grants.position[self.jobs[i].name] for i in self.active], np.int64)
        self.place[self.active] = place
        if grants.decision is not None:
            jobs = np.empty(len(place), np.int64)
            jobs[place] = self.active
            self.cluster.hold(grants.decision.sets, jobs, self.now)

    def _divide(self) -> None:
        """Divide the threads among the active jobs, and set how fast the jobs compute."""
        a = self.active
        if not len(a):
            return
        threads = divide(
            self.engine.grants.decision,
            self.place[a],
            self.law,
            a,
            self.cap[a],
            self.cluster.cores,
            self.engine.epoch,
        )
        if self.watch is not None:
            self.watch(self.now, a, threads)
        threads = threads * self.cluster.arrived(a, self.now)
        speed = rate(self.law, a, threads)
        self.iterations.rate[a] = speed
        self.iterations.compute[a] = self.law.computed(a, threads, speed)

    def _at_once(self, i: int) -> int:
        """Return the number of parallel tasks per iteration of a job."""
        width = self.jobs[i].partitions
        return int(width) if math.isfinite(width) else DIVISIONS * self.cluster.cores
