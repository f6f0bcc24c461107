"""Choice of ready tasks for workers with slots: the first job in order that has a task for one.

A job's tasks wait in one heap per constraints and preferred worker, which has their inputs.
Another worker costs the time to move these: a task waits for a preferred one for as long as that
is expected to be sooner. Nothing is sent or charged here: whoever asks sends each choice before
the next one.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, islice, product
from typing import Any

from dask_slaq.core.dispatch.cluster import Cluster, Pinned
from dask_slaq.core.dispatch.constants import MOST_COMPARED, SHORT_SECONDS
from dask_slaq.core.dispatch.job_queue import ENTITLED, Handover, JobQueue, Key
from dask_slaq.core.dispatch.order import Order
from dask_slaq.core.dispatch.ready import ANY, Ready
from dask_slaq.core.dispatch.slot_rules import SlotRules
from dask_slaq.core.dispatch.slots import Slots

#: Why a job is served, by the class of its key.
TURNS = (
    *("it is owed core-seconds", "its owner is owed", "it is below its share", "its turn"),
    "over its cap",
)


class Dispatcher:
    """Chooser of tasks for workers with slots, or with one in less than `prefetch` seconds."""

    def __init__(self, order: Order, cluster: Cluster, prefetch: float) -> None:
        self.order, self.cluster, self.prefetch = order, cluster, prefetch
        self.free: dict[str, Slots] = {}  # workers with a free thread
        self.soon: dict[str, Slots] = {}  # workers where a task would start soon
        self.has_kept_slots = False  # whether slots were kept for a job that is about to come back
        self.opens_in: dict[Slots, float] = {}  # seconds, of workers that were closed, if known
        self._now, self._in_sets = 0.0, False
        self._rules = SlotRules(order, cluster, prefetch)
        self._may = self._rules.may

    # Workers

    def look(self, slots: Slots, now: float) -> None:
        """Open a worker, or close it."""
        address = slots.address
        if slots.load < slots.nthreads:
            self.free[address] = slots
            self.soon.pop(address, None)
            return
        self.free.pop(address, None)
        seconds = slots.opens_in(now, self.prefetch)
        if not seconds:
            self.soon[address] = slots
            return
        self.soon.pop(address, None)
        if seconds < math.inf:
            self.opens_in[slots] = seconds

    def close(self, address: str) -> None:
        """Send no more tasks to a worker, until it is looked at."""
        self.free.pop(address, None)
        self.soon.pop(address, None)

    def _open(self) -> Iterator[Slots]:
        return chain(self.free.values(), self.soon.values())

    def _at(self, address: str) -> Slots | None:
        return self.free.get(address) or self.soon.get(address)

    # Jobs

    def choices(self, now: float) -> Iterator[Handover]:
        """Yield choices until slots or tasks run out: first for workers that have the inputs."""
        self._now, self.has_kept_slots, waiting = now, False, self.order.waiting
        if not (waiting.pools and (self.free or self.soon)):
            return
        self._rules.begin(now)
        pinned = self.cluster.pinned(now)
        # Strict sets come first; what nobody there can use is granted to others.
        for in_sets in (False,) if self.order.lend else (True, False):
            self._in_sets = in_sets
            yield from self._serve(self._near(pinned), pinned)
            # Only a free thread, or a task without a preferred worker, gains by moving inputs.
            if waiting.pools and (self.free or (self.soon and "" in waiting.at)):
                yield from self._serve(list(waiting.pools), None)

    def _near(self, pinned: Mapping[JobQueue, Any]) -> Collection[JobQueue]:
        """Return the jobs that may have a task for an open worker without moving its inputs."""
        index = self.order.waiting
        together = (pool for pool in index.pools if pool.gang)
        at, found = index.at, dict.fromkeys((*index.sent_by_dask, *together, *pinned))
        found.update(at.get("", ()))
        if len(self.free) + len(self.soon) < len(at):
            for address in chain(self.free, self.soon):
                found.update(at.get(address, ()))
        else:
            for address, pools in at.items():
                if address in self.free or address in self.soon:
                    found.update(pools)
        return found

    def _serve(
        self, pools: Collection[JobQueue], pinned: Mapping[JobQueue, Sequence[Pinned]] | None
    ) -> Iterator[Handover]:
        """Serve jobs in turn, one task per turn: on preferred workers, if `pinned` is given."""
        order, now, moves = self.order, self._now, pinned is None
        before: Mapping[JobQueue, Key] = {}
        queue: list[tuple[Key, int, JobQueue]] = []

        def in_order(pool: JobQueue) -> Key | None:
            key = order.key(pool, now)
            return key if key is None or pool not in before else min(key, before[pool])

        rank: Callable[[JobQueue], Key | None] = partial(order.key, now=now)
        for pool in pools:
            if pool.prioritized and not before:
                before, rank = order.before(pools, now), in_order
        for i, pool in enumerate(pools):
            key = rank(pool)
            if key is not None:
                queue.append((key, i, pool))
        heapq.heapify(queue)
        while queue and (self.free or self.soon):
            key, i, pool = heapq.heappop(queue)
            if self._in_sets and key.standing > ENTITLED:
                return
            if self._in_sets and pool.gang:
                continue  # its tasks start together, in its set and outside
            self._rules.in_sets = self._in_sets and key.entitled
            if pool.group is not None and (newer := rank(pool)) != key:
                if newer is not None:  # another job of its owner was served meanwhile
                    heapq.heappush(queue, (newer, i, pool))
                continue
            if pool.sent_by_dask and not moves:
                self._leave_backlogs(pool)
            if pinned and pool in pinned:
                yield from self._start_pinned(pool, key, pinned[pool])
            if not pool.filed:
                continue
            if pool.gang and not pool.running:
                if self._rules.must_wait_for_labels(pool):
                    continue
                free, threads = self.cluster.idle(pool.filed)
                if free < min(len(pool.ready), threads):
                    return  # keep all slots until there are enough for the gang
                yield from self._start_together(pool, key)
            found = self._choose(pool, moves) if pool.filed else None
            if found is None:
                continue
            task, slots, where = found
            if self._is_kept_from(pool, task, slots):
                self.has_kept_slots = True
                continue
            yield self._take(pool, task, slots, key, f"{TURNS[key.standing]}: {where}")
            self.look(slots, now)
            if pool.ready and (again := rank(pool)) is not None:
                heapq.heappush(queue, (again, i, pool))

    def _take(
        self, pool: JobQueue, task: Handover, slots: Slots, key: Key, why: str, threads: float = 0
    ) -> Handover:
        """Return a task to be sent to a worker; one of a gang uses some `threads` until it ends."""
        address, like = slots.address, task.like
        if address not in pool.granted.planned:
            why = f"lent, {why}" if self.order.lend else f"a grant moved: {why}"
        task.pool, task.worker, task.key, task.why = pool, address, key, why
        task.tag, task.needs, task.threads = (
            pool.service,
            task.constraints.resources or (),
            threads or 1.0,
        )
        task.expected = math.inf if threads else like.expected
        task.soonest = like.soonest
        task.entitled = key.standing == ENTITLED or pool.granted.most < 1
        return task

    def _leave_backlogs(self, pool: JobQueue) -> None:
        """Leave workers to tasks of a job that Dask has sent, and that wait: it is their turn."""
        for address in list(pool.sent_by_dask):
            slots = self.soon.get(address)
            if slots is not None and slots.has_backlog:
                del self.soon[address]

    # Tasks that start together

    def _start_pinned(
        self, pool: JobQueue, key: Key, gangs: Sequence[Pinned]
    ) -> Iterator[Handover]:
        """Choose all members of each gang of a job at once, or keep its workers until that fits."""
        for gang in gangs:
            members = [task for task, *_ in gang.members]
            if not self._rules.may_together(pool, members, sum(each[2] for each in gang.members)):
                continue
            places = {address for _, address, _ in gang.members}
            if all(address in self.free for address in places):
                at = {address: self.free[address] for address in places}
                why = f"its turn: all {len(members)} of its gang at once"
                for task, address, used in gang.members:
                    yield self._take(pool, task, at[address], key, why, used)
            for address in places:
                self.close(address)

    def _start_together(self, pool: JobQueue, key: Key) -> Iterator[Handover]:
        """Choose free threads for all ready tasks of a gang, or as many as can ever run.

        A task whose preferred worker is busy does not wait for it, since the others would
        hold their threads and wait for it. If a task finds no thread that it may take, they go one
        by one.
        """
        tasks = [
            task for task in pool.ready.values() if task in pool.filed.get(task.constraints, ())
        ]
        tasks = sorted(tasks, key=lambda task: task.rank)[: self.cluster.threads]
        if len(tasks) < 2 or not self._rules.may_together(pool, tasks, len(tasks)):
            return
        found = self._options(pool, tasks)
        if len(found) < len(tasks):
            return
        if self._is_kept_from(pool, tasks[0], found[0][1], more=len(found) - 1):
            self.has_kept_slots = True
            return
        for task, slots, where in found:
            yield self._take(pool, task, slots, key, f"all at once: {where}")
            self.look(slots, self._now)

    def _options(
        self, pool: JobQueue, tasks: Iterable[Handover]
    ) -> list[tuple[Handover, Slots, str]]:
        """Return a free thread for each of some tasks, or fewer."""
        free = {address: slots.free for address, slots in self.free.items()}
        found: dict[Any, tuple[Handover, Slots, str]] = {}
        taken: Counter[tuple[str, str]] = Counter()  # of each worker's resources
        for at_preferred, task in product((True, False), tasks):
            if task.ts in found:
                continue
            needs = task.constraints.resources or ()
            for a in task.preferred if at_preferred else sorted(free, key=lambda a: (-free[a], a)):
                slots = self.free.get(a)
                if slots is None or not free.get(a) or not self._may(pool, task, slots):
                    continue
                left = {r: slots.resources[r] - slots.used_resources.get(r, 0) for r, _ in needs}
                if all(left[r] - taken[a, r] >= needed for r, needed in needs):
                    where = "has its inputs" if at_preferred else "a thread is free"
                    found[task.ts] = task, slots, where
                    free[a] -= 1
                    taken.update({(a, r): needed for r, needed in needs})
                    break
        return list(found.values())

    # One task

    def _choose(self, pool: JobQueue, moves: bool) -> tuple[Handover, Slots, str] | None:
        """Return the job's first task, in Dask's order, that may take a slot, and why there."""
        best: tuple[Handover, Slots, str] | None = None
        least: tuple[Any, ...] = ()
        for constraints, ready in pool.filed.items():
            if constraints.label is not None and not self.cluster.free(constraints.label):
                continue
            for slots in list(islice(self._preferred(ready), MOST_COMPARED)):
                task = ready.at(slots.address)
                if task is None:
                    continue
                rank = *task.rank, slots.load >= slots.nthreads, slots.load / slots.nthreads
                if (best is None or rank < least) and self._may(pool, task, slots):
                    best, least = (task, slots, "has its inputs"), rank
            task = ready.at()
            if task is None or (best is not None and least < task.rank):
                continue
            if task.rootish and not moves and self._yields(ready):
                continue
            if (found := self._least_loaded(pool, task, moves)) is not None:
                best, least = (task, found, "any worker will do"), task.rank
        if best is None and moves and self.free:
            for constraints, ready in pool.filed.items():
                if constraints.label is None or self.cluster.free(constraints.label):
                    moved = self._moved(pool, ready)
                    if moved is not None and (best is None or moved[0].rank < best[0].rank):
                        best = moved
        return best

    def _preferred(self, ready: Ready[Handover]) -> Iterator[Slots]:
        """Yield the open workers that are preferred by a task."""
        preferred, at = ready.preferred, self._at
        if len(preferred) < len(self.free) + len(self.soon):
            return (slots for address in list(preferred) if (slots := at(address)) is not None)
        return (slots for slots in self._open() if slots.address in preferred)

    def _yields(self, ready: Ready[Handover]) -> bool:
        """Return whether a job loads no more while its data waits where it is, if others wait."""
        return len(ready) > ready.count_at[""] and len(self.order.waiting.pools) > 1

    def _least_loaded(self, pool: JobQueue, task: Handover, moves: bool) -> Slots | None:
        """Return a worker for a task that prefers none: with a free thread, and little of its job.

        While many jobs compete, only a few workers have a slot at a time. All data of a job would
        be made there, and the tasks that need it would follow. So another job may take the slot,
        unless the owner is owed threads, or it stays free for a worker with less that opens soon.
        """
        made, most = pool.made_at, math.inf
        spread = math.inf  # tasks without a preferred worker per thread, if they were everywhere
        owed = pool.group is not None and pool.group.lag > 0
        others = len(self.order.waiting.pools) > 1
        if made and task.loads and others and not owed and task.constraints is ANY:
            most = spread = sum(made.values()) / self.cluster.threads + 1
            late = self._now - pool.kept_since >= SHORT_SECONDS  # others took what opened
            if moves and (late or not self._opens_soon(made, most)):
                most = math.inf
        best: Slots | None = None
        least: tuple[bool, float, bool] | None = None
        for looked, slots in enumerate(self._open()):
            if best is not None and looked >= MOST_COMPARED:
                break
            there = made.get(slots.address, 0.0) / slots.nthreads
            rank = (slots.load >= slots.nthreads, there, slots.address not in pool.granted.planned)
            if there <= most and (least is None or rank < least) and self._may(pool, task, slots):
                best, least = slots, rank
        if best is not None and made.get(best.address, 0.0) / best.nthreads <= spread:
            pool.kept_since = math.inf
        elif best is None and moves and most < math.inf:
            pool.kept_since = min(pool.kept_since, self._now)
            self.has_kept_slots = True
        return best

    def _opens_soon(self, made: Mapping[str, float], most: float) -> bool:
        """Return whether a busy worker with at most that much data per thread opens soon."""
        return any(
            made.get(slots.address, 0.0) / slots.nthreads <= most
            and slots.next_end(self._now) <= SHORT_SECONDS
            for slots in islice(self.cluster.busy(), MOST_COMPARED)
        )

    def _moved(self, pool: JobQueue, ready: Ready[Handover]) -> tuple[Handover, Slots, str] | None:
        """Return a task that waits longer for a preferred worker than for its inputs to move."""
        free = list(islice(self.free.values(), MOST_COMPARED))
        count = ready.count_at
        for here in heapq.nlargest(
            MOST_COMPARED, ready.preferred, key=lambda here: (count[here], here)
        ):
            task = ready.at(here) if here else None
            if task is None:
                continue
            there = (self.cluster.slots(a) for a in task.preferred)
            waits = min(
                (self._wait(each, task, ready) for each in there if each is not None),
                default=math.inf,
            )
            inputs = self.cluster.inputs(task)
            # Most workers have none of its inputs, and would have to fetch all.
            if inputs.seconds >= waits and not any(s.address in inputs.at for s in free):
                continue
            for slots in free:
                some = slots.address in inputs.at
                seconds = inputs.to_fetch(slots.address) if some else inputs.seconds
                if seconds < waits and self._may(pool, task, slots):
                    busy = f"busy for {waits:.2g} s" if waits < math.inf else "not available"
                    return (
                        task,
                        slots,
                        f"moved, {1000 * seconds:.2g} ms to fetch, its worker {busy}",
                    )
        return None

    def _wait(self, slots: Slots, task: Handover, ready: Ready[Handover]) -> float:
        """Return the seconds until a task may start on a preferred worker, after others."""
        expected = task.like.mean if task.like.mean < math.inf else 0.0
        seconds, threads = self.next_end(slots, self._now), float(slots.nthreads)
        for resource, needed in task.constraints.resources or ():
            threads = min(threads, slots.resources.get(resource, 0) / needed if needed else threads)
        if not task.constraints.suits(slots):
            seconds = max(seconds, slots.resource_free_in(self._now))
        return seconds + (ready.count_at[slots.address] - 1) * expected / max(threads, 1.0)

    def next_end(self, slots: Slots, now: float) -> float:
        """Return the seconds until a worker has a free thread, by Dask's guess if unknown."""
        if slots.has_thread:
            return 0.0
        left = slots.next_end(now)
        return left if left < math.inf else self.cluster.occupancy(slots.address) / slots.nthreads

    def _is_kept_from(self, pool: JobQueue, task: Handover, slots: Slots, more: int = 0) -> bool:
        """Return whether a slot is kept for a job that is about to have a ready task again.

        `more` is the number of slots that are taken together with it.
        """
        if not self._rules.coming:
            return False
        end = self.next_end(slots, self._now)
        kept = self._rules.kept_from(pool, task.like.mean, slots.address, end)
        there = sum(max(each.nthreads - each.load, 1) for each in self._open()) if kept else 0
        return kept > 0 and kept >= there - more
