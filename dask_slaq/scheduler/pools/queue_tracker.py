"""Tracking of tasks that wait in the queue of Dask's scheduler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dask_slaq.scheduler.pools.tracker import TaskTracker

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.core.dispatch import Entry


class QueueTracker(TaskTracker):
    """Follows the transitions of all tasks, and is told of those that come to the queue."""

    def is_queued(self, ts: TaskState) -> bool:
        """Return whether a ready task is to wait in the queue: it is held, and has a pool.

        If no worker could run it, Dask is to see that.
        """
        if not self.holding or ts.key in self.away or ts.key not in self.owner:
            return False
        if not self.is_held(ts):
            return False
        if ts.worker_restrictions or ts.resource_restrictions or ts.host_restrictions:
            return bool(self.scheduler.valid_workers(ts))
        return True

    def came(self, ts: TaskState) -> None:
        """File a task that has come to the queue."""
        self._ready(self.owner[ts.key], ts)
        self.control.lay_aside(ts)

    def left(self, ts: TaskState) -> None:
        """Follow a task that leaves the queue, sent or not."""
        self.control.give_back(ts)
        if (pool := self.owner.get(ts.key)) is not None:
            self._not_ready(pool, ts)

    def _wake_for(self, entry: Entry) -> None:
        """Fill slots soon, as a task has become ready."""
        if not entry.homes:
            for pool in self._index.sent_by_dask:  # it may overtake what Dask has sent there
                self.wakeups.look_at.update(pool.sent_by_dask)
        self.wakeups.soon()

    def _freed(self, worker: str | None) -> None:
        """Look at a worker where a task has ended; at all if None."""
        if worker is None:
            self.wakeups.look_at.update(self.scheduler.workers)
        else:
            self.wakeups.look_at.add(worker)
            starts = self.sent.thread_freed(worker)
            if starts is not None:
                self._charge_ahead(starts)
        self.wakeups.soon()
