"""The event loop: jobs on a virtual clock, decided by the engine that also runs on clusters.

Events are arrivals, the ends of iterations and jobs, epochs, changes of capacity, and the ends of
pauses. Between two of them every job computes at a constant rate, on the threads that `divide`
gives it.
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
from dask_slaq.simulation.cluster import Cluster
from dask_slaq.simulation.dispatch import Shares, divide
from dask_slaq.simulation.jobs import SimulatedJob
from dask_slaq.simulation.laws import Law, rate

__all__ = ["Outcome", "Simulation"]

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

#: Iterations; what is nearer to an end than this has reached it.
EPSILON = 1e-7
#: A job that can be divided at will has so many tasks a thread of the cluster.
DIVISIONS = 1000

#: Told of every change: seconds, indices (n_active,) of the active jobs, their threads (n_active,).
Watcher = Callable[[float, IntArray, FloatArray], None]


@dataclass
class Outcome:
    """What became of the jobs of one run.

    Attributes
    ----------
    times : list of (n_iterations,) array
        When each iteration of each job ended, seconds after the start.
    decisions : list of float
        Seconds of compute of each reallocation.
    busy : float
        Core-seconds that tasks computed.
    moved : int
        Workers that jobs gained.
    """

    times: list[FloatArray]
    decisions: list[float] = field(default_factory=list)
    busy: float = 0.0
    moved: int = 0


class Simulation:
    """One run of a list of jobs, and its state. Arrays are (n_jobs,).

    Parameters
    ----------
    jobs : sequence of SimulatedJob
        In order of arrival.
    engine : Engine
        Without jobs.
    law : Law
        True running times of these jobs.
    cores : int
    max_cores : float, optional
        Threads that any one job can use at most.
    move_pause : float
        Seconds for which a job computes nothing on the threads of a worker that it gained,
        while its data moves there.
    capacity : sequence of (seconds, cores)
        Changes of the number of cores. Of a worker that is lost, the jobs on it lose that part
        of their unfinished iteration.
    gap : float
        Least seconds between two decisions: arrivals and ends that come sooner wait for so long.
    dispatch : {"shares", "index"}
        Who has the threads between two decisions, see `dispatch.DISPATCH`.
    watch : callable, optional
        Told of every change of who computes on how many threads.
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
        capacity: Sequence[tuple[float, int]] = (),
        gap: float = 0.0,
        dispatch: str = "shares",
        watch: Watcher | None = None,
    ) -> None:
        n = len(jobs)
        self.jobs, self.engine, self.law = jobs, engine, law
        self.cluster = Cluster(n, cores, capacity, move_pause)
        self.max_share = max_cores
        self.gap, self.watch = gap, watch
        self.dispatch = dispatch
        self.now, self.decided = 0.0, -math.inf
        self.coming = deque(range(n))
        self.active: IntArray = np.zeros(0, dtype=np.int64)
        #: Jobs that have arrived since the last decision.
        self.new: list[int] = []
        #: Work done and when the present iteration is, in iterations of usual length.
        self.done, self.due = np.zeros(n), np.array([job.slowdown[0] for job in jobs])
        self.ends = [np.cumsum(job.slowdown) for job in jobs]
        self.last = np.array([ends[-1] for ends in self.ends])
        self.finished = np.zeros(n, dtype=np.int64)
        self.rate = np.zeros(n)
        #: Core-seconds a second, and those the engine has not been told of.
        self.compute, self.unsaid = np.zeros(n), np.zeros(n)
        most = math.inf if max_cores is None else max_cores
        self.cap = np.minimum(law.width, [min(job.cap, most) for job in jobs])
        #: When the driver of each job sends its next tasks, and which jobs stop for that.
        self.resume = np.full(n, -math.inf)
        self.stops = np.array([job.alone is not None for job in jobs])
        #: Where the jobs stood in the last decision, -1 for new ones.
        self.place = np.full(n, -1)
        self.outcome = Outcome([np.full(len(job.loss), np.nan) for job in jobs])

    def run(self, progress: Callable[[int], object] | None = None) -> Outcome:
        """Run to the end of the last job; `progress` is called with 1 when one ends."""
        decide = math.inf
        while self.coming or len(self.active):
            arrival = self.jobs[self.coming[0]].arrival if self.coming else math.inf
            moved = self.cluster.next_arrival(self.active, self.now)
            soon = min(self._next_end(), self._next_resume(), moved, self.cluster.next_change)
            self._advance(min(arrival, decide, soon))
            ended = self._remove_ended()
            if progress is not None and ended:
                progress(ended)
            if sum((ended, self._add_arrived(), self._resize())):
                decide = min(decide, max(self.now, self.decided + self.gap))
            if self.now >= decide:
                self._decide()
                decide = self.now + self.engine.epoch if len(self.active) else math.inf
            self._divide()
        self.outcome.moved = self.cluster.moved
        return self.outcome

    def _next_end(self) -> float:
        """When the next job ends, or stops for its driver, at the present rates."""
        a = self.active
        going = a[self.rate[a] > 0]
        if not len(going):
            return math.inf
        goal = np.where(self.stops[going], self.due[going], self.last[going])
        return self.now + float(((goal - self.done[going]) / self.rate[going]).min())

    def _next_resume(self) -> float:
        """When the next driver that works sends tasks."""
        later = self.resume[self.active]
        return float(later[later > self.now].min(initial=math.inf))

    def _stop(self, i: int) -> None:
        """Let the driver of a job work before its next iteration."""
        alone, k = self.jobs[i].alone, self.finished[i]
        if alone is not None and k < len(alone):
            self.resume[i] = self.now + alone[k]

    def _advance(self, at: float) -> None:
        """Compute until `at`; report the iterations that end on the way, in order of time."""
        a, elapsed, start = self.active, at - self.now, self.now
        self.now = at
        if not len(a) or elapsed <= 0:
            return
        before = self.done[a]
        self.done[a] += self.rate[a] * elapsed
        self.unsaid[a] += self.compute[a] * elapsed
        self.outcome.busy += float(self.compute[a].sum()) * elapsed
        reports: list[tuple[float, int, int, float]] = []
        for j in np.flatnonzero(self.done[a] >= self.due[a] - EPSILON).tolist():
            reports += self._ended_iterations(int(a[j]), float(before[j]), start)
            self._stop(int(a[j]))
        reports.sort()
        for time, i, k, seconds in reports:
            job = self.jobs[i]
            if seconds > 0:
                self.engine.observe_task(job.name, seconds * job.charged, self._at_once(i))
            self.engine.report(job.name, float(job.reports[k]), time)

    def _ended_iterations(
        self, i: int, before: float, start: float
    ) -> list[tuple[float, int, int, float]]:
        """When, of whom, which iterations ended, with how many core-seconds not told so far."""
        first, ends = int(self.finished[i]), self.ends[i]
        stop = int(np.searchsorted(ends, self.done[i] + EPSILON, side="right"))
        times = np.clip(start + (ends[first:stop] - before) / self.rate[i], start, self.now)
        self.outcome.times[i][first:stop] = times
        self.finished[i] = stop
        self.due[i] = ends[stop] if stop < len(ends) else math.inf
        took = np.diff(times, prepend=start) * self.compute[i]
        rest = (self.now - times[-1]) * self.compute[i]
        took[0] = self.unsaid[i] - took[1:].sum() - rest
        self.unsaid[i] = rest
        return [
            (float(t), i, first + k, float(s))
            for k, (t, s) in enumerate(zip(times, took, strict=True))
        ]

    def _remove_ended(self) -> int:
        """Take the jobs that are through off the cluster."""
        through = self.finished[self.active] == [len(self.ends[i]) for i in self.active]
        for i in self.active[through]:
            self.engine.remove_job(self.jobs[i].name, self.now)
        self.active = self.active[~through]
        return int(through.sum())

    def _add_arrived(self) -> int:
        """Let the jobs arrive whose time has come; how many there are."""
        before = len(self.new)
        while self.coming and self.jobs[self.coming[0]].arrival <= self.now:
            i = self.coming.popleft()
            self._add_job(self.jobs[i])
            self.new.append(i)
            self._stop(i)
        arrived = self.new[before:]
        self.active = np.append(self.active, np.array(arrived, dtype=np.int64))
        return len(arrived)

    def _add_job(self, job: SimulatedJob) -> None:
        caps = [cap for cap in (job.max_share, self.max_share) if cap is not None]
        caps += [job.cap] if math.isfinite(job.cap) else []
        self.engine.add_job(
            job.name,
            self.now,
            weight=job.weight,
            min_share=job.min_share,
            max_share=min(caps, default=None),
            target=job.target,
        )

    def _resize(self) -> int:
        """Change the number of cores if it is time; how many changes there are."""
        changed = 0
        while self.cluster.next_change <= self.now:
            self._lose(*self.cluster.resize())
            changed += 1
        return changed

    def _lose(self, lost: FloatArray, held: FloatArray) -> None:
        """Undo the part of the unfinished iterations that was done on workers that are gone."""
        for i in self.active[lost[self.active] > 0]:
            k = self.finished[i]
            begun = self.ends[i][k - 1] if k else 0.0
            self.done[i] -= (self.done[i] - begun) * lost[i] / held[i]

    def _decide(self) -> None:
        """Let the engine decide, and note who gained workers."""
        self.decided = self.now
        for i in self.active[self.unsaid[self.active] > 0]:
            job, seconds = self.jobs[i], float(self.unsaid[i])
            self.engine.observe_task(job.name, seconds * job.charged, self._at_once(i))
            self.unsaid[i] = 0.0
        start = perf_counter()
        self.engine.reallocate(self.cluster.workers, self.now)
        self.outcome.decisions.append(perf_counter() - start)
        for i in self.new:  # its tasks come when it has been told of its grant, as on a cluster
            self.engine.observe_demand(self.jobs[i].name, self._at_once(i))
        self.new.clear()
        self._hold()

    def _hold(self) -> None:
        """Note what every job was granted."""
        grants = self.engine.grants
        place = np.array([grants.position[self.jobs[i].name] for i in self.active], np.int64)
        self.place[self.active] = place
        if grants.decision is not None:
            jobs = np.empty(len(place), np.int64)
            jobs[place] = self.active
            self.cluster.hold(grants.decision.sets, jobs, self.now)

    def _divide(self) -> None:
        """Who computes on how many threads from now on, and how fast."""
        a = self.active
        if not len(a):
            return
        shares = Shares.of(self.engine.grants.decision, self.place[a])
        cap = np.where(self.resume[a] > self.now, 0.0, self.cap[a])
        cores, epoch = self.cluster.cores, self.engine.epoch
        threads = divide(shares, self.law, a, cap, cores, epoch, self.dispatch)
        if self.watch is not None:
            self.watch(self.now, a, threads)
        threads = threads * self.cluster.arrived(a, self.now)
        self.rate[a] = rate(self.law, a, threads)
        self.compute[a] = self.law.computed(a, threads, self.rate[a])

    def _at_once(self, i: int) -> int:
        """Parallel tasks of an iteration."""
        width = self.jobs[i].partitions
        return int(width) if math.isfinite(width) else DIVISIONS * self.cluster.cores
