"""The jobs of one scheduler: engine, pools and divisions, kept in step.

What happens here is told by `SlaqPlugin`: requests and reports that came, tasks, and that it is
time to decide anew.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.errors import DuplicateJob, NonFiniteLoss, SlaqError
from dask_slaq.core.jobs import check_job_settings
from dask_slaq.scheduler.divisions import Divisions
from dask_slaq.scheduler.pool import Pool
from dask_slaq.scheduler.records import status_of_job, status_of_part

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.config import Settings
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.pools import Pools

__all__ = ["ANNOTATION", "ScheduledJobs"]

#: The annotation by which a task belongs to a job.
ANNOTATION = "slaq_job"


class ScheduledJobs:
    """All jobs that run on a scheduler, and a pool for each client's tasks of no job.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    engine : Engine or Recorder
    pools : Pools
    settings : Settings
    changed : callable
        Called when a job came or went.

    Attributes
    ----------
    reports : dict of str to int
        Running jobs, and how many reports of each have come.
    resources : dict of str to dict
        What each of its tasks needs.
    epochs : deque of dict
        What was granted, remembered for `history`.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        engine: Engine | Recorder,
        pools: Pools,
        settings: Settings,
        changed: Callable[[], None],
    ) -> None:
        self.scheduler, self.engine, self.pools = scheduler, engine, pools
        self.reports: dict[str, int] = {}
        self.resources: dict[str, dict[str, float]] = {}
        self.divisions = Divisions()
        self.epochs: deque[dict[str, Any]] = deque(maxlen=settings.history)
        self._settings, self._changed = settings, changed

    # Coming and going

    def open(self, name: str, client: str, resources: dict[str, float], **given: Any) -> None:
        """A job begins; raises what is wrong with it."""
        self._refuse_duplicate(name)
        self.engine.add_job(name, monotonic(), **given)
        self.resources[name] = resources
        self.reports[name] = 0
        self.pools.add(name, client)

    def divide(self, job: str, parts: list[str], client: str) -> None:
        """Parts of a job are to have names, tasks and reports of their own; all of them or none."""
        self.engine.jobs.row(job)
        for part in parts:
            self._refuse_duplicate(part)
        self.divisions.add(job, parts)
        for part in parts:
            self.reports[part] = 0
            self.pools.add(part, client, whole=job)

    def end_parts(self, job: str, ended: Collection[str]) -> None:
        """Parts of a job ended; what they still run is the job's own."""
        parts = [part for part in self.divisions.parts(job) if part in ended]
        if parts:
            self.record()  # their last iterations too
        for part in parts:
            self.forget(part)

    def _refuse_duplicate(self, name: str) -> None:
        self.engine.jobs.refuse_duplicate(name)
        if name in self.divisions:
            whole = self.divisions[name].job
            raise DuplicateJob(f"a part of the running job {whole!r} is named {name!r} already")

    def forget(self, name: str) -> None:
        """Forget a job and its parts; what they still run goes on under plain Dask."""
        for part in self.divisions.parts(name):
            self.forget(part)
        self.divisions.forget(name)
        self.pools.remove(name)
        self.resources.pop(name, None)
        self.reports.pop(name, None)
        if name in self.engine.jobs:
            self.engine.remove_job(name, monotonic())

    def forget_all(self) -> None:
        """Forget every job, and the tasks of none."""
        for name in list(self.pools.pools):
            self.forget(name)

    # What they do

    def report(self, job: Any, loss: Any) -> None:
        """One iteration's loss.

        Raises
        ------
        SlaqError
            If there is no such job, or `loss` is no finite number.
        """
        if job not in self.reports:
            raise SlaqError(f"no job named {job!r} is running")
        self.reports[job] += 1
        if isinstance(loss, bool) or not isinstance(loss, int | float):
            raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")
        if job in self.divisions:
            self._report_of_part(job, float(loss))
        else:
            self.engine.report(job, loss, monotonic())

    def _report_of_part(self, name: str, loss: float) -> None:
        if not math.isfinite(loss):
            raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")
        part = self.divisions[name]
        part.iteration, part.loss = part.iteration + 1, loss
        self.pools.pools[name].loss = loss

    def expect(self, job: Any, iterations: Any) -> None:
        """A job is to report at most so many iterations more; None if that is unknown.

        Raises
        ------
        SlaqError
            If there is no such job, or `iterations` is no number of iterations.
        """
        if job not in self.reports:
            raise SlaqError(f"no job named {job!r} is running")
        check_job_settings(max_iter=iterations)
        more = None if iterations is None else self.reports[job] + iterations
        self.engine.set_max_iter(job, more)

    def own(self, client: str, tasks: Iterable[Any]) -> None:
        """New tasks go into the pools of their jobs, or that of the client's tasks of no job."""
        mine: dict[str, list[Any]] = {}
        for key in tasks:
            ts = self.scheduler.tasks[key]
            job = ts.annotations.get(ANNOTATION) if ts.annotations else None
            mine.setdefault(job if job in self.reports else f"other:{client}", []).append(ts)
        for name, states in mine.items():
            pool = self.pools.pools.get(name)
            if pool is None:
                if all(ts.run_spec is None or ts.state != "released" for ts in states):
                    continue
                pool = self._open_other(name, client)
            self.pools.own(pool, states)

    def _open_other(self, name: str, client: str) -> Pool:
        """A pool for a client's tasks of no job: they get a fair share while jobs run."""
        self.engine.add_job(name, monotonic(), weight=self._settings.other_weight, reports=False)
        pool = self.pools.add(name, client, reports=False)
        self._changed()
        return pool

    # What they are granted

    @property
    def contended(self) -> bool:
        """Whether tasks must be held: not for one job alone, be it divided or not, nor under the
        policy ``none``."""
        if self._settings.policy == "none":
            return False
        strict = not self._settings.lend and any(
            job.max_share is not None for job in self.engine.jobs.values()
        )
        return len(self.pools.pools) - len(self.divisions) > 1 or strict

    def observe_demand(self) -> list[str]:
        """Tell the engine how many tasks are ready or running; whose tasks of no job are all done,
        by the names of their pools."""
        over = []
        for name, pool in self.pools.pools.items():
            if not pool.reports and not pool.unfinished:
                over.append(name)
            elif pool.whole is None:
                self.engine.observe_demand(name, pool.demand)
        return over

    def reallocate(self) -> None:
        """Reports and task times in; grants out to the pools."""
        workers = {ws.address: ws.nthreads for ws in self.scheduler.running}
        if not (self.pools.pools and workers):
            return
        self._reserve(sum(workers.values()))
        grants = self.engine.reallocate(
            workers,
            monotonic(),
            eligible=self._eligible(),
            affinity={n: pool.bytes_at for n, pool in self.pools.pools.items() if not pool.whole},
        )
        self.pools.apply(grants)
        self.record()

    def _eligible(self) -> dict[str, list[str]]:
        """Workers that supply the resources of each job that needs any."""
        return {
            name: [
                ws.address
                for ws in self.scheduler.running
                if all(ws.resources.get(r, 0) >= n for r, n in needs.items())
            ]
            for name, needs in self.resources.items()
            if needs
        }

    def _reserve(self, capacity: int) -> None:
        """Tasks of no job share the reserved threads as their floor."""
        if not self._settings.reserve:
            return
        others = [name for name, job in self.engine.jobs.items() if not job.reports]
        for name in others:
            self.engine.set_floor(name, self._settings.reserve * capacity / len(others))

    def record(self) -> None:
        """Remember what every job is granted now, for `history`."""
        jobs = {name: job for name, job in self.status().items() if job["reports"]}
        self.epochs.append({"time": time(), "jobs": jobs})

    def names(self) -> list[str]:
        """Running jobs, and their parts."""
        jobs = [name for name, job in self.engine.jobs.items() if job.reports]
        return jobs + list(self.divisions)

    def status(self) -> dict[str, dict[str, Any]]:
        """Every job, part of one, and the tasks of none now: see `status_of_job`."""
        pools = self.pools.pools
        wholes = (pool for pool in pools.values() if pool.whole is None)
        found = {pool.name: status_of_job(self.engine, pool, pool.name) for pool in wholes}
        for name in self.divisions:
            part = self.divisions[name]
            found[name] = status_of_part(part, pools[name], found[part.job])
        return found
