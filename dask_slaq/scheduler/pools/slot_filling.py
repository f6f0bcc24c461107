"""Slot filling: bind a ready task to each free slot, and move tasks that wait too long."""

from __future__ import annotations

import itertools
import math
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.dispatch import BACK_WITHIN, Choice, has_thread

if TYPE_CHECKING:
    from dask_slaq.scheduler.pools.pools import Pools


class SlotFilling:
    """Binds ready tasks to workers that have a slot.

    Parameters
    ----------
    pools : Pools
        Its dispatcher chooses the tasks, and its task control sends them.

    Attributes
    ----------
    sending : Choice or None
        Task that is being sent, so that `TaskTracker` recognizes its transition.
    """

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._dispatches = itertools.count()
        self.sending: Choice | None = None

    def dispatch(self) -> list[Choice]:
        """Fill free slots. Returns the tasks that were bound, each with its worker."""
        pools, wakeups, dispatcher = self._pools, self._pools.wakeups, self._pools.dispatcher
        pools.queueing.place_newcomers(pools.pools.values())
        looked_at, wakeups.look_at = wakeups.look_at, set()
        bound = []
        for choice in dispatcher.choices(pools.pools.values(), looked_at, pools.queueing.served):
            self.bind(choice)
            bound.append(choice)
        for ws in dict.fromkeys(choice.ws for choice in bound):
            self._look_again(ws)
        wakeups.look_at |= dispatcher.left
        if dispatcher.kept:
            wakeups.later("", BACK_WITHIN)
        self._unstick()
        # Check large pools less often: a check takes time in proportion to their size.
        often = 1 + len(pools.tracker.owner) // 100
        if pools.scheduler.validate and next(self._dispatches) % often == 0:
            pools.check()
        return bound

    def bind(self, choice: Choice) -> None:
        """Send a task to the worker that was chosen for it."""
        pool, ts = choice.pool, choice.entry.ts
        pool.pop(ts)
        self.sending = choice
        try:
            why = f"{choice.reason}-{pool.name}"
            self._pools.control.bind(ts, pool.tasks.get(ts), choice.ws, choice.rank, why)
        finally:
            self.sending = None

    def _look_again(self, ws: Any) -> None:
        """Schedule a look at a worker for when a thread or resource is about to be free."""
        slots = self._pools.slots
        # A timer replaces the one before it, so only the sooner of the two is set.
        ends = slots.free_in(ws), slots.resource_free_in(ws) if ws.used_resources else math.inf
        soonest = min((end - slots.ahead for end in ends if end > slots.ahead), default=math.inf)
        if soonest < math.inf:
            self._pools.wakeups.later(ws.address, soonest)

    def _unstick(self) -> None:
        """Move tasks that wait behind an overdue task to workers with a free thread."""
        pools, slots, wakeups = self._pools, self._pools.slots, self._pools.wakeups
        # The last dispatch has found no other use for these free threads.
        workers, running = pools.scheduler.workers, pools.scheduler.running
        known = [workers[address] for address in sorted(wakeups.look_at) if address in workers]
        free = [ws for ws in known if ws in running and has_thread(ws)]
        if not free or not slots.any_wait:
            return
        for ts, sent in slots.stuck(2 * slots.ahead):
            at = ts.processing_on
            if at is None or slots.next_end(at) < sent.entry.moving:
                continue  # fetching its inputs would take longer than waiting
            for ws in free:
                inside = pools.lend or ws.address in sent.pool.workers
                if inside and sent.entry.kind.suits(ws):
                    pools.control.move(ts, ws)
                    free.remove(ws)
                    break
        wakeups.later("", 2 * slots.ahead)
