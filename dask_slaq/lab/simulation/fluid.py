"""Event-driven simulation of jobs on a virtual clock, with the engine that also runs on clusters.

Events are arrivals, ends of iterations and jobs, epochs, and ends of pauses.
Between two events every job computes at a constant rate on the threads that it has.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import numpy as np
import numpy.typing as npt

from dask_slaq.core.engine import Engine
from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.placement import Placement, Workers
from dask_slaq.core.policies import fair_fill, fit_floors
from dask_slaq.lab.simulation.workload import Law, SimulatedJob, rate

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

    The `law` has the true running times. Arrivals and ends within a `gap` wait for its end.
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
        self.cluster = FluidCluster(n, cores, move_pause)
        self.max_cores, self.gap, self.watch = max_cores, gap, watch
        self.now, self.decided = 0.0, -math.inf
        self.coming = deque(range(n))
        self.active: IntArray = np.zeros(0, dtype=np.int64)
        #: Jobs that have arrived since the last decision.
        self.new: list[int] = []
        self.iterations = FluidIterations(jobs)
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
        threads = self._shares(a)
        if self.watch is not None:
            self.watch(self.now, a, threads)
        threads = threads * self.cluster.arrived(a, self.now)
        speed = rate(self.law, a, threads)
        self.iterations.rate[a] = speed
        self.iterations.compute[a] = self.law.computed(a, threads, speed)

    def _shares(self, active: IntArray) -> FloatArray:
        """Divide the threads (n_active,) among the active jobs until the next event."""
        decision, place = self.engine.grants.decision, self.place[active]
        cores, law = self.cluster.cores, self.law

        def granted(name: str) -> FloatArray:
            every = np.zeros(1) if decision is None else getattr(decision, name)
            return np.where(place < 0, 0.0, every[place])

        cap = np.minimum(self.cap[active], cores)
        wanted = granted("tokens") / self.engine.epoch + granted("rate")
        floor = fit_floors(np.minimum(wanted, cap), cores)
        # Weight, in threads, of a job without a share when threads that no other job can use are
        # lent.
        negligible = 1e-9
        share = np.maximum(granted("share"), negligible)
        threads = fair_fill(share, floor, cap, min(cores, max(share.sum(), floor.sum())))
        useful = law.useful(active, threads)
        if cores - useful.sum() > negligible and not self.engine.traits.by_tokens:
            threads = self._lend(active, useful, cap, granted("index"))
        return threads * min(1.0, cores / max(threads.sum(), negligible))  # despite rounding

    def _lend(
        self, jobs: IntArray, threads: FloatArray, cap: FloatArray, index: FloatArray
    ) -> FloatArray:
        """Lend threads that are left, highest `index` first, while they save a job a wave."""
        threads, left = threads.copy(), self.cluster.cores - threads.sum()
        order = np.argsort(-index, kind="stable")
        lent = True
        while lent:
            lent = False
            cost = self.law.step(jobs, threads) - threads
            for j in order:
                if cost[j] <= left and threads[j] + cost[j] <= cap[j]:
                    threads[j] += cost[j]
                    left -= cost[j]
                    lent = True
        return threads

    def _at_once(self, i: int) -> int:
        """Return the number of parallel tasks per iteration of a job."""
        width = self.jobs[i].partitions
        # Parallel tasks per thread of the cluster, for jobs that can be divided at will.
        return int(width) if math.isfinite(width) else 1000 * self.cluster.cores


#: Most workers: a pair of job and worker is stored as one number, ``job * _MOST_WORKERS + worker``.
_MOST_WORKERS = 1 << 32


class FluidCluster:
    """Workers with `cores` threads, and the sets that jobs hold; `moved` counts workers gained."""

    def __init__(self, n_jobs: int, cores: int, move_pause: float) -> None:
        self._n_jobs, self._move_pause = n_jobs, move_pause
        self.cores, self.workers, self.moved = cores, workers(cores), 0
        # Per pair of job and worker: the pair as a number, threads, and when the data is there.
        self._pair: IntArray = np.zeros(0, np.int64)
        self._threads, self._ready = np.zeros((2, 0))

    def hold(self, sets: Placement, jobs: IntArray, now: float) -> None:
        """Replace what `jobs` hold by the worker `sets` of a decision, at `now` seconds."""
        entries = sets.entries
        pair = jobs[entries.job] * _MOST_WORKERS + entries.worker
        order = np.argsort(pair, kind="stable")
        pair = pair[order]
        at = np.minimum(np.searchsorted(self._pair, pair), max(len(self._pair) - 1, 0))
        known = self._pair[at] == pair if len(self._pair) else np.zeros(len(pair), bool)
        self.moved += int(len(pair) - known.sum())
        ready = np.full(len(pair), now + self._move_pause)
        ready[known] = self._ready[at[known]]
        self._pair, self._threads, self._ready = pair, entries.amount[order], ready

    def next_arrival(self, active: IntArray, now: float) -> float:
        """Return when data of an `active` job next arrives on a worker; or inf."""
        if not self._move_pause:
            return math.inf
        later = (self._ready > now) & np.isin(self._pair // _MOST_WORKERS, active)
        return float(self._ready[later].min(initial=math.inf))

    def arrived(self, active: IntArray, now: float) -> FloatArray:
        """Return which fraction (n_active,) of threads of `active` jobs have their data."""
        if not self._move_pause:
            return np.ones(len(active))
        there, held = self._sum(self._ready <= now)[active], self._sum()[active]
        return np.divide(there, held, out=np.ones(len(active)), where=held > 0)

    def _sum(self, some: npt.NDArray[np.bool_] | slice = slice(None)) -> FloatArray:
        """Return the threads (n_jobs,) that each job holds, of all pairs or of `some`."""
        job = self._pair[some] // _MOST_WORKERS
        return np.asarray(np.bincount(job, self._threads[some], self._n_jobs), np.float64)


def workers(cores: int, threads: int = 16) -> Workers:
    """Make workers of some `threads`; the last one has the rest."""
    starts = range(0, cores, threads)
    return Workers({f"worker-{s // threads:06d}": min(threads, cores - s) for s in starts})


#: Tolerance in iterations: work this close to the end of an iteration has reached it.
EPSILON_ITERATIONS = 1e-7


class FluidIterations:
    """Iterations of all jobs, each at its `rate`, computing `compute` core-seconds per second.

    `unsaid` core-seconds are not yet reported, `finished` iterations have ended, at `times`.
    """

    def __init__(self, jobs: Sequence[SimulatedJob]) -> None:
        n = len(jobs)
        self._done = np.zeros(n)  # iterations, possibly a fraction
        self._count = np.array([len(job.loss) for job in jobs])
        self.finished = np.zeros(n, dtype=np.int64)
        self.rate, self.compute, self.unsaid = np.zeros((3, n))
        self.times = [np.full(len(job.loss), np.nan) for job in jobs]

    def next_end(self, active: IntArray) -> float:
        """Return the seconds until the next active job ends."""
        going = active[self.rate[active] > 0]
        if not len(going):
            return math.inf
        return float(((self._count[going] - self._done[going]) / self.rate[going]).min())

    def advance(
        self, active: IntArray, start: float, now: float
    ) -> list[tuple[float, int, int, float]]:
        """Compute until `now`. Returns time, job, iteration and core-seconds of all ends."""
        before = self._done[active]
        self._done[active] += self.rate[active] * (now - start)
        self.unsaid[active] += self.compute[active] * (now - start)
        ended: list[tuple[float, int, int, float]] = []
        for j in np.flatnonzero(
            self._done[active] >= self.finished[active] + 1 - EPSILON_ITERATIONS
        ).tolist():
            ended += self._ended(int(active[j]), float(before[j]), start, now)
        ended.sort()
        return ended

    def _ended(
        self, i: int, before: float, start: float, now: float
    ) -> list[tuple[float, int, int, float]]:
        """Record and return the iterations of one job that ended, as `advance` does."""
        first = int(self.finished[i])
        stop = min(int(self._done[i] + EPSILON_ITERATIONS), int(self._count[i]))
        ends = np.arange(first + 1, stop + 1)
        times = np.clip(start + (ends - before) / self.rate[i], start, now)
        self.times[i][first:stop] = times
        self.finished[i] = stop
        took = np.diff(times, prepend=start) * self.compute[i]
        rest = (now - times[-1]) * self.compute[i]
        took[0] = self.unsaid[i] - took[1:].sum() - rest
        self.unsaid[i] = rest
        each = zip(times.tolist(), took.tolist(), strict=True)
        return [(time, i, first + k, seconds) for k, (time, seconds) in enumerate(each)]

    def through(self, active: IntArray) -> npt.NDArray[np.bool_]:
        """Return a mask (n_active,) of the active jobs that have ended."""
        return self.finished[active] == self._count[active]
