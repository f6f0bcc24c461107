"""SlaqPlugin: the scheduler's hooks and messages drive the engine; its grants drive the pools.

The safety law is "never worse than plain Dask": without jobs nothing has any effect, and on any
error all that is held is given back to Dask's own scheduling, loudly and once.
"""

from __future__ import annotations

import asyncio
import functools
import logging
from collections import deque
from collections.abc import Callable
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from dask_slaq.config import settings
from dask_slaq.core.engine import Engine, Predictor
from dask_slaq.core.errors import InvalidSetting, NonFiniteLoss, NoPlugin, SlaqError
from dask_slaq.core.recording import Recorder
from dask_slaq.scheduler.divisions import Divisions
from dask_slaq.scheduler.journal import Journal
from dask_slaq.scheduler.listening import follow, precede
from dask_slaq.scheduler.occupancy import Occupancy
from dask_slaq.scheduler.pools import Pools
from dask_slaq.scheduler.records import status_of_job

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)

#: The annotation by which a task belongs to a job.
ANNOTATION = "slaq_job"
# Reports travel on the client's stream, the end of a job by request: wait so long for the former.
_LAST_REPORTS = 2.0


def guarded(hook: Callable[..., Any]) -> Callable[..., Any]:
    """A hook that never raises: an error falls back to plain Dask."""

    @functools.wraps(hook)
    def call(self: SlaqPlugin, *args: Any, **kwargs: Any) -> Any:
        if self.failed is None:
            try:
                return hook(self, *args, **kwargs)
            except Exception as error:
                self.fall_back(error)
        return None

    return call


class SlaqPlugin(SchedulerPlugin):
    """Quality-driven scheduling on a Dask scheduler.

    Settings not given come from the Dask configuration under ``slaq:`` (``slaq.yaml`` documents
    each one).

    Parameters
    ----------
    policy : str
        Name of a policy, see `dask_slaq.core.policies.POLICIES`.
    epoch : str or float
        Time between two reallocations, as ``"1s"`` or in seconds.
    lend : bool
        Lend slots whose grantees have nothing ready to other jobs.
    log : str
        File on the scheduler's machine to which all events are recorded, for ``dask slaq replay``.
    normalizer, floor, other_weight, reserve, short_task, ahead, history, bindings, log_size, \
log_files
        See ``slaq.yaml``.
    predictor : Predictor, optional
        Replaces the loss predictor.

    Raises
    ------
    UnknownPolicy, InvalidSetting

    Examples
    --------
    >>> client.register_plugin(SlaqPlugin(policy="max-total", epoch="1s"))  # doctest: +SKIP
    """

    name = "slaq"

    def __init__(
        self,
        policy: str | None = None,
        epoch: str | float | None = None,
        *,
        lend: bool | None = None,
        predictor: Predictor | None = None,
        **other: Any,
    ) -> None:
        self.settings = settings(policy=policy, epoch=epoch, lend=lend, **other)
        self.predictor = predictor
        self.failed: str | None = None
        self.journal: Journal | None = None
        self.occupancy: Occupancy | None = None

    # Life

    async def start(self, scheduler: Scheduler) -> None:
        """Take up work on a scheduler.

        Raises
        ------
        InvalidSetting
            When another one of these runs jobs there, or the log cannot be written.
        """
        others = [p for p in scheduler.plugins.values() if isinstance(p, SlaqPlugin)]
        if jobs := [name for before in others for name in before.job_names()]:
            raise InvalidSetting(
                "the scheduler runs jobs under a SlaqPlugin already, and they must end "
                "before another one is registered: " + ", ".join(jobs)
            )
        chosen = self.settings
        log = chosen.log and Journal(chosen.log, chosen.log_size, chosen.log_files)
        for before in others:
            before.stop()
        self.journal = log or None
        self.scheduler = scheduler
        self.engine = self._make_engine()
        self.pools = Pools(
            scheduler,
            lend=chosen.lend,
            short=chosen.short_task,
            ahead=chosen.ahead,
            charge=self.engine.observe_task,
            fail=self.fall_back,
            log_length=chosen.bindings,
        )
        self.epochs: deque[dict[str, Any]] = deque(maxlen=chosen.history)
        self._resources: dict[str, dict[str, float]] = {}
        self._sent: dict[str, int] = {}
        self.divisions = Divisions()
        self._due = False
        self._timer = PeriodicCallback(self.run_once, chosen.epoch * 1000)
        scheduler.handlers.update(
            slaq_open=self.open_job,
            slaq_close=self.close_job,
            slaq_divide=self.divide_job,
            slaq_status=self.status,
            slaq_history=self.history,
            slaq_bindings=self.bindings,
        )
        scheduler.stream_handlers["slaq-report"] = self.handle_report
        scheduler.stream_handlers["slaq-parts"] = self.handle_parts
        follow(scheduler, "long-running", self.task_seceded)
        follow(scheduler, "worker-status-change", self.worker_changed)
        precede(scheduler, "no-workers-timeout", self.keep_waiting)
        self._announce()

    def _make_engine(self) -> Engine | Recorder:
        """A new engine, which is recorded if there is a log."""
        chosen = self.settings
        engine = Engine(
            chosen.policy,
            epoch=chosen.epoch,
            normalizer=chosen.normalizer,
            floor=chosen.floor,
            predictor=self.predictor,
            strict=not chosen.lend,
        )
        self.occupancy = None
        if self.journal is None:
            return engine
        now, about = monotonic(), {"unix": time(), "numpy": np.__version__}
        self.occupancy = Occupancy(now)
        return Recorder(engine, self.journal.write, now, self.occupancy, **about)

    def _announce(self) -> None:
        """Let clients know that there is a plugin to ask."""
        known = {"policy": self.settings.policy, "epoch": self.settings.epoch}
        self.scheduler.task_metadata["slaq"] = known

    @property
    def registered(self) -> bool:
        """Whether the scheduler has this plugin, under whatever name."""
        return any(plugin is self for plugin in self.scheduler.plugins.values())

    def _here(self) -> None:
        """Raise `NoPlugin` if the plugin was unregistered, of which no hook tells."""
        if not self.registered:
            self.stop()
            raise NoPlugin("SlaqPlugin was unregistered from the scheduler: register it again")

    def stop(self) -> None:
        """Give everything back to Dask and withdraw."""
        self._timer.stop()
        self.pools.hold(False)
        for name in list(self.pools.pools):
            self._forget(name)
        self._close_journal()
        if self.scheduler.handlers.get("slaq_open") == self.open_job:  # none came after this
            self.scheduler.task_metadata.pop("slaq", None)

    async def close(self) -> None:
        """The scheduler closes."""
        self._timer.stop()
        self._close_journal()

    def _close_journal(self) -> None:
        if self.journal is not None:
            self.journal.close()

    def fall_back(self, error: BaseException) -> None:
        """Leave every task to plain Dask from now on, and say so once."""
        if self.failed is None:
            self.failed = f"{type(error).__name__}: {error}"
            logger.error(
                "dask_slaq failed; every task is left to Dask's own scheduling until the plugin "
                "is registered again: %s",
                self.failed,
                exc_info=error,
            )
            self._timer.stop()
            # Not from inside a transition, where the error may have come from.
            asyncio.get_running_loop().call_soon(self.pools.hold, False)

    def job_names(self) -> list[str]:
        """Running jobs."""
        return [name for name, job in self.engine.jobs.items() if job.reports]

    # Messages: requests raise at the caller, what comes on the stream is logged and dropped

    async def open_job(self, name: str, client: str, **given: Any) -> None:
        """Request: a job begins; raises its mistakes at the caller."""
        self._here()
        self._add(name, client, given.pop("resources", None) or {}, **given)
        if self.failed is not None:
            logger.warning("job %s runs under plain Dask: %s", name, self.failed)
        elif not self._timer.is_running():
            self._timer.start()
        self._changed()

    def _add(self, name: str, client: str, resources: dict[str, float], **given: Any) -> None:
        self.engine.add_job(name, monotonic(), **given)
        self._resources[name] = resources
        self._sent[name] = 0
        self.pools.add(name, client)

    async def divide_job(self, job: str, parts: list[str], client: str) -> None:
        """Request: parts of a job are to be jobs of their own, under its weight; all or none."""
        self._here()
        weight = self.engine.jobs[job].weight
        for part in parts:
            self.engine.jobs.refuse_duplicate(part)
        for part in parts:
            self._add(part, client, self._resources[job])
        self.divisions.add(job, weight, parts)
        self._weigh(job)

    def handle_parts(
        self, /, job: Any = None, end: Any = (), client: str = "", **other: Any
    ) -> None:
        """Stream: from now on parts of a job work, and these of them have ended."""
        try:
            parts = [part for part in self.divisions.parts(job) if part in end]
            if parts:
                self._record()  # their last iterations too
            for part in parts:
                self._forget(part)
            self.divisions.work(job)
            self._weigh(job)
        except Exception as error:
            logger.warning("dropped a message from %s on parts of a job: %s", client, error)

    def _weigh(self, job: str) -> None:
        """Share out the weight of a job anew."""
        for name, weight in self.divisions.weights(job).items():
            self.engine.set_weight(name, weight)
        self._changed()

    async def close_job(self, name: str, reports: int = 0) -> None:
        """Request: a job ends once its last reports are in."""
        deadline = monotonic() + _LAST_REPORTS
        while self._sent.get(name, reports) < reports and monotonic() < deadline:
            await asyncio.sleep(0.002)
        if name in self._sent:
            self._record()  # its last iteration too
        self.end_job(name)

    def handle_report(
        self, /, job: Any = None, loss: Any = None, client: str = "", worker: str = "", **other: Any
    ) -> None:
        """Stream: one iteration's loss. An exception here would end the sender's connection."""
        try:
            if job not in self._sent:
                raise SlaqError(f"no job named {job!r} is running")
            self._sent[job] += 1
            if isinstance(loss, bool) or not isinstance(loss, int | float):
                raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")
            self.engine.report(job, loss, monotonic())
        except Exception as error:
            logger.warning("dropped a report from %s: %s", client or worker, error)

    async def status(self) -> dict[str, Any]:
        """Request: every job now, in words and numbers."""
        self._here()
        jobs = {
            name: status_of_job(self.engine, self.pools.pools[name], name)
            for name in self.pools.pools
        }
        return {
            "policy": self.settings.policy,
            "epoch": self.settings.epoch,
            "capacity": self.scheduler.total_nthreads,
            "holding": self.pools.holding,
            "failed": self.failed,
            "jobs": jobs,
        }

    async def history(self) -> list[dict[str, Any]]:
        """Request: the remembered epochs, oldest first."""
        self._here()
        return list(self.epochs)

    async def bindings(self) -> list[list[Any]]:
        """Request: the remembered task bindings, oldest first."""
        self._here()
        return [[b.time, str(b.key), b.job, b.worker, b.reason] for b in self.pools.bindings]

    # Hooks

    @guarded
    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: list[Any], **kwargs: Any
    ) -> None:
        """New tasks go into their jobs' pools before their first transition."""
        if not self._sent:
            return
        mine: dict[str, list[Any]] = {}
        for key in tasks:
            ts = scheduler.tasks[key]
            job = ts.annotations.get(ANNOTATION) if ts.annotations else None
            mine.setdefault(job if job in self._sent else f"other:{client}", []).append(ts)
        for name, states in mine.items():
            pool = self.pools.pools.get(name)
            if pool is None:
                if all(ts.run_spec is None or ts.state != "released" for ts in states):
                    continue
                pool = self._open_other(name, client)
            self.pools.own(pool, states)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Every transition of every task: nothing at all while there is no job."""
        if self._sent:
            self._moved(key, start, finish, kwargs)

    @guarded
    def _moved(self, key: Any, start: str, finish: str, details: dict[str, Any]) -> None:
        """A task changed its state: the pools follow."""
        if self.occupancy is not None:
            self.occupancy.moved(self.pools.job_of(key), key, finish, monotonic())
        self.pools.transition(key, start, finish, details)

    @guarded
    def keep_waiting(self) -> None:
        """Dask is about to look for tasks that wait for workers in vain."""
        if self.scheduler.no_workers_timeout is not None:
            self.pools.keep_waiting()

    @guarded
    def task_seceded(self, *, key: Any, **message: Any) -> None:
        """A task holds its slot no longer."""
        if self._sent:
            self.pools.seceded(key)

    @guarded
    def worker_changed(self, *, worker: str, **message: Any) -> None:
        """A worker paused, or runs (again): reallocate at once."""
        if self._sent:
            self.pools.slots_changed(worker)
            self._changed()

    @guarded
    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """A worker came: reallocate at once."""
        self.worker_changed(worker=worker)

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """A worker left: reallocate at once."""
        if self._sent:
            self._changed()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client left, or died: its jobs end, after a failure too, or their names stay taken."""
        try:
            for name in [n for n, pool in self.pools.pools.items() if pool.client == client]:
                self.end_job(name)  # parts may have gone with the job by then
        except Exception as error:
            self.fall_back(error)

    def restart(self, scheduler: Scheduler) -> None:
        """The cluster restarted: all tasks and metadata are gone, the jobs go on."""
        self._announce()
        if self._sent:
            self._changed()

    # Work

    @guarded
    def run_once(self) -> None:
        """One epoch: look after the pools, then reallocate."""
        if not self.registered:
            logger.warning("the plugin was unregistered: every job goes on under plain Dask")
            self.stop()
            return
        if self.pools.tick(0.5):
            logger.warning("tasks waited in a pool although slots were free; they run now")
        self.reallocate()

    @guarded
    def reallocate(self) -> None:
        """Reports and task times in; grants out to the pools."""
        self._due = False
        for name, pool in list(self.pools.pools.items()):
            if not pool.reports and not pool.unfinished:
                self.end_job(name)
            else:
                self.engine.observe_demand(name, pool.demand)
        self.pools.hold(self._contended())
        workers = {ws.address: ws.nthreads for ws in self.scheduler.running}
        if self.pools.pools and workers:
            self._reserve(sum(workers.values()))
            grants = self.engine.reallocate(
                workers,
                monotonic(),
                eligible=self._eligible(),
                affinity={name: pool.bytes_at for name, pool in self.pools.pools.items()},
            )
            self.pools.apply(grants)
            self._record()

    def _record(self) -> None:
        """Remember what every job is granted now, for `history`."""
        jobs = {
            name: status_of_job(self.engine, self.pools.pools[name], name)
            for name in self.job_names()
        }
        self.epochs.append({"time": time(), "jobs": jobs})

    def end_job(self, name: str) -> None:
        """Forget a job; what it still runs goes on under plain Dask."""
        self._forget(name)
        if not self._sent:
            for other in list(self.pools.pools):
                self._forget(other)
            self._timer.stop()
        self._changed()

    def _forget(self, name: str) -> None:
        for part in self.divisions.parts(name):
            self._forget(part)
        self.divisions.forget(name)
        self.pools.remove(name)
        self._resources.pop(name, None)
        self._sent.pop(name, None)
        if name in self.engine.jobs:
            self.engine.remove_job(name, monotonic())

    def _open_other(self, name: str, client: str) -> Any:
        """A pool for a client's tasks of no job: they get a fair share while jobs run."""
        self.engine.add_job(name, monotonic(), weight=self.settings.other_weight, reports=False)
        pool = self.pools.add(name, client, reports=False)
        self._changed()
        return pool

    def _changed(self) -> None:
        """A job or worker came or went: react at once, but once for all at hand."""
        self.pools.hold(self._contended())
        if not self._due and self.failed is None:
            self._due = True
            asyncio.get_running_loop().call_soon(self.reallocate)

    def _contended(self) -> bool:
        """Whether tasks must be held: not for one job alone, be it divided or not, nor under the
        policy ``none``."""
        if self.settings.policy == "none" or self.failed is not None:
            return False
        pools = self.pools.pools
        strict = not self.settings.lend and any(
            job.max_share is not None for job in self.engine.jobs.values()
        )
        return len(pools) - len(self.divisions) > 1 or strict

    def _eligible(self) -> dict[str, list[str]]:
        """Workers that supply the resources of each job that needs any."""
        return {
            name: [
                ws.address
                for ws in self.scheduler.running
                if all(ws.resources.get(r, 0) >= n for r, n in needs.items())
            ]
            for name, needs in self._resources.items()
            if needs
        }

    def _reserve(self, capacity: int) -> None:
        """Tasks of no job share the reserved threads as their floor."""
        others = [name for name, job in self.engine.jobs.items() if not job.reports]
        for name in others:
            if self.settings.reserve:
                self.engine.set_floor(name, self.settings.reserve * capacity / len(others))
