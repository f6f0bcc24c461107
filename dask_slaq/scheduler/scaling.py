"""Numbers of workers: how many jobs may use, and which hold data of a job that computes.

Dask counts every waiting task as demand, also those that no worker may run: tasks of paused jobs,
and above the limits of jobs and owners. Between two iterations it closes workers with a job's data.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any

from distributed import Scheduler
from distributed.scheduler import WorkerState

from dask_slaq.core.dispatch import Group
from dask_slaq.scheduler.by_value import ByValue, group_of
from dask_slaq.scheduler.current import registered_plugin
from dask_slaq.scheduler.hooks import guarded_as, replace
from dask_slaq.scheduler.pools import Pool, Pools

logger = logging.getLogger(__name__)

#: States of tasks that run, or could on a further worker.
RUNNABLE = ("processing", "queued", "no-worker")


class Scaling:
    """Caps Dask's adaptive target to what jobs can use. Errors leave the target unchanged.

    `reports` has the number of reports of each job; data of those that have computed or reported in
    the last `keep` seconds keeps workers. With `by_value` the number of workers is what pays,
    whatever Dask's target is, and these are the ones that are given back.
    """

    def __init__(
        self,
        pools: Pools,
        reports: Mapping[str, int],
        keep: float,
        is_active: Callable[[], bool],
    ) -> None:
        self.by_value: ByValue | None = None
        self._pools, self._reports, self._keep, self._is_active = pools, reports, keep, is_active
        self._seen: dict[str, tuple[Any, float]] = {}  # by job: its progress, and since when
        self.failed = False  # whether Dask's own numbers were used because of an error

    @guarded_as(always=True, otherwise=lambda self, target: target)
    def limit(self, target: int) -> int:
        """Return the number of workers to ask for instead of `target`, which is Dask's."""
        if self.by_value is not None and self._is_active():
            return self.by_value.target()
        if not self._active:
            return target
        self.busy()
        return self._limited(target)

    @guarded_as(always=True, otherwise=lambda self, workers: workers)
    def closable(self, workers: list[WorkerState]) -> list[WorkerState]:
        """Return the workers that may be closed: without data of a job that computes.

        Clusters close all workers of a batch job at once, so if one has to stay, all do.
        """
        if self.by_value is not None and self._is_active():
            found = self.by_value.closable(workers)
        elif not self._active:
            return workers
        else:
            busy, owner = self.busy(), self._pools.records.pool_of
            found = [
                ws
                for ws in workers
                if not any((p := owner.get(ts.key)) and p.name in busy for ts in ws.has_what)
            ]
        stay = set()
        for ws in self._pools.scheduler.workers.values():
            group = group_of(ws)
            if ws not in found or (group[0] and ws.processing):
                stay.add(group)
        return [ws for ws in found if group_of(ws) not in stay]

    def busy(self) -> set[str]:
        """Note which jobs have made progress since the last call, and return those of late."""
        now, seen = monotonic(), {}
        for name, reports in self._reports.items():
            pool = self._pools.pools[name]
            progress = (reports, len(pool.tasks), len(pool.unfinished))
            before = self._seen.get(name)
            same = before is not None and before[0] == progress and not pool.running
            seen[name] = before if before is not None and same else (progress, now)
        self._seen = seen
        return {name for name, (_, since) in seen.items() if now - since < self._keep}

    @property
    def _active(self) -> bool:
        return bool(self._reports or self._pools.limits) and self._is_active()

    def fall_back(self, error: BaseException) -> None:
        """Log an error, once: Dask's own number counts then."""
        if not self.failed:
            self.failed = True
            logger.error("adaptive scaling is left to Dask", exc_info=error)

    def _limited(self, target: int) -> int:
        scheduler = self._pools.scheduler
        workers = scheduler.workers
        used = sum(ws.nbytes for ws in workers.values())
        if used > 0.6 * sum(ws.memory_limit for ws in workers.values()) > 0:
            return target  # Dask asks for memory
        waiting = len(scheduler.queued) + len(scheduler.unrunnable)
        running = sum(len(ws.processing) for ws in workers.values())
        usable = waiting + running - self._unusable()
        threads = scheduler.total_nthreads / len(workers) if workers else 1
        wanted = math.ceil(max(usable, 0) / threads)
        if target <= wanted:
            return target
        if wanted >= len(workers):
            return wanted
        return min(target, len(workers) - len(scheduler.workers_to_close()))

    def _unusable(self) -> int:
        """Return the number of ready tasks that no additional worker may run now."""
        pools = self._pools
        unusable = pools.limits.waiting
        room: dict[Group, float] = {}  # of each owner and team
        for pool in pools.pools.values():
            ready, running = self._possible(pool) - pools.limits.blocked(pool), len(pool.running)
            most = 0.0 if pool.paused else math.inf if pools.lend else pool.granted.most
            allowed = min(max(ready, 0), max(most - running, 0))
            for group in pool.group.line() if pool.group is not None else ():
                if group not in room:
                    room[group] = group.most - sum(len(each.running) for each in group.pools)
                allowed = min(allowed, max(room[group], 0))
            for group in pool.group.line() if pool.group is not None else ():
                room[group] -= allowed
            unusable += len(pool.ready) - int(allowed)
        return unusable

    def usable(self, pool: Pool) -> int:
        """Return the number of tasks of a job that run or could run on further workers."""
        tasks = pool.unfinished
        runnable = len(tasks)
        if runnable <= 10_000:  # of more, few have to wait for others
            runnable = sum(ts.state in RUNNABLE for ts in tasks)
        impossible = len(pool.ready) - self._possible(pool) + self._pools.limits.blocked(pool)
        return max(runnable - impossible, 0)

    def _possible(self, pool: Pool) -> int:
        """Return the number of ready tasks whose resources some worker has and their owner may use.

        New workers are assumed to be like the present ones. Without any, all tasks count.
        """
        workers, group = self._pools.scheduler.workers.values(), pool.group
        rooms = dict.fromkeys(pool.filed, math.inf)
        if workers:
            rooms = {kind: math.inf if any(map(kind.allows, workers)) else 0.0 for kind in rooms}
        if group is not None and group.resources:
            rooms = {k: min(room, group.free_for(k.resources or ())) for k, room in rooms.items()}
        if min(rooms.values(), default=math.inf) == math.inf:
            return len(pool.ready)
        waiting = Counter(entry.constraints for entry in pool.ready.values())
        return int(sum(min(count, rooms.get(k, math.inf)) for k, count in waiting.items()))


def add_scaling(scheduler: Scheduler) -> None:
    """Limit what `Scheduler.adaptive_target` asks for. Repeated calls install it once."""

    def around(plain: Callable[..., int]) -> Callable[..., int]:
        def limited(target_duration: Any = None) -> int:
            target = plain(target_duration)
            plugin = registered_plugin(scheduler)
            return target if plugin is None else plugin.scaling.limit(target)

        return limited

    limited = replace(scheduler.adaptive_target, around)
    scheduler.adaptive_target = limited  # type: ignore[method-assign]
    scheduler.handlers["adaptive_target"] = limited  # what `Adaptive` calls
