"""Tracking of tasks that wait in the queue of Dask's scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import undo
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.seam import is_direct
from dask_slaq.scheduler.pools.task_control import Sending
from dask_slaq.scheduler.pools.tracker import NO_GANGS, TaskTracker

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.dispatch import Choice, Entry


class QueueTracker(TaskTracker):
    """Follows the transitions of all tasks, and is told of those that come to the queue."""

    wakeups: Any  # a `Filling`

    def is_queued(self, ts: TaskState) -> bool:
        """Return whether a ready task is to wait in the queue: it is held, and has a pool.

        If no worker could run it, Dask is to see that.
        """
        if not self.holding or ts.key not in self.owner or ts.key in self.away:
            return False
        if not self.is_held(ts):
            return False
        if ts.worker_restrictions or ts.resource_restrictions or ts.host_restrictions:
            return bool(self.scheduler.valid_workers(ts))
        return True

    def came(self, ts: TaskState, rootish: bool) -> None:
        """File a task that has come to the queue; Dask itself would queue one that is `rootish`."""
        key, _, direct = self._asked
        direct = direct if key == ts.key else is_direct(ts)
        self._ready(self.owner[ts.key], ts, direct=direct, rootish=rootish)
        self.control.lay_aside(ts)

    def left(self, ts: TaskState) -> None:
        """Follow a task that leaves the queue, sent or not."""
        self.control.give_back(ts)
        if (pool := self.owner.get(ts.key)) is not None:
            self._not_ready(pool, ts)

    def send_one(self, choice: Choice) -> bool:
        """Send a task to the worker that was chosen for it. Returns whether it is there."""
        pool, ts, sent = choice.pool, choice.entry.ts, choice.sent
        assert isinstance(pool, Pool)
        owner = self.owner[ts.key]
        if owner is not pool:  # the job that waits for it pays for it
            self._part(ts, pool)
            pool.adopt(ts)
            sent.why = f"{sent.why}; submitted by {owner.name}"
        if self.gangs is not NO_GANGS and (gang := self.gangs.of(ts)) is not None:
            gang.closed = True
        sent.order = (*choice.key[:-1], next(self._count))
        self._sending[ts] = choice
        ws = self.scheduler.workers[choice.address]
        self.control.give_back(ts)
        bound = choice.entry.kind.allowed is not None and not ts.worker_restrictions
        theirs = frozenset() if bound else pool.workers
        self.control.send_one(Sending(ts, ws, theirs, sent.order), f"{pool.name}: {sent.why}")
        if self._sending.pop(ts, None) is None:
            return True
        waits = ts.state in self.control.WAITING and self.is_held(ts)
        undo(self._order, choice, listed=waits and ts not in pool.ready)
        return False

    def _wake_for(self, entry: Entry) -> None:
        """Fill slots soon, as a task has become ready."""
        if not entry.homes:
            for pool in self._index.sent_by_dask:  # it may overtake what Dask has sent there
                self.wakeups.look_at.update(pool.sent_by_dask)
        else:
            self.wakeups.look_at.update(entry.homes)
        self.wakeups.soon()

    def _freed(self, worker: str | None) -> None:
        """Look at a worker where a task has ended; at all if None."""
        if worker is None:
            self.wakeups.look_at.update(self.scheduler.workers)
        else:
            starts = self.sent.thread_freed(worker)
            if starts is not None:
                self._charge_ahead(starts)
                if self.holding and not self.wakeups.opens(worker):
                    return  # what was sent ahead has taken the thread
            self.wakeups.look_at.add(worker)
        self.wakeups.soon()
