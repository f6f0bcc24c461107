"""Hooks that Dask's scheduler calls, and what is put around its messages and checks."""

from __future__ import annotations

import asyncio
import functools
import logging
import math
from collections.abc import Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any

from distributed import Scheduler
from distributed.diagnostics.plugin import SchedulerPlugin

from dask_slaq.core.settings import (
    LIMIT_LABEL,
    LOSS_TOPIC,
    OUTSIDE,
    UNOWNED_TOPIC,
    our_topics,
)
from dask_slaq.scheduler.current import RunningPlugin
from dask_slaq.scheduler.hooks import guarded, guarded_as, surround
from dask_slaq.scheduler.owners.identity import sender_of_message
from dask_slaq.scheduler.requests import Messages

logger = logging.getLogger(__name__)


def received_at(stimulus: str) -> float:
    """Return the Unix time at which the scheduler received a graph; -inf if it does not say."""
    try:
        return float(stimulus.rpartition("-")[2])
    except ValueError:
        return -math.inf


class DaskHooks(SchedulerPlugin, RunningPlugin):
    """Hooks of `SlaqPlugin`, which has the parts that they tell."""

    messages: Messages
    _announce: Callable[[], None]
    _from_outside = False  # whether what is published now is not the scheduler's
    # Of a run that failed, by key, its times and worker, while Dask reads that: it does not pass
    # them on for a task with retries.
    _failed_run: Mapping[Any, Mapping[str, Any]] = MappingProxyType({})

    @guarded
    def update_graph(
        self,
        scheduler: Scheduler,
        *,
        client: str,
        tasks: list[Any],
        keys: Collection[Any] = (),
        stimulus_id: str = "",
        **kwargs: Any,
    ) -> None:
        """Put new tasks into the pools of their jobs. See `SchedulerPlugin`."""
        if LIMIT_LABEL in kwargs.get("annotations", ()):
            self.pools.limits.log_unknown(kwargs["annotations"])
        if self.jobs.reports:
            sender = sender_of_message()
            about: dict[str, Any] = {}
            if sender is not None:
                client, about = sender.client, {"submitter": sender.submitter, "comm": sender.comm}
                about |= {"block": sender.block}
            self.task_pools.own(client, tasks, keys, received_at(stimulus_id), **about)
            if self.searches.running:
                self.searches.submitted(client, tasks)
                if sender is not None and sender.submitter is not None:
                    self.searches.follower.submits(sender.submitter)

    def _submits_outside(self, client: str, received: float) -> bool:
        """Tell a client that it submits tasks outside of its open block. Returns if it has one.

        A graph that was `received` before the block was entered is not of another thread. Nor is
        one that is sent while tasks of the job run: it may come from one of these.
        """
        pools, reports = self.pools.pools, reversed(list(self.jobs.reports))
        for name in (name for name in reports if pools[name].client == client):
            search = self.searches.running.get(name)
            is_open = search is None or search.outcome is None  # otherwise its block was left
            entered = self.jobs.entered.get(name, math.inf)
            if is_open and received > entered and not pools[name].unfinished:
                self.jobs.tell_client(name, OUTSIDE)
                return True
        return False

    def transition(
        self, key: Any, start: str, finish: str, *args: Any, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Follow a task. See `SchedulerPlugin`. It is called some five times per task.

        What concerns nobody here ends here. Usage is counted after a failure, too.
        """
        if self._failed_run and start == "processing":
            kwargs = {**self._failed_run.get(key, {}), **kwargs}
        jobs = self.jobs
        if not jobs.reports or self.failed is not None:  # no task is followed
            if start == "processing":
                jobs.accounts.task_ended(key, kwargs.get("startstops") or (), None)
            if self.failed is None and (self.searches.states.names or self.pools.limits.most):
                self._follow(key, start, finish, kwargs)
            return
        pools, searches = self.pools, self.searches
        pool = pools.records.pool_of.get(key)
        if start == "processing" and (
            pool is None or key in pools.charges.seceded_at or key in jobs.accounts.ahead
        ):
            jobs.accounts.task_ended(key, kwargs.get("startstops") or (), pool)
        if searches.running or searches.states.names or pools.limits.most:
            self._follow(key, start, finish, kwargs)
        elif pool is None:  # of no job: it may take a thread, or free one
            if start == "processing" or finish == "processing":
                self._follow(key, start, finish, kwargs)
        elif finish != "queued" and not (start == "memory" and finish == "released"):
            if finish == "waiting" and self.scheduler.tasks[key] in pool.unfinished:
                return  # it waits, as it did before
            try:  # as `guarded` does, for less: this is called three times per task
                pools.tracker.transition(key, start, finish, kwargs)
                if self.scheduler.validate:
                    self.pools.check_task(key)
            except Exception as error:
                self.fall_back(error)

    @guarded
    def _follow(self, key: Any, start: str, finish: str, kwargs: dict[str, Any]) -> None:
        """Charge a task, and move it in its pool."""
        if finish == "forgotten" and self.searches.states.names:
            asyncio.get_running_loop().call_soon(self.enter, self.searches.states.free, key)
        if self.pools.limits.most:
            self.pools.limits.transition(key, start, finish)
        if not self.jobs.reports:
            return
        if self.searches.running:
            self.searches.follower.transition(key, start, finish, kwargs.get("worker"))
        self.pools.tracker.transition(key, start, finish, kwargs)
        if self.scheduler.validate:
            self.pools.check_task(key)

    @guarded_as(otherwise=lambda plugin, scheduler, workers: workers)
    def valid_workers_downscaling(self, scheduler: Scheduler, workers: list[Any]) -> list[Any]:
        """Keep workers with data of a job that computes. See `SchedulerPlugin`."""
        return list(self.scaling.closable(workers))

    @guarded
    def add_worker(self, scheduler: Scheduler, worker: str) -> None:
        """Reallocate soon after a worker joined. See `SchedulerPlugin`."""
        if self.searches.running:
            self.searches.agents.prepare([scheduler.workers[worker]])
        self._look_at(worker)

    @guarded
    def remove_worker(
        self, scheduler: Scheduler, worker: str, *, stimulus_id: str, **kwargs: Any
    ) -> None:
        """Reallocate soon after a worker left. See `SchedulerPlugin`."""
        self.pools.forget_worker(worker)
        self.speeds.forget_worker(worker)
        self.searches.choices.forget_worker(worker)
        if self.jobs.reports:
            self.changed()

    @guarded_as(always=True)
    def remove_client(self, scheduler: Scheduler, client: str) -> None:
        """End the jobs of a client that left, after a failure too. See `SchedulerPlugin`."""
        self.jobs.accounts.settle()  # while it is known who it was
        for name in [n for n, pool in self.pools.pools.items() if pool.client == client]:
            if not self.searches.goes_on(name):
                self.end_job(name)
        self.searches.forget_client(client)
        self.subscribers.discard(client)

    @guarded_as(always=True)
    def log_event(self, topic: str, msg: Any) -> None:
        """Hear of workers that pause or die, of clients that leave, and of stolen tasks.

        What clients, workers and nannies publish is not heard. See `SchedulerPlugin`.
        """
        if self._from_outside:
            return
        if topic == "stealing":
            self._task_stolen(msg)
        elif topic in self.scheduler.workers:
            if isinstance(msg, dict) and msg.get("action") == "worker-status-change":
                # Once Dask has the new status everywhere.
                asyncio.get_running_loop().call_soon(self._worker_changed, topic)
        elif topic == "all":
            self.searches.log_event(msg)

    def _do_not_hear(self, **message: Any) -> Callable[[], None]:
        """Publish an event of others without hearing it. Returns what runs after."""
        self._from_outside = True
        return functools.partial(setattr, self, "_from_outside", False)

    @guarded_as(always=True, otherwise=_do_not_hear)
    def _client_publishes(self, *, topic: Any = None, **message: Any) -> Any:
        """Drop what a client or nanny publishes under our topics. Returns what runs after."""
        return False if our_topics(topic) else self._do_not_hear()

    @guarded_as(always=True, otherwise=_do_not_hear)
    def _worker_publishes(self, *, topic: Any = None, msg: Any = None, **message: Any) -> Any:
        """Drop what is published on a stream under our topics, but losses of tasks."""
        ours, sender = our_topics(topic), sender_of_message()
        worker = "" if sender is None else sender.worker
        if worker and topic == UNOWNED_TOPIC and isinstance(msg, dict):
            self.searches.follower.warn_of_unowned(msg, worker)
        losses = worker and all(name.startswith(f"{LOSS_TOPIC}-") for name in ours)
        return self._do_not_hear() if losses or not ours else False

    @guarded
    def _task_stolen(self, event: Any) -> None:
        """Follow a task that work stealing moves."""
        match event:
            case ("confirm", _, _, str(victim), str(thief), *_):
                for ws in filter(None, map(self.scheduler.workers.get, (victim, thief))):
                    self.pools.tracker.control.recount_resources(ws)
        if self.jobs.reports:
            self.pools.tracker.stealing(event)

    @guarded
    def _worker_changed(self, worker: str) -> None:
        """Reallocate soon after a worker paused or resumed."""
        if worker in self.scheduler.workers:
            self._look_at(worker)

    @guarded_as(always=True)
    def restart(self, scheduler: Scheduler) -> None:
        """Announce the plugin again: a restart drops all tasks and metadata. Jobs continue."""
        self._announce()
        if self.pools.limits:
            self.pools.set_limits(self.pools.limits.most)  # there are no tasks any more
        if self.jobs.reports:
            self.changed()

    # What Dask has no hooks for

    def _hook_in(self) -> None:
        """Put methods around messages."""
        for name, message in SURROUNDED.items():
            surround(self.scheduler, message, getattr(self, name), self.messages.drop)

    def _does_not_secede(self, *, key: Any, worker: str, **message: Any) -> bool | None:
        """Drop the message of another run of a task, and a second one of this run.

        Older Dask takes the first for that of this run, and would count the task twice after the
        second: once its prefix is forgotten, all that adds up occupancies would fail.
        """
        ts = self.scheduler.tasks.get(key)
        ws = None if ts is None else ts.processing_on
        return False if ws is not None and (ws.address != worker or ts in ws.long_running) else None

    @guarded_as(always=True)
    def _task_errs(self, *, key: Any, worker: str, startstops: Any = (), **message: Any) -> Any:
        """Run before Dask reads that a task failed; returns what runs after."""
        self._failed_run = {key: {"startstops": startstops, "worker": worker}}
        return functools.partial(setattr, self, "_failed_run", {})

    @guarded_as(otherwise=_does_not_secede)
    def _task_secedes(self, *, key: Any, worker: str, **message: Any) -> Any:
        """Run before Dask reads that a task seceded; returns what runs after."""
        if self._does_not_secede(key=key, worker=worker) is None:
            return functools.partial(self._task_seceded, key)
        ws = self.scheduler.tasks[key].processing_on
        if ws is not None and ws.address == worker and key not in self.pools.charges.seceded_at:
            self._task_seceded(key)  # until now it counted as seceded while it waits in a report
        return False

    @guarded
    def _task_seceded(self, key: Any) -> None:
        """Free the slot of a task that seceded."""
        if self.jobs.reports:
            self.pools.tracker.seceded(key)
            self.searches.follower.seceded(key)

    def _look_at(self, worker: str) -> None:
        self.pools.limits.look_again()
        self.searches.choices.look()
        if self.jobs.reports:
            self.pools.slots_changed(worker)
            self.changed()

    @guarded_as(always=True)
    def _keep(self) -> None:
        """Keep what Dask's periodic checks, which follow, must not take for abandoned."""
        if self.jobs.reports or self.pools.limits:
            self._keep_waiting()
            self._keep_open()

    @guarded
    def _keep_waiting(self) -> None:
        """Let held tasks not time out as if no worker could run them."""
        if self.pools.limits and not self.registered:
            self.run_once()  # gives back what waits for a label, although no job runs
        if self.scheduler.no_workers_timeout is not None:
            self.pools.keep_waiting()

    @guarded_as(always=True)
    def _keep_open(self) -> None:
        """Let a cluster with an open job not count as idle.

        The job may compute in its driver. One that has neither computed nor reported for
        ``keep-workers`` no longer counts: its block may have been forgotten. This also holds after
        a failure.
        """
        if not (self.jobs.reports and self.registered):
            return
        self.scheduler.idle_since, idle_since = None, self.scheduler.idle_since
        if not self.scaling.busy():
            self.scheduler.idle_since = idle_since


#: Methods that are put around Dask's handlers of messages, and of which.
SURROUNDED = {
    "_client_publishes": "log_event",
    "_worker_publishes": "log-event",
    "_task_secedes": "long-running",
    "_task_errs": "task-erred",
}
