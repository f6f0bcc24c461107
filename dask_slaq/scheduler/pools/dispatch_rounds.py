"""Rounds of dispatch: the first tasks are sent to workers with slots, and timers for the next."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from time import monotonic
from typing import Any, Protocol

from dask_slaq.core.dispatch import Dispatcher, Handover, Slots, constants
from dask_slaq.scheduler.event_loop import Timers
from dask_slaq.scheduler.pools.cluster_state import ClusterState
from dask_slaq.scheduler.pools.wakes import Wakes


class Sender(Protocol):
    """Who sends what was chosen."""

    def send(self, task: Handover) -> bool:
        """Send a task to the worker that was chosen for it. Returns whether it is there."""


class DispatchRounds:
    """Rounds in which `Dispatcher` chooses, at the workers that `wakes` have, and when timers ring.

    Timers are set for workers that open later.
    """

    def __init__(self, cluster: ClusterState, wakes: Wakes, enter: Callable[..., Any]) -> None:
        self.cluster, self.wakes, self.order = cluster, wakes, cluster.order
        self.dispatcher = Dispatcher(cluster.order, cluster, cluster.sent.prefetch)
        self._timers = Timers(partial(enter, self._rang))

    def look_in(self, worker: str, seconds: float) -> None:
        """Schedule a round that looks at a worker, or at none if it is "", after a delay."""
        self._timers.set(monotonic() + seconds, worker)

    def cancel(self) -> None:
        """Cancel all that is scheduled for later."""
        self._timers.cancel()

    def forget_worker(self, address: str) -> None:
        """Forget a worker that left."""
        self.wakes.look_at.discard(address)
        self._timers.forget(address)
        self.dispatcher.close(address)
        self.cluster.sent.forget(address)

    def _rang(self, workers: list[str]) -> None:
        opened = [worker for worker in workers if not worker or self.opens(worker)]
        if opened:
            self.wakes.now()

    def fill(self, sender: Sender) -> None:
        """Send tasks to workers with slots, until slots or tasks run out."""
        dispatcher, cluster, now = self.dispatcher, self.cluster, monotonic()
        workers, look_at = cluster.scheduler.workers, self.wakes.look_at
        for address in look_at:
            if (slots := cluster.slots(address)) is None:
                dispatcher.close(address)
            else:
                dispatcher.look(slots, now)
        look_at.clear()
        for choice in dispatcher.choices(now):
            ws = workers.get(choice.worker)
            if ws is None or not cluster.may_get_tasks(ws):  # it stopped, or is to be closed, since
                dispatcher.close(choice.worker)
                self.wakes.soon()
                break
            if not sender.send(choice):  # Dask or a hook failed, and would again
                break
        for slots, seconds in dispatcher.opens_in.items():
            if self._wants(slots):
                self._timers.move(now + seconds, slots.address)
        dispatcher.opens_in.clear()
        if dispatcher.has_kept_slots:
            self.look_in("", constants.BACK_SECONDS)
        if self.order.tokens_at < math.inf:
            self._timers.set(max(self.order.tokens_at, now), "")
            self.order.tokens_at = math.inf

    def opens(self, address: str) -> bool:
        """Look at a worker. Returns whether it may be sent a task; a timer rings when it may."""
        cluster, dispatcher = self.cluster, self.dispatcher
        slots, now = cluster.slots(address), monotonic()
        if slots is None:
            dispatcher.close(address)
            return True
        dispatcher.look(slots, now)
        seconds = dispatcher.opens_in.pop(slots, 0.0)
        if seconds and self._wants(slots):
            self._timers.move(now + seconds, address)
        return address in dispatcher.free or address in dispatcher.soon

    def _wants(self, slots: Slots) -> bool:
        """Return whether a task may wait for a thread of a worker: not only too many roots."""
        index = self.order.waiting
        if index.movable or index.scarce or slots.address in index.at:
            return True
        return slots.load < max(self.order.saturation * slots.nthreads, 1)
