"""Hooks in the Dask scheduler: those of Dask's plugins, and those that Dask has none for.

`PluginHooks` are called by Dask; `StreamHooks` are put around stream handlers and periodic
callbacks. On an error in a hook the plugin falls back to plain Dask.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import logging
from collections.abc import Callable, Iterator
from time import monotonic
from typing import TYPE_CHECKING, Any

from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.core.settings import ALERT_TOPIC
from dask_slaq.scheduler.dask_repairs import drop_stale_counts
from dask_slaq.scheduler.pools import LABEL, check_task

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.activity import Activity
    from dask_slaq.scheduler.adaptive import Scaling
    from dask_slaq.scheduler.jobs import ScheduledJobs
    from dask_slaq.scheduler.notices import Notices
    from dask_slaq.scheduler.plugin import SlaqPlugin
    from dask_slaq.scheduler.pools import Pools, TaskOwners
    from dask_slaq.scheduler.spares import Spares
    from dask_slaq.scheduler.trials import Searches

logger = logging.getLogger(__name__)

__all__ = ["PluginHooks", "StreamHooks", "follow", "guarded", "precede", "surround"]


def guard(plugin: SlaqPlugin, hook: Callable[..., Any]) -> Callable[..., Any]:
    """Return a hook that never raises: on an error the plugin falls back to plain Dask."""

    @functools.wraps(hook)
    def call(*args: Any, **kwargs: Any) -> Any:
        if plugin.failed is None:
            try:
                return hook(*args, **kwargs)
            except Exception as error:
                plugin.fall_back(error)
        return None

    return call


def guarded(method: Callable[..., Any]) -> Callable[..., Any]:
    """Make a `guard` around a method of the plugin."""

    @functools.wraps(method)
    def call(self: SlaqPlugin, *args: Any, **kwargs: Any) -> Any:
        return guard(self, method)(self, *args, **kwargs)

    return call


class PluginHooks(SchedulerPlugin):
    """Methods of a `SlaqPlugin` that Dask calls while it runs."""

    scheduler: Scheduler
    jobs: ScheduledJobs
    pools: Pools
    searches: Searches
    task_owners: TaskOwners
    scaling: Scaling
    hooks: StreamHooks
    spares: Spares
    activity: Activity | None
    notices: Notices
    failed: str | None

    def fall_back(self, error: BaseException) -> None:
        """Leave every task to plain Dask from now on."""
        raise NotImplementedError

    def changed(self) -> None:
        """Decide soon, because a job or worker came, went or changed."""
        raise NotImplementedError

    def end_job(self, name: str, outcome: str | None = None) -> None:
        """Forget a job."""
        raise NotImplementedError

    def _announce(self) -> None:
        raise NotImplementedError

    @guarded
    def update_graph(
        self, scheduler: Scheduler, *, client: str, tasks: list[Any], **kwargs: Any
    ) -> None:
        """Put new tasks into the pools of their jobs, before their first transition."""
        if LABEL in kwargs.get("annotations", ()):
            self.pools.limits.log_unknown(kwargs["annotations"])
        if not self.jobs.reports:
            return
        self.task_owners.own(client, tasks)

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Follow a transition. Without jobs, tasks that end are charged, and nothing else."""
        if start == "processing":
            ran = kwargs.get("startstops") or ()
            self.jobs.accounts.task_ended(key, ran, followed=self.failed is None)
        if "processing" in (start, finish) and self.failed is None:
            try:
                self.spares.transition(key, start, finish, kwargs)
            except Exception as error:
                self.fall_back(error)
        limits = self.pools.limits.most
        if not (self.jobs.reports or limits) or self.failed is not None:
            return
        try:
            if limits:
                self.pools.limits.transition(key, start, finish)
                if not self.jobs.reports:
                    return
            if self.activity is not None:
                self.activity.moved(self.pools.tracker.job_of(key), key, finish, monotonic())
            if self.searches.running:
                self.searches.transition(key, start, finish)
            self.pools.tracker.transition(key, start, finish, kwargs)
            if self.scheduler.validate:
                check_task(self.pools, key)
        except Exception as error:
            self.fall_back(error)

    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """Keep workers with data of a job that computes. Never raises."""
        return self.scaling.closable(workers)

    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Reallocate soon after a worker joined."""
        self.hooks.worker_changed(worker=worker)

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Reallocate soon after a worker left."""
        self.pools.forget_worker(worker)
        self.spares.forget_worker(worker)
        if self.jobs.reports:
            self.changed()

    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the jobs of a client that left or died, after a failure too."""
        self.jobs.accounts.settle()  # while it is known who it was
        try:
            for name in [n for n, pool in self.pools.pools.items() if pool.client == client]:
                self.end_job(name)
        except Exception as error:
            self.fall_back(error)

    def log_event(self, topic: str, msg: Any) -> None:
        """Tell owners of alerts, after a failure too. Never raises."""
        if topic == ALERT_TOPIC:
            self.notices.tell(msg)

    def restart(self, scheduler: Scheduler) -> None:
        """Announce the plugin again: a restart drops all tasks and metadata. Jobs continue."""
        self._announce()
        if stale := drop_stale_counts(scheduler):
            logger.warning("Dask kept counts of tasks over a restart; dropped: %s", stale)
        if self.pools.limits:
            self.pools.set_limits(self.pools.limits.most)  # there are no tasks any more
        if self.jobs.reports:
            self.changed()


class StreamHooks:
    """Hooks of a `SlaqPlugin` in messages of workers and in Dask's periodic checks."""

    def __init__(self, plugin: SlaqPlugin) -> None:
        self._plugin = plugin
        self.worker_changed = guard(plugin, self._worker_changed)

    def install(self, scheduler: Scheduler) -> None:
        """Install the hooks. They replace those of an earlier plugin."""
        follow(scheduler, "long-running", guard(self._plugin, self._task_seceded))
        if "steal-response" in scheduler.stream_handlers:
            surround(scheduler, "steal-response", self._task_moving)
        follow(scheduler, "worker-status-change", self.worker_changed)
        precede(scheduler, "no-workers-timeout", guard(self._plugin, self._keep_waiting))
        precede(scheduler, "idle-timeout", self._keep_open)

    def _task_seceded(self, *, key: Any, **message: Any) -> None:
        """Free the slot of a task that seceded."""
        if self._plugin.jobs.reports:
            self._plugin.pools.tracker.seceded(key)

    @contextlib.contextmanager
    def _task_moving(self, *, key: Any, **message: Any) -> Iterator[None]:
        """Wrap the answer of a worker to a request to move a task to another worker."""
        if not self._plugin.jobs.reports or self._plugin.failed is not None:
            yield
            return
        with self._plugin.pools.tracker.moving(key):
            yield

    def _worker_changed(self, *, worker: str, **message: Any) -> None:
        """Reallocate soon after a worker came, paused or resumed."""
        self._plugin.pools.limits.look_again()
        if self._plugin.jobs.reports:
            self._plugin.pools.slots_changed(worker)
            self._plugin.changed()

    def _keep_waiting(self) -> None:
        """Run before Dask looks for tasks that no worker can run."""
        if self._plugin.pools.limits and not self._plugin.registered:
            self._plugin.run_once()  # gives back what waits for a label, although no job runs
        if self._plugin.scheduler.no_workers_timeout is not None:
            self._plugin.pools.keep_waiting()

    def _keep_open(self) -> None:
        """Run before Dask checks whether the cluster is idle: with an open job it is not.

        The job may compute in its driver. This also holds after a failure.
        """
        if self._plugin.jobs.reports and self._plugin.registered:
            self._plugin.scheduler.idle_since = None


def follow(scheduler: Scheduler, op: str, then: Callable[..., Any]) -> None:
    """Call a function after a stream handler, with the handler's message.

    A function that an earlier plugin installed is replaced.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    op : str
        Name of the stream handler.
    then : callable
        Called with the keywords of the message.
    """
    handlers = scheduler.stream_handlers
    handler = getattr(handlers[op], "followed", handlers[op])

    @functools.wraps(handler)
    def followed(**message: Any) -> None:
        handler(**message)
        then(**message)

    followed.followed = handler  # type: ignore[attr-defined]
    handlers[op] = followed


def surround(
    scheduler: Scheduler, op: str, context: Callable[..., contextlib.AbstractContextManager[None]]
) -> None:
    """Call a stream handler within a context manager. Replaces that of an earlier plugin.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    op : str
        Name of the stream handler; it may be a coroutine function.
    context : callable
        Returns the context manager; called with the keywords of the message.
    """
    handlers = scheduler.stream_handlers
    handler = getattr(handlers[op], "surrounded", handlers[op])

    if inspect.iscoroutinefunction(handler):

        @functools.wraps(handler)
        async def surrounded(**message: Any) -> None:
            with context(**message):
                await handler(**message)

    else:

        @functools.wraps(handler)
        def surrounded(**message: Any) -> None:
            with context(**message):
                handler(**message)

    surrounded.surrounded = handler  # type: ignore[attr-defined]
    handlers[op] = surrounded


def precede(scheduler: Scheduler, name: str, first: Callable[[], None]) -> None:
    """Call a function before a periodic callback. Replaces that of an earlier plugin.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    name : str
        Name of the periodic callback.
    first : callable
        Called without arguments.
    """
    periodic = scheduler.periodic_callbacks[name]
    callback = getattr(periodic.callback, "preceded", periodic.callback)

    def preceded() -> None:
        first()
        callback()

    preceded.preceded = callback  # type: ignore[attr-defined]
    periodic.callback = preceded
