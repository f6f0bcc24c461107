"""Workers by their value: what the jobs need, how many workers pay, which go first."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from time import monotonic
from typing import Any, NamedTuple

import numpy as np
from distributed.core import Status
from distributed.scheduler import TaskState, WorkerState

from dask_slaq.core.dispatch import TaskConstraints
from dask_slaq.core.scaling import Demand, Scaler, ScalingRule, in_words, work_left
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.scheduler.jobs.scheduled_jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Pool
from dask_slaq.scheduler.trials import Searches

#: Seconds without a question after which workers no longer drain.
PATIENCE_SECONDS = 30.0

#: Names of workers that one job of a batch system runs, as of dask-jobqueue: ``SLURMCluster-3-0``.
GROUPED = re.compile(r"(.*\d)-\d+")


def group_of(ws: WorkerState) -> tuple[str, str]:
    """Return what ends together: the machine and name of a batch job, or a worker by itself."""
    found = GROUPED.fullmatch(str(ws.name))
    return (ws.host, found[1]) if found else ("", ws.address)


class _Need(NamedTuple):
    """What one job still needs; see `Demand`."""

    name: str
    work: float
    width: float
    weight: float
    value: float


class ByValue:
    """Number of workers that pays for the jobs of a scheduler, and those to be given back."""

    def __init__(
        self,
        terms: ScalingTerms,
        jobs: ScheduledJobs,
        searches: Searches,
        usable: Callable[[Pool], int],
        changed: Callable[[], None],
        factor: Callable[[str], float],
        rule: ScalingRule | None = None,
    ) -> None:
        self._changed, self._factor = changed, factor
        self.scaler = Scaler(terms, rule)
        self._jobs, self._searches, self._usable = jobs, searches, usable
        self._scheduler, self._pools = jobs.scheduler, jobs.pools
        self._had: dict[str, float] = {}  # tasks of each job that could run at once of late
        self._since: dict[str, float] = {}  # when work of unknown duration was first seen
        self._joined: dict[str, float] = {}
        self.draining: set[str] = set()  # workers that get no further task
        self._chosen_at = -math.inf

    def target(self) -> int:
        """Return how many workers there are to be, and choose those to be given back."""
        now, workers = monotonic(), self._scheduler.workers
        self._look(now)
        target = self.scaler.update(
            self._demand(list(self._needs(now))), len(workers), now, least=self._for_memory()
        )
        self._choose(list(workers.values()), now)
        return target

    def _look(self, now: float) -> None:
        """Note which workers have come and gone."""
        workers = self._scheduler.workers
        if workers:
            self.scaler.threads = sum(ws.nthreads for ws in workers.values()) / len(workers)
        self._joined = {address: self._joined.get(address, now) for address in workers}

    def _needs(self, now: float) -> Iterator[_Need]:
        """Yield what each job needs, and all tasks outside of jobs together."""
        jobs, engine = self._jobs, self._jobs.engine
        unknown: set[str] = set()
        if not self._scheduler.workers:
            self._since.clear()  # nothing takes any time
        order = engine.jobs.order()
        if order.names:
            # Those to run at once, now or of late: between iterations there are none.
            # Part of the tasks that a job had which is remembered from one question to the next.
            self._had = {
                name: max(
                    float(self._usable(jobs.pools.pools[name])), 0.98 * self._had.get(name, 0.0)
                )
                for name in order.names
            }
            had = np.array(list(self._had.values()))
            forecast = engine.forecaster.forecast(order.reported)
            work, width = work_left(engine.jobs, forecast, had)
            weight = engine.jobs.table.column["weight"][order.rows]
            for i, name in enumerate(order.names):
                pool = jobs.pools.pools[name]
                tasks = len(pool.unfinished)
                left, wide = work.item(i), width.item(i)
                if not jobs.reports.get(name):  # it goes by its tasks
                    wide = min(float(self._usable(pool)), engine.jobs[name].max_share or math.inf)
                search = self._searches.running.get(name)
                if search is not None:
                    # Each of its models uses a thread, whatever earlier searches had.
                    most = engine.jobs[name].max_share or math.inf
                    left, wide = self._of_search(search, tasks), min(float(tasks), most)
                if pool.paused or not (wide or tasks):
                    continue
                if math.isnan(left):
                    left = self._expected(pool.unfinished, now, unknown)
                    if pool.reports and not jobs.reports.get(name):
                        left *= engine.jobs[name].max_iter or 1.0  # iterations to come
                yield _Need(name, left, wide, weight.item(i), jobs.value_of(name))
        if outside := list(self._outside()):
            seconds = self._expected(outside, now, unknown)
            yield _Need("", seconds, float(len(outside)), jobs.other_weight, math.nan)
        self._since = {name: at for name, at in self._since.items() if name in unknown}

    def _expected(self, tasks: Iterable[TaskState], now: float, unknown: set[str]) -> float:
        """Return the core-seconds that tasks take by what Dask knows of others of their names."""
        seconds = 0.0
        for ts in tasks:
            known = ts.prefix.duration_average
            if known < 0:  # none has ended: as long again as it has taken
                unknown.add(ts.prefix.name)
                # Seconds that a task of unknown duration is taken to need at least; otherwise it
                # takes as long again as it has.
                known = max(now - self._since.setdefault(ts.prefix.name, now), 0.5)
            seconds += known
        return seconds

    @staticmethod
    def _of_search(search: Any, tasks: int) -> float:
        """Return the core-seconds that the models of a search have left; nan if unknown."""
        trials = search.trials
        one = trials.seconds_of_one()
        if not one:
            return math.nan
        begun = [trial for trial in trials.alive.values() if trial.reports]
        left = sum(map(trials.seconds_left, begun))
        return float(left + max(tasks - len(begun), 0) * one)

    def _outside(self) -> Iterator[TaskState]:
        """Yield the tasks that wait or run and belong to no job."""
        scheduler, owner = self._scheduler, self._pools.records.pool_of
        running = (ts for ws in scheduler.workers.values() for ts in ws.processing)
        for ts in chain(scheduler.queued, scheduler.unrunnable, running):
            if ts.key not in owner:
                yield ts

    def _demand(self, needs: list[_Need]) -> Demand:
        demand = Demand(*(np.array([n[k] for n in needs], float) for k in range(1, 5)))
        if needs and self._jobs.engine.owners is not None:
            demand = self._within_limits(needs, demand)
        return demand

    def _within_limits(self, needs: list[_Need], demand: Demand) -> Demand:
        """Return the demand within the threads that owners may use."""
        engine, owners = self._jobs.engine, self._jobs.engine.owners
        width = demand.width.copy()
        of = [engine.jobs.owner.get(need.name, "") for need in needs]
        for owner in set(of):
            mine = np.array([each == owner for each in of])
            most = owners.of(owner).max_threads  # type: ignore[union-attr]
            if width[mine].sum() > most:
                width[mine] *= most / width[mine].sum()
        return Demand(demand.work, width, demand.weight, demand.value)

    def _for_memory(self) -> int:
        """Return the workers that the data in memory needs, as Dask counts it: at least one."""
        workers = self._scheduler.workers.values()
        limit = sum(ws.memory_limit for ws in workers)
        used = sum(ws.nbytes for ws in workers)
        if not used:
            return 0
        # Dask asks for more of them where 60 % of their memory is in use.
        return math.ceil(used / 0.6 / (limit / len(workers))) if limit else 1

    # What is given back

    def _choose(self, here: list[WorkerState], now: float) -> None:
        """Choose which are given back: without models, slow, with nothing to run, least data."""
        surplus = len(here) - self.scaler.target
        if surplus <= 0 and not self.draining:
            return
        trials = self._trials_at()
        groups: dict[Any, list[WorkerState]] = {}
        for ws in here:
            groups.setdefault(group_of(ws), []).append(ws)
        going = [
            group
            for group in groups.values()
            if all(now - self._joined[ws.address] >= self.scaler.terms.stay for ws in group)
        ]
        going.sort(
            key=lambda group: max(
                (
                    ws.address not in self.draining,
                    trials[ws.address],
                    -self._factor(ws.address),
                    len(ws.processing),
                    ws.nbytes,
                    ws.address,
                )
                for ws in group
            )
        )
        self._chosen_at = now
        chosen: set[str] = set()
        rest = [ws for ws in here if ws.status == Status.running]
        for group in going:
            others = [ws for ws in rest if ws not in group]
            fits = len(chosen) + len(group) <= surplus
            if fits and all(self._can_do_without(ws, others) for ws in group):
                chosen |= {ws.address for ws in group}
                rest = others
        self._drain(chosen)

    def _drain(self, chosen: set[str]) -> None:
        if chosen != self.draining:
            self.draining = chosen
            self._pools.drain(chosen)
            self._searches.choices.draining = chosen
            self._searches.choices.look()
            self._changed()

    def check(self) -> None:
        """Let workers have tasks again if nobody has asked for long which to close.

        The cluster may no longer be adaptive.
        """
        if self.draining and monotonic() - self._chosen_at > PATIENCE_SECONDS:
            self._drain(set())

    def _can_do_without(self, ws: WorkerState, rest: list[WorkerState]) -> bool:
        """Return whether all tasks that a worker may run may also run on one of the `rest`."""
        others = set(rest)
        kinds = {kind for pool in self._pools.pools.values() for kind in pool.filed}
        for ts in ws.processing:
            allowed = self._pools.control.allowed(ts)
            if allowed is not None and not others & allowed:
                return False
            kinds.add(TaskConstraints(None, tuple((ts.resource_restrictions or {}).items())))
        return all(any(map(kind.allows, others)) for kind in kinds if kind.allows(ws))

    def _trials_at(self) -> Mapping[str, int]:
        running = self._searches.running.values()
        alive = (t for search in running for t in search.trials.alive.values())
        return Counter(trial.worker for trial in alive if not trial.state.migrates)

    def closable(self, workers: list[WorkerState]) -> list[WorkerState]:
        """Return the workers that may be closed now: chosen ones that have nothing to run."""
        trials = self._trials_at()
        return [
            ws
            for ws in workers
            if ws.address in self.draining and not (ws.processing or trials[ws.address])
        ]

    # What people are told

    def advise(self, workers: int | None = None) -> dict[str, Any]:
        """Return how many workers pay and why, or what another number of `workers` would change."""
        now, scaler = monotonic(), self.scaler
        self._look(now)
        needs, terms = list(self._needs(now)), scaler.terms
        here, least = len(self._joined), self._for_memory()
        most = max(terms.maximum, here, least, workers or 0) + 1
        value = scaler.value(self._demand(needs), here, most, now)
        best = scaler.best(value, here, least)
        compared = value.compare(here, best if workers is None else workers)
        return {
            "workers": here,
            "target": best,
            "asked": workers,
            "price": terms.price,
            "jobs": len(needs),
            **compared,
            "text": in_words(value, here, best, workers, terms),
        }
