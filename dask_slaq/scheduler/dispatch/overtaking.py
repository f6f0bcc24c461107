"""Tasks that overtake: they are sent ahead of the tasks that wait on a worker.

Without overtaking, their jobs would have to wait for whole tasks of other jobs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING

from dask_slaq.scheduler.dispatch.crowded_workers import (
    CrowdedWorkers,
    goes_on_with_others,
    has_room_first,
)
from dask_slaq.scheduler.dispatch.durations import TRIVIAL
from dask_slaq.scheduler.dispatch.matching import Matching
from dask_slaq.scheduler.dispatch.open_workers import LOOKED_AT
from dask_slaq.scheduler.dispatch.pool import Choice, Pool
from dask_slaq.scheduler.dispatch.ready import Entry
from dask_slaq.scheduler.dispatch.slots import Slots

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, WorkerState

__all__ = ["Overtaking"]

# Offset of ranks, in seconds, that puts a task before all tasks ranked by the time of sending.
AT_ONCE = -1e9


class Overtaking:
    """Chooser of tasks for workers without a slot, to run first there when a thread is free.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        Only read, never changed.
    slots : Slots
    crowded : CrowdedWorkers
    matching : Matching
    lend : bool
        Whether a job may use workers outside its worker set.
    short : float
        Seconds. Tasks known to be shorter may overtake while their job has not used more than its
        share.
    fair : bool
        Whether jobs are served by their service alone.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        slots: Slots,
        crowded: CrowdedWorkers,
        matching: Matching,
        *,
        lend: bool,
        short: float,
        fair: bool,
    ) -> None:
        self.scheduler = scheduler
        self.slots = slots
        self.crowded = crowded
        self.matching = matching
        self.lend = lend
        self.short = short
        self.fair = fair

    def choices(
        self, pools: Collection[Pool], bound: Mapping[Pool, bool], served: float
    ) -> Iterator[Choice]:
        """Yield choices of tasks that overtake.

        Three kinds of tasks overtake: tasks of jobs that are due and run nothing; short tasks of
        jobs that have not used more than their share; and, unless jobs are served by service
        alone, tasks of jobs below their share, before tasks of jobs of lower index.

        Parameters
        ----------
        pools : collection of Pool
        bound : mapping of Pool to bool
            Pools with tasks that were sent to workers without a slot; see `bound_pools`.
        served : float
            Service of the pool that was served last; see `FairQueueing`.

        Yields
        ------
        Choice
        """
        self.crowded.begin()
        busy: dict[float, bool] = {}  # cache of `_any_as_long_as` by seconds
        for pool in pools:
            if not pool.ready or pool.gang or not (pool.is_within_cap() and pool.may_start()):
                continue
            if pool.group is not None and not pool.group.is_behind():
                continue  # its owner has had its share
            if not (pool.running or pool.passed):
                if not self._is_due(pool, served) or not self._any_as_long_as(TRIVIAL, bound, busy):
                    continue
                everywhere = self.crowded.below()
                for choice in islice(self._sent_first(pool, math.inf, everywhere, {}), 1):
                    yield choice
                    self.crowded.update()
            elif not self.fair and pool.is_below_share():
                if pool.index > self.crowded.lowest():
                    yield from self._before_lower(pool, bound)
            elif pool.service <= served and pool.durations.shortest < self.short:
                if not self._any_as_long_as(self.short, bound, busy):
                    continue
                for choice in self._sent_first(pool, self.short, self.scheduler.running, bound):
                    yield choice
                    self.crowded.update()

    def _before_lower(self, pool: Pool, bound: Mapping[Pool, bool]) -> Iterator[Choice]:
        """Yield tasks of a job below its share, for workers where tasks of lower index wait."""
        workers = self.crowded.below(pool.index)
        sent, more = True, True
        while sent and more and workers:
            sent = False
            for choice in self._sent_first(pool, math.inf, workers, bound):
                sent = True
                yield choice
                # The task sent is not of lower index, but each thread may take one: the crowded
                # workers are updated only when the job has had its turn.
                if not has_room_first(self.slots, choice.ws):
                    self.crowded.leave_out(choice.ws.address)
                more = pool.is_below_share() and pool.is_within_cap() and pool.may_start()
                if not more:
                    break
        self.crowded.update()

    def _any_as_long_as(
        self, seconds: float, bound: Mapping[Pool, bool], found: dict[float, bool]
    ) -> bool:
        """Return whether tasks on workers may take at least `seconds`; `found` is a cache."""
        if seconds not in found:
            found[seconds] = bool(bound) or self.slots.any_as_long_as(seconds)
        return found[seconds]

    def _is_due(self, pool: Pool, served: float) -> bool:
        return pool.service <= served if self.fair else pool.is_behind()

    def _sent_first(
        self,
        pool: Pool,
        shorter_than: float,
        workers: Collection[WorkerState],
        bound: Mapping[Pool, bool],
    ) -> Iterator[Choice]:
        """Yield choices of tasks of a pool, each for the worker where it can start soonest."""
        for entry in list(islice(pool.first_ready(), LOOKED_AT)):
            if entry.ts not in pool.ready:
                continue
            if math.isfinite(shorter_than) and (
                entry.rootish or entry.like.at_most >= shorter_than
            ):
                continue
            if found := list(islice(self._possible(pool, entry, workers, bound), LOOKED_AT)):
                ws = min(found, key=lambda ws: (self.slots.next_end(ws), ws.address))
                reason = "granted" if ws.address in pool.workers else "lent"
                yield Choice(pool, entry, ws, reason, AT_ONCE + self.slots.next_rank())

    def _possible(
        self,
        pool: Pool,
        entry: Entry,
        workers: Collection[WorkerState],
        bound: Mapping[Pool, bool],
    ) -> Iterator[WorkerState]:
        """Yield the workers to which a task may be sent to overtake."""
        known = self.scheduler.workers
        at: Iterable[WorkerState] = workers
        if entry.homes:
            at = (known[a] for a in entry.homes if a in known and known[a] in workers)
        for ws in at:
            if not entry.kind.suits(ws) or not (self.lend or ws.address in pool.workers):
                continue
            if bound and goes_on_with_others(self.slots, ws, pool, bound):
                continue
            if entry.rootish and not self.matching.keeps_up(pool, ws):
                continue
            if has_room_first(self.slots, ws):
                yield ws
