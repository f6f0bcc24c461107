"""Rules by which a task may take a slot: limits of owners and labels, worker sets, resources.

Slots are also kept for iterative jobs which are about to have a ready task again.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection

from dask_slaq.core.dispatch.cluster import Cluster
from dask_slaq.core.dispatch.constants import BACK_SECONDS, SLACK_SECONDS
from dask_slaq.core.dispatch.job_queue import Group, Handover, JobQueue
from dask_slaq.core.dispatch.order import Order
from dask_slaq.core.dispatch.ready import ANY
from dask_slaq.core.dispatch.slots import Slots


class SlotRules:
    """Rules by which tasks may take slots, `prefetch` seconds before they are free."""

    def __init__(self, order: Order, cluster: Cluster, prefetch: float) -> None:
        self._order, self._cluster, self._prefetch = order, cluster, prefetch
        self.in_sets = False  # whether jobs take the threads of their worker sets only
        self._now = 0.0
        self._at_limit: set[Group] = set()  # that have tasks, and are owed threads
        self.coming: Collection[JobQueue] = ()  # jobs that are about to have ready tasks

    def begin(self, now: float) -> None:
        """Begin choices at a time `now`: find owners that are owed threads, and at their limit."""
        self._now, waiting = now, self._order.waiting
        self.coming = self._order.coming(now) if waiting.coming else ()
        pools = waiting.pools
        if next(iter(pools)).group is not None or self._at_limit:
            groups = {pool.group for pool in pools if pool.group is not None}
            self._at_limit = {full for group in groups if group.lag > 0 for full in group.full()}

    def may(self, pool: JobQueue, task: Handover, slots: Slots) -> bool:
        """Return whether a task may take a slot of a worker."""
        constraints, group = task.constraints, pool.group
        if group is not None and not (
            group.may_start() and group.supplies(constraints.resources or ())
        ):
            return False
        if self.in_sets and slots.address not in pool.granted.planned:
            return False
        if slots.load >= slots.nthreads and (
            pool.gang  # the others of it would wait for this one
            or pool.name in slots.taken
            or self._is_left(task, slots)
        ):
            return False
        if task.rootish and not task.like.is_trivial:
            # No more than Dask itself sends, so that memory does not fill up.
            waits = self._waits_for_resources(pool, slots)
            if slots.load + waits >= max(self._order.saturation * slots.nthreads, 1):
                return False
        if constraints is ANY or constraints.suits(slots):
            return True
        # One task may wait on the worker until the resource is free, which hides a round trip.
        soon = slots.resource_free_in(self._now) < self._prefetch
        return soon and not slots.blocked and constraints.allows(slots)

    def may_together(self, pool: JobQueue, tasks: Collection[Handover], threads: float) -> bool:
        """Return whether tasks may start together: under limits of their owner and labels."""
        group = pool.group
        if group is not None:
            needs: Counter[str] = Counter()
            for task in tasks:
                needs.update(dict(task.constraints.resources or ()))
            if not (group.may_start(threads) and group.supplies(needs.items())):
                return False
        labels = Counter(
            task.constraints.label for task in tasks if task.constraints.label is not None
        )
        return all(count <= self._cluster.free(label) for label, count in labels.items())

    def must_wait_for_labels(self, pool: JobQueue) -> bool:
        """Return whether ready tasks cannot start together now for labels, but can later."""
        ready: Counter[str] = Counter()
        for constraints, tasks in pool.filed.items():
            if constraints.label is not None:
                ready[constraints.label] += len(tasks)
        room, runs = self._cluster.free, self._cluster.runs
        return any(count > room(label) and runs(label) for label, count in ready.items())

    def kept_from(self, pool: JobQueue, mean: float, address: str, end: float) -> int:
        """Return how many slots are kept from tasks of a job, of this `mean` duration.

        A thread of the worker at an `address` is free in `end` seconds. An iterative job has no
        ready task for a moment between two iterations. If its slots were taken by long tasks
        meanwhile, it would wait until these end (anticipatory scheduling: Iyer and Druschel, SOSP
        2001).
        """
        if mean <= BACK_SECONDS:
            return 0
        kept = 0.0
        for other in self.coming:
            if other is pool or other.ready or not self._comes_before(other, pool):
                continue
            running = other.running.values()
            ends = max((sent.seconds_left(self._now) for sent in running), default=0.0)
            if ends <= end + 2 * BACK_SECONDS:
                due = other.gaps.width
                if other.granted.index != pool.granted.index:  # else it is to catch up
                    due = min(due, other.granted.share)
                kept += max(due - sum(sent.worker != address for sent in running), 0.0)
        return math.ceil(kept)

    def _comes_before(self, one: JobQueue, other: JobQueue) -> bool:
        if other.account.is_limit:  # each has the tokens of its share
            return False
        if one.on_spare != other.on_spare:
            return other.on_spare
        if one.granted.index == other.granted.index:
            behind = SLACK_SECONDS * self._cluster.threads / 2 / (one.weight + other.weight)
            return one.service + behind < other.service
        # Four times as high: a slot that is kept stands idle.
        return one.granted.index > 4.0 * max(other.granted.index, 0.0) and one.granted.share >= 1

    def _is_left(self, task: Handover, slots: Slots) -> bool:
        """Return whether the next free thread of a worker is left to an owner at its limit.

        A task of the owner computes there. Its next task can only start on that thread, and must
        not find it taken.
        """
        if not self._at_limit or task.like.mean <= BACK_SECONDS:
            return False
        groups = (sent.pool.group for sent in slots.tasks.values() if sent.pool.group is not None)
        return any(not self._at_limit.isdisjoint(group.line()) for group in groups)

    def _waits_for_resources(self, pool: JobQueue, slots: Slots) -> int:
        """Return how many tasks of a job Dask would let wait on a worker for a resource.

        It would send them there as soon as they are ready, and those that prefer none anywhere.
        What the owner may have no more of now does not count.
        """
        waits, group = 0, pool.group
        for constraints, ready in pool.filed.items():
            if constraints.resources and (group is None or group.supplies(constraints.resources)):
                at = ready.count_at
                waits += at[slots.address] + at[""] // self._cluster.workers
        return waits + slots.blocked if waits else 0
