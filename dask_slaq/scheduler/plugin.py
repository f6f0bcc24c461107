"""SlaqPlugin: the scheduler's hooks and messages drive the engine; its grants drive the pools.

The safety law is "never worse than plain Dask": without jobs nothing has any effect, and on any
error all that is held is given back to Dask's own scheduling, loudly and once.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from time import monotonic, time
from typing import TYPE_CHECKING, Any

import numpy as np
from distributed.diagnostics.plugin import SchedulerPlugin
from tornado.ioloop import PeriodicCallback

from dask_slaq.config import settings
from dask_slaq.core.engine import Engine, Predictor
from dask_slaq.core.errors import InvalidSetting, NoPlugin
from dask_slaq.core.recording import Recorder
from dask_slaq.scheduler.activity import Activity
from dask_slaq.scheduler.dask_repairs import drop_stale_counts
from dask_slaq.scheduler.event_log import Journal
from dask_slaq.scheduler.handlers import Messages, at_work
from dask_slaq.scheduler.hooks import follow, precede, surround
from dask_slaq.scheduler.jobs import ScheduledJobs
from dask_slaq.scheduler.pools import Pools

if TYPE_CHECKING:
    from distributed import Scheduler

logger = logging.getLogger(__name__)

#: When jobs and workers come and go, one decision may follow another in so many seconds, at least
#: and for each second that it took; after a rest several at once, those of `BURST` seconds. So few
#: jobs are decided on as they come, and a crowd together.
PAUSE, PAUSE_PER_SECOND, BURST = 0.020, 4.0, 0.200


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
        Name of a policy, see `dask_slaq.core.policies.quality_driven.POLICIES`.
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
        self.activity: Activity | None = None
        self._started_on: Scheduler | None = None

    # Life

    async def start(self, scheduler: Scheduler) -> None:
        """Take up work on a scheduler; once, though a scheduler that starts with its preloads calls
        this again for every plugin that they registered.

        Raises
        ------
        InvalidSetting
            When another one of these runs jobs there and has not failed, or the log cannot be
            written.
        """
        if self._started_on is scheduler and self.failed is None:
            return
        others = [p for p in scheduler.plugins.values() if isinstance(p, SlaqPlugin)]
        if (before := at_work(scheduler)) is not None and before not in others:
            before.stop()  # it was unregistered, and has not noticed yet
        if jobs := [n for before in others if before.failed is None for n in before.jobs.names()]:
            raise InvalidSetting(
                "the scheduler runs jobs under a SlaqPlugin already, and they must end "
                "before another one is registered: " + ", ".join(jobs)
            )
        chosen = self.settings
        log = chosen.log and Journal(chosen.log, chosen.log_size, chosen.log_files)
        if left := [name for before in others for name in before.jobs.names()]:
            logger.warning(
                "a SlaqPlugin that failed is replaced; its jobs go on as work of no job, until "
                "they are opened again: %s",
                ", ".join(left),
            )
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
            fair=chosen.policy == "fair",
            charge=self.engine.observe_task,
            fail=self.fall_back,
            told=lambda: self.registered and self.failed is None,
            log_length=chosen.bindings,
        )
        self.jobs = ScheduledJobs(scheduler, self.engine, self.pools, chosen, self._changed)
        self._next: asyncio.Handle | None = None
        self._rested = 0.0
        self._timer = PeriodicCallback(self.run_once, chosen.epoch * 1000)
        self.messages = Messages(self)
        self.messages.register()
        follow(scheduler, "long-running", self.task_seceded)
        if "steal-response" in scheduler.stream_handlers:
            surround(scheduler, "steal-response", self.task_moving)
        follow(scheduler, "worker-status-change", self.worker_changed)
        precede(scheduler, "no-workers-timeout", self.keep_waiting)
        precede(scheduler, "idle-timeout", self.keep_open)
        self.pools.control.skip_held_when_workers_join()
        self._announce()
        self._started_on = scheduler

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
        self.activity = None
        if self.journal is None:
            return engine
        now, about = monotonic(), {"unix": time(), "numpy": np.__version__}
        self.activity = Activity(now)
        return Recorder(engine, self.journal.write, now, self.activity, **about)

    def _announce(self) -> None:
        """Let clients know that there is a plugin to ask."""
        known = {"policy": self.settings.policy, "epoch": self.settings.epoch}
        self.scheduler.task_metadata["slaq"] = known

    @property
    def registered(self) -> bool:
        """Whether the scheduler has this plugin, under whatever name."""
        return any(plugin is self for plugin in self.scheduler.plugins.values())

    def check_registered(self) -> None:
        """Raise `NoPlugin` if the plugin was unregistered, of which no hook tells."""
        if not self.registered:
            self.stop()
            raise NoPlugin("SlaqPlugin was unregistered from the scheduler: register it again")

    def stop(self) -> None:
        """Give everything back to Dask and withdraw."""
        self._started_on = None
        self._timer.stop()
        self._not_now()
        self.pools.hold(False)
        self.jobs.forget_all()
        self._close_journal()
        if self.messages.current:
            self.scheduler.task_metadata.pop("slaq", None)

    async def close(self) -> None:
        """The scheduler closes."""
        self._timer.stop()
        self._not_now()
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

    # Hooks

    @guarded
    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: list[Any], **kwargs: Any
    ) -> None:
        """New tasks go into their jobs' pools before their first transition."""
        if not self.jobs.reports:
            return
        self.jobs.own(client, tasks)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Every transition of every task: nothing at all while there is no job."""
        if not self.jobs.reports:
            return
        if self.failed is not None:
            if finish == "forgotten":
                self.pools.drop(key)
            return
        try:
            if self.activity is not None:
                self.activity.moved(self.pools.job_of(key), key, finish, monotonic())
            self.pools.transition(key, start, finish, kwargs)
            if self.scheduler.validate:
                self.pools.check_task(key)
        except Exception as error:
            self.fall_back(error)

    @guarded
    def keep_waiting(self) -> None:
        """Dask is about to look for tasks that wait for workers in vain."""
        if self.scheduler.no_workers_timeout is not None:
            self.pools.keep_waiting()

    def keep_open(self) -> None:
        """Dask is about to look whether the cluster is idle: with a job it is not, though that may
        compute in its driver. After a failure too."""
        if self.jobs.reports and self.registered:
            self.scheduler.idle_since = None

    @guarded
    def task_seceded(self, *, key: Any, **message: Any) -> None:
        """A task holds its slot no longer."""
        if self.jobs.reports:
            self.pools.seceded(key)

    @contextlib.contextmanager
    def task_moving(self, *, key: Any, **message: Any) -> Iterator[None]:
        """A worker answers whether a task may move to another one."""
        if not self.jobs.reports or self.failed is not None:
            yield
            return
        with self.pools.moving(key):
            yield

    @guarded
    def worker_changed(self, *, worker: str, **message: Any) -> None:
        """A worker paused, or runs (again): reallocate at once."""
        if self.jobs.reports:
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
        self.pools.forget_worker(worker)
        if self.jobs.reports:
            self._changed()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """A client left, or died: its jobs end, after a failure too, or their names stay taken."""
        try:
            for name in [n for n, pool in self.pools.pools.items() if pool.client == client]:
                self.end_job(name)
        except Exception as error:
            self.fall_back(error)

    def restart(self, scheduler: Scheduler) -> None:
        """The cluster restarted: all tasks and metadata are gone, the jobs go on."""
        self._announce()
        if stale := drop_stale_counts(scheduler):
            logger.warning("Dask kept counts of tasks over a restart; dropped: %s", stale)
        if self.jobs.reports:
            self._changed()

    # Work

    def began(self, name: str) -> None:
        """A job was opened."""
        if self.failed is not None:
            logger.warning("job %s runs under plain Dask: %s", name, self.failed)
        elif not self._timer.is_running():
            self._timer.start()
        self._changed()

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
        self.jobs.record()

    @guarded
    def reallocate(self) -> None:
        """Reports and task times in; grants out to the pools."""
        self._not_now()
        begin = monotonic()
        for name in self.jobs.observe_demand():
            self.end_job(name)
        self.pools.hold(self.jobs.contended)
        self.jobs.reallocate()
        end = monotonic()
        pause = max(PAUSE, PAUSE_PER_SECOND * (end - begin))
        self._rested = max(self._rested, end) + pause

    def end_job(self, name: str) -> None:
        """Forget a job; what it still runs goes on under plain Dask."""
        self._remember(name)
        self.jobs.forget(name)
        if not self.jobs.reports:
            self.jobs.forget_all()
            self._timer.stop()
        self._changed()

    @guarded
    def _remember(self, name: str) -> None:
        """The last iteration of a job that ends is to be seen in its history."""
        self.jobs.remember(name)

    def _changed(self) -> None:
        """A job or worker came or went: decide at once, but once for all that come together."""
        self.pools.hold(self.failed is None and self.jobs.contended)
        if self._next is None and self.failed is None:
            delay = max(self._rested - BURST - monotonic(), 0.0)
            self._next = asyncio.get_running_loop().call_later(delay, self.reallocate)

    def _not_now(self) -> None:
        """Drop the decision that is due, if any."""
        if self._next is not None:
            self._next.cancel()
            self._next = None
