"""Control of tasks: send them to workers, release them, count their threads.

No other module changes tasks or calls transitions.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Iterable
from time import time
from typing import Any
from weakref import WeakSet

from distributed.scheduler import Scheduler, TaskState, TaskStateState, WorkerState

from dask_slaq.core.dispatch import Handover, Way

logger = logging.getLogger(__name__)


class TaskControl:
    """Controller of the tasks of a scheduler."""

    #: States of tasks that are ready, but on no worker.
    WAITING = ("no-worker", "queued")

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler = scheduler
        # Task of a pool on which Dask decides: it asks for the worker of a queued task without
        # saying of which.
        self.current: Handover | None = None
        self.sent: dict[TaskState, Handover] = {}  # tasks that carry what we gave them
        # Restrictions of tasks in Dask's queue, whose validation allows none there.
        self._aside: dict[TaskState, tuple[Any, ...]] = {}
        # Deaths of workers that counted against the tasks that are excused, when this began.
        self.excused: dict[TaskState, int] = {}
        self.resumed: WeakSet[TaskState] = WeakSet()  # seceded ones that hold a thread again

    @staticmethod
    def recount_resources(ws: WorkerState) -> None:
        """Count anew what tasks hold of a worker's resources: Dask does not when it steals one."""
        for resource in ws.used_resources:
            needs = (ts.resource_restrictions or {} for ts in ws.processing)
            ws.used_resources[resource] = sum(each.get(resource, 0) for each in needs)

    def has(self, ts: TaskState) -> bool:
        """Return whether a task carries a restriction of this controller."""
        return ts in self.sent and ts.worker_restrictions is self.sent[ts].restricted

    def send(self, task: Handover, why: str) -> bool:
        """Send a held task to the worker that was chosen. Returns whether it is there."""
        ts = task.ts
        given, task.way = ts.priority, Way.GOES
        self.current = task
        try:
            self._transitions([ts], "processing", why)
        finally:
            if self.current is task:
                self.current = None
            ts.priority = given
        if task.way is Way.GOES:
            task.way = Way.WAITS
        if ts.processing_on is None:
            self.restore(ts)
        return ts.processing_on is not None

    def begin(self, task: Handover) -> None:
        """Prepare a task that Dask has just taken to be sent: with its turn, and restricted."""
        ts = task.ts
        if self._aside:
            self.give_back(ts)
        self.restrict(task)
        ts.priority = task.priority

    def lay_aside(self, ts: TaskState) -> None:
        """Take the user's restrictions off a task while it is in Dask's queue."""
        if ts.worker_restrictions or ts.resource_restrictions or ts.host_restrictions:
            self._aside[ts] = (
                ts.worker_restrictions, ts.resource_restrictions, ts.host_restrictions,
                ts.loose_restrictions,
            )  # fmt: skip
            ts.worker_restrictions = ts.resource_restrictions = ts.host_restrictions = None
            ts.loose_restrictions = False

    def give_back(self, ts: TaskState) -> None:
        """Restore the user's restrictions of a task that leaves Dask's queue."""
        if self._aside and (given := self._aside.pop(ts, None)) is not None:
            (
                ts.worker_restrictions, ts.resource_restrictions, ts.host_restrictions,
                ts.loose_restrictions,
            ) = given  # fmt: skip

    def restrict(self, task: Handover) -> None:
        """Restrict a task that is sent to where it may run: of its job's workers, or its own.

        On the worker lower orders compute first, before all tasks that were not sent.
        """
        ts, user, worker = task.ts, task.ts.worker_restrictions, task.worker
        allowed = task.workers if task.workers is not None else task.pool.granted.planned
        if user is not None:
            allowed = allowed & frozenset(user)
        elif task.constraints.allowed is not None:
            allowed = frozenset()  # it is bound by its inputs
        if worker not in allowed:
            allowed |= {worker}
        self.sent[ts] = task
        task.restricted, task.users = allowed, (user, ts.loose_restrictions)
        # Any: Dask's annotation asks for a `set`, which it only reads.
        restricted: Any = allowed
        ts.worker_restrictions, ts.loose_restrictions = restricted, False
        # Before all other tasks of a worker, whose priorities begin with the user's, negated.
        task.priority = -(2.0**62), *task.order, *(ts.priority or ())

    def give_priority(self, ts: TaskState) -> None:
        """Give a task that was sent the priority with which it was sent, until `take_priority`.

        Not for longer than needed: Dask derives the priority of what it submits from its own.
        """
        task = self.sent.get(ts)
        if task is not None and task.own_priority is None:
            task.own_priority, ts.priority = ts.priority, task.priority

    def take_priority(self, ts: TaskState) -> None:
        """Restore the priority of a task."""
        task = self.sent.get(ts)
        if task is not None and task.own_priority is not None:
            ts.priority, task.own_priority = task.own_priority, None

    def cancel(self, tasks: Iterable[TaskState]) -> None:
        """Cancel tasks, and what waits for them, for all clients that want any of these.

        Dask's own cancel raises for a task that waits for these and that no client wants.
        """
        by_client: dict[str, list[Any]] = {}
        found = dict.fromkeys(tasks)
        last = list(found)
        while last:
            last = [each for ts in last for each in ts.waiters or () if each not in found]
            found.update(dict.fromkeys(last))
        for ts in found:
            for client in ts.who_wants or ():
                by_client.setdefault(client.client_key, []).append(ts.key)
        why = {"reason": "stopped", "msg": "Its job was stopped before it could start."}
        if "reason" not in inspect.signature(self.scheduler.stimulus_cancel).parameters:
            why = {}  # older Dask
        for name, keys in by_client.items():
            self.scheduler.client_releases_keys(keys, name, f"slaq-stopped-{time()}")
            self.scheduler.report({"op": "cancelled-keys", "keys": keys, **why}, client=name)

    def fill(self) -> None:
        """Have Dask look at its queue: it does not when a task gives itself back."""
        self.scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=f"slaq-fill-{time()}")

    def annotate(self, ts: TaskState, name: str, value: Any) -> None:
        """Set an annotation of a task, which its next run sees."""
        ts.annotations = {**(ts.annotations or {}), name: value}

    def restore(self, ts: TaskState) -> None:
        """Restore the user's restrictions of a task that was sent."""
        task = self.sent.get(ts)
        if task is None:
            return
        if task.own_priority is not None:
            self.take_priority(ts)
        del self.sent[ts]
        if ts.worker_restrictions is task.restricted and task.users is not None:
            ts.worker_restrictions, ts.loose_restrictions = task.users
        task.restricted = task.users = task.priority = None

    def restore_all(self) -> None:
        """Restore the user's restrictions of all tasks that were sent."""
        for ts in list(self.sent):
            self.restore(ts)

    def excuse(self, ts: TaskState) -> None:
        """Forgive from now on that a task's worker dies, because it only waits there."""
        self.excused.setdefault(ts, ts.suspicious)

    def blame(self, ts: TaskState) -> None:
        """Let deaths of its worker count against a task again; those since `excuse` do not.

        Dask counts a death against every task on the worker, fails those with too many, and has no
        hook before that.
        """
        before = self.excused.pop(ts, None)
        if before is not None:
            ts.prefix.suspicious -= ts.suspicious - before
            ts.suspicious = before

    def rest(self, ts: TaskState) -> bool:
        """Count a task that waits in a report as seceded. Returns whether it was not, before."""
        ws = ts.processing_on
        if ws is None or ts in ws.long_running:
            return False
        ws.add_to_long_running(ts)
        self.scheduler.check_idle_saturated(ws)
        self.scheduler.stimulus_queue_slots_maybe_opened(stimulus_id=f"slaq-rest-{time()}")
        return True

    def resume(self, ts: TaskState) -> bool:
        """Count a seceded task as one that holds a thread again. Returns whether it was seceded.

        Dask has no message for a thread that rejoined, and would send the worker another task.
        """
        ws = ts.processing_on
        if ws is None or ts not in ws.long_running:
            return False
        self.resumed.add(ts)
        ws.remove_from_processing(ts)
        ws.add_to_processing(ts)
        self.scheduler.check_idle_saturated(ws)
        return True

    def let_rest(self) -> None:
        """Count those that have resumed as seceded: their worker does not say it a second time."""
        for ts in list(self.resumed):
            self.rest(ts)

    def allowed(self, ts: TaskState) -> set[WorkerState] | None:
        """Return the running workers on which the user allows a task; None for all."""
        mine = ts.worker_restrictions, ts.loose_restrictions
        if self.has(ts) and (users := self.sent[ts].users) is not None:
            ts.worker_restrictions, ts.loose_restrictions = users
        try:
            return None if ts.loose_restrictions else self.scheduler.valid_workers(ts)
        finally:
            ts.worker_restrictions, ts.loose_restrictions = mine

    def release(self, tasks: Iterable[TaskState], why: str) -> None:
        """Release tasks that are ready but on no worker, so that Dask decides on them again."""
        self._transitions([ts for ts in tasks if ts.state in self.WAITING], "released", why)

    def _transitions(self, tasks: Iterable[TaskState], finish: TaskStateState, why: str) -> None:
        recommendations: dict[Any, TaskStateState] = {ts.key: finish for ts in tasks}
        if not recommendations:
            return
        try:
            self.scheduler.transitions(recommendations, stimulus_id=f"slaq: {why} ({time()})")
        except Exception:
            # Dask's own bookkeeping can fail, such as that of occupancies after a restart.
            logger.warning("a transition to %s failed in Dask's scheduler", finish, exc_info=True)
            self.current = None  # what was to be sent is held again
            self._repeat(recommendations)

    def _repeat(self, recommendations: dict[Any, TaskStateState]) -> None:
        """Repeat transitions that Dask interrupted with an error.

        The error lost messages to workers, so tasks that have become ``processing`` would never
        run. They are released, which sends them again. The other transitions are repeated.
        """
        again: dict[Any, TaskStateState] = {}
        for key, finish in recommendations.items():
            ts = self.scheduler.tasks.get(key)
            if ts is not None and ts.state == "queued" and ts not in self.scheduler.queued:
                self.restore(ts)  # it had left the queue when Dask failed
                self.scheduler.queued.add(ts)
            if ts is not None and ts.state == "processing":
                again[key] = "released"
            elif ts is not None and ts.state in ("no-worker", "queued", "released"):
                again[key] = "waiting" if ts.state == "released" else finish
        try:
            self.scheduler.transitions(again, stimulus_id=f"slaq: again ({time()})")
        except Exception:
            logger.error("Dask's scheduler failed again; tasks may hang", exc_info=True)
