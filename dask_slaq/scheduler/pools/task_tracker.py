"""Tracking of tasks: which pool owns a task, and how it moves through the states of Dask."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch import Binding

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.scheduler.dispatch import Like, Pool
    from dask_slaq.scheduler.pools.pools import Pools


class TaskTracker:
    """Follows the transitions of all tasks and keeps the pools of their jobs up to date.

    Parameters
    ----------
    pools : Pools
    charge : callable
        Called as ``charge(job, seconds, at_once)`` for every finished task.

    Attributes
    ----------
    owner : dict
        Pool that owns each task, by key.
    seceded_at : dict
        Running tasks that gave up their slot, by key: the Unix time at which they did, and the
        core-seconds charged so far.
    charged_until : dict
        Tasks that report what they compute, by key: the Unix time of their worker up to which they
        were charged; None while they wait in a report.
    """

    def __init__(self, pools: Pools, charge: Callable[[str, float, int], None]) -> None:
        self._pools = pools
        self._charge = charge
        self._count = itertools.count()
        self.scheduler: Scheduler = pools.scheduler
        self.control, self.slots, self.wakeups = pools.control, pools.slots, pools.wakeups
        self.owner: dict[Any, Pool] = {}
        self.seceded_at: dict[Any, tuple[float, float]] = {}
        self.charged_until: dict[Any, float | None] = {}

    def job_of(self, key: Any) -> str | None:
        """Return the name of the job that owns a task, or None."""
        pool = self.owner.get(key)
        return None if pool is None else pool.name

    def own(self, pool: Pool, tasks: Iterable[TaskState]) -> None:
        """Put new `tasks` into `pool`. Tasks that another pool owns stay there."""
        for ts in tasks:
            if ts.key not in self.owner and ts.run_spec is not None:
                self.owner[ts.key] = pool
                pool.tasks[ts] = self.control.given(ts)
                if ts.state in ("released", "waiting", "queued", "no-worker", "processing"):
                    pool.unfinished.add(ts)

    def adopt(self, pool: Pool, tasks: Iterable[TaskState]) -> None:
        """Put unfinished `tasks` that Dask already tracks into `pool`."""
        self.own(pool, tasks)
        for ts in tasks:
            if self.owner.get(ts.key) is pool and ts.processing_on is not None:
                pool.passed.setdefault(ts.processing_on.address, set()).add(ts)

    def forget(self, tasks: Iterable[TaskState]) -> None:
        """Disown the tasks of a pool that is closed."""
        for ts in tasks:
            self.owner.pop(ts.key, None)
        for known in (self.seceded_at, self.charged_until):
            for key in [key for key in known if key not in self.owner]:
                del known[key]

    def user_of(self, ts: TaskState) -> Any:
        """Return the restrictions that the user set for a task, or None."""
        pool = self.owner.get(ts.key)
        return None if pool is None else pool.tasks.get(ts)

    def transition(self, key: Any, start: str, finish: str, kwargs: Mapping[str, Any]) -> None:
        """Follow one transition of any task.

        Parameters
        ----------
        key : str or tuple
            Key of the task.
        start, finish : str
            States of Dask.
        kwargs : mapping
            Keyword arguments of `SchedulerPlugin.transition`.
        """
        pool = self.owner.get(key)
        if pool is None:
            if start == "processing":
                self._freed(kwargs.get("worker"))
            elif finish == "processing" and (ws := self.scheduler.tasks[key].processing_on):
                self.slots.changed.add(ws.address)
            return
        ts = self.scheduler.tasks[key]
        if start == "no-worker":
            pool.pop(ts)
        elif start == "processing":
            self._ended(pool, ts, kwargs.get("startstops") or ())
            self._freed(kwargs.get("worker"))
        if finish == "waiting":
            # Dask also announces waiting -> waiting on the way to no-worker.
            if start != "waiting":
                self._awaits(pool, ts)
        elif finish == "no-worker":
            if self.control.holds(ts):
                self._ready(pool, ts)
        elif finish == "processing":
            self._started(pool, ts)
        elif start != "memory" and finish != "queued":
            self._done(pool, ts)
        if finish == "forgotten":
            del self.owner[key]
            pool.tasks.pop(ts, None)

    def drop(self, key: Any) -> None:
        """Drop all records of a forgotten task. Used after a failure."""
        pool = self.owner.pop(key, None)
        if pool is not None:
            ts = self.scheduler.tasks[key]
            self.seceded_at.pop(key, None)
            self.charged_until.pop(key, None)
            self.slots.ended(ts)
            self.control.restore(ts, pool.tasks.get(ts))
            pool.drop(ts)

    def _awaits(self, pool: Pool, ts: TaskState) -> None:
        """Record that a task waits for its inputs, and hold it."""
        pool.unfinished.add(ts)
        if not self.control.has(ts):
            # `Scheduler.set_restrictions` may have changed them since.
            pool.tasks[ts] = self.control.given(ts)
        if self._pools.holding.on:
            self.control.hold(ts, pool.tasks.get(ts))

    def _done(self, pool: Pool, ts: TaskState) -> None:
        """Record that a task is in memory, has failed or was released."""
        pool.unfinished.discard(ts)
        self.control.restore(ts, pool.tasks.get(ts))
        if not pool.unfinished:
            pool.left_at = monotonic()

    def seceded(self, key: Any) -> None:
        """Free the slot of a task that seceded, and charge its job for the time until now."""
        pool = self.owner.get(key)
        if pool is not None:
            ts = self.scheduler.tasks[key]
            sent = self.slots.get(ts)
            used = monotonic() - sent.start if sent is not None and sent.start is not None else 0.0
            if key in self.charged_until:
                used = 0.0  # its reports were charged
            self.seceded_at[key] = time(), used
            self._left_slot(pool, ts, used)
        known = self.scheduler.tasks.get(key)
        self._freed(known.processing_on.address if known and known.processing_on else None)

    def charge_part(self, pool: Pool, ts: TaskState, seconds: float, until: float | None) -> None:
        """Charge the core-seconds that a task has reported to have computed.

        Parameters
        ----------
        pool : Pool
        ts : distributed.scheduler.TaskState
        seconds : float
        until : float or None
            Unix time of the report; None if the task waits from then on.
        """
        self.charged_until[ts.key] = until
        pool.charge(seconds)
        self._charge(pool.name, seconds, pool.demand)

    def rested(self, ts: TaskState) -> None:
        """Free the thread of a task that waits in a report."""
        pool, ws = self.owner.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.rest(ts):
            self._left_slot(pool, ts, 0.0)
            self._freed(ws.address)

    def resumed(self, ts: TaskState) -> None:
        """Take a thread for a task that goes on after it waited in a report."""
        pool, ws = self.owner.get(ts.key), ts.processing_on
        if pool is not None and ws is not None and self.control.resume(ts):
            pool.passed.setdefault(ws.address, set()).add(ts)
            self.slots.changed.add(ws.address)

    @contextlib.contextmanager
    def moving(self, key: Any) -> Iterator[None]:
        """Wrap the answer of a worker to a request to move a task to another worker.

        If the task moves, it keeps its rank among the tasks that were sent through slots.
        """
        ts = self.scheduler.tasks.get(key)
        before = ts.processing_on if ts is not None else None
        pool = self.owner.get(key)
        if ts is None or before is None or pool is None:
            yield
            return
        if ts in self.slots:
            with self.control.ranked(ts, monotonic()):
                yield
        else:
            yield
        after = ts.processing_on
        if after is None or after is before:
            return
        if ts in self.slots:
            self.slots.relocated(ts, after)
            self.control.moved(ts, after)
            reason = "granted" if after.address in pool.workers else "lent"
            self._pools.bindings.append(Binding(time(), ts.key, pool.name, after.address, reason))
        else:
            self._discard_passed(pool, ts)
            pool.passed.setdefault(after.address, set()).add(ts)
        self.wakeups.look_at |= {before.address, after.address}
        self.wakeups.soon()

    def _freed(self, worker: str | None) -> None:
        if worker is None:
            self.wakeups.look_at.update(self.scheduler.workers)
        else:
            self.wakeups.look_at.add(worker)
            self.slots.thread_freed(worker)
            ws = self.scheduler.workers.get(worker)
            if ws is not None and not self.slots.is_low(ws):
                return
        self.wakeups.soon()

    def _ready(self, pool: Pool, ts: TaskState) -> None:
        """File a ready task in its pool."""
        if not pool.ready and not pool.running:
            threads = self.scheduler.total_nthreads
            self._pools.queueing.is_back(pool, self._pools.pools.values(), threads)
        pool.push(self._pools.dispatcher.homes.entry(pool, ts, pool.tasks[ts], next(self._count)))
        self.wakeups.soon()

    def _started(self, pool: Pool, ts: TaskState) -> None:
        ws = ts.processing_on
        assert ws is not None, f"{ts} is processing on no worker"
        self.slots.changed.add(ws.address)
        choice = self._pools.filling.sending
        if choice is None or choice.entry.ts is not ts:
            pool.passed.setdefault(ws.address, set()).add(ts)
            self._pools.bindings.append(Binding(time(), ts.key, pool.name, ws.address, "passed"))
            return
        expected = self._pools.dispatcher.homes.expected(ts, choice.entry.like)
        self.slots.sent(ts, ws, pool, choice.entry, choice.rank)
        self._pools.queueing.sent(pool)
        if not choice.entry.homes:
            pool.sent_homeless(ws, self.scheduler.total_nthreads)
        pool.running[ts] = expected
        pool.charge(expected)
        self._pools.bindings.append(Binding(time(), ts.key, pool.name, ws.address, choice.reason))

    def _ended(self, pool: Pool, ts: TaskState, startstops: Iterable[Any]) -> None:
        (left, charged), seconds = self.seceded_at.pop(ts.key, (math.inf, 0.0)), 0.0
        if ts.key in self.charged_until:
            since = self.charged_until.pop(ts.key)
            stops = [run["stop"] for run in startstops if run["action"] == "compute"]
            if since is not None and stops:
                seconds = max(stops[-1] - since, 0.0)
            at_once = pool.demand
            self._left_slot(pool, ts, seconds)
            self._charge(pool.name, seconds, at_once)
            return
        # A key that is computed again on the same worker brings its earlier runs along.
        for run in reversed(list(startstops)):
            if run["action"] == "compute":
                seconds = max(min(run["stop"], left) - run["start"], 0.0)
                pool.durations.observe(self._like(pool, ts), seconds)
                break
        at_once = pool.demand
        self._left_slot(pool, ts, seconds - charged)
        self._charge(pool.name, seconds, at_once)

    def _like(self, pool: Pool, ts: TaskState) -> Like:
        """Return the compute times of tasks similar to one that was sent to a worker."""
        sent = self.slots.get(ts)
        return pool.durations.like(ts) if sent is None else sent.entry.like

    def _left_slot(self, pool: Pool, ts: TaskState, seconds: float) -> None:
        """Free the slot of a task, and charge `seconds` instead of its expected time."""
        self.slots.ended(ts)
        pool.charge(seconds - pool.running.pop(ts, 0.0))
        if pool.passed:
            self._discard_passed(pool, ts)
        if not (pool.running or pool.ready):
            pool.left_at = monotonic()

    def _discard_passed(self, pool: Pool, ts: TaskState) -> None:
        for address, tasks in list(pool.passed.items()):
            tasks.discard(ts)
            if not tasks:
                del pool.passed[address]
