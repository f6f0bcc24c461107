"""Threads of workers that models of a search take by themselves, by the turns they were given."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

from dask_slaq.core.trials import Trials, Turns
from dask_slaq.scheduler.pools import Pool

#: Seconds in which a worker is expected to send that a model has gone on.
IN_FLIGHT = 0.25


class PromisedThreads:
    """Threads that the `trials` of a search take without being sent a task."""

    def __init__(self, trials: Trials, pool: Pool) -> None:
        self._trials, self._pool = trials, pool
        # Threads that are kept free for its trials. A worker of which they will take the next
        # thread is listed, with zero as long as none is free.
        self.by_worker: dict[str, int] = {}
        self.left: set[Any] = set()  # keys of trials that gave up their thread, and take no turn
        self._turns: dict[str, Turns] = {}  # of the last choice, by worker
        # Trials that were to go on by the choice before, and until when that may be heard.
        self._revoked: dict[str, tuple[int, float]] = {}

    def _due(self, worker: str) -> int | None:
        """Return how many trials of a worker are to go on by the last choice, and wait still.

        One goes on as soon as another one of its worker waits or ends, and sends so after that.
        None if no trial would take the next thread.
        """
        turns, alive = self._turns.get(worker), self._trials.alive
        if turns is None:
            return None
        some = [alive[key] for key in turns.order if key in alive and key not in self.left]
        some = [t for t in some if t.worker == worker and not (t.away or t.contact.held_up)]
        trains = sum(not trial.waits for trial in some)
        n = max(min(turns.width, len(some)) - trains, 0)
        return n if n or min(turns.width, len(some) - 1) >= trains else None

    def give_turns(self, turns: dict[str, Turns]) -> list[str]:
        """Keep the turns of a choice. A trial that is no longer to go on may have done so by now.

        Returns the workers where fewer threads are promised than before.
        """
        before = {worker: self._due(worker) or 0 for worker in self._turns}
        self._turns, until = turns, monotonic() + IN_FLIGHT
        # What was revoked by an earlier choice is not due any more, and is not kept for longer.
        self._revoked |= {w: (n, until) for w, n in before.items() if n > (self._due(w) or 0)}
        return self.update(*{*self.by_worker, *turns, *self._revoked})

    def went_on(self, worker: str) -> list[str]:
        """Record that a trial has gone on at a worker. Returns as `update` does."""
        self._revoked.pop(worker, None)
        return self.update(worker)

    def update(self, *workers: str) -> list[str]:
        """Keep threads for the trials that are to go on at some workers.

        Returns the workers where fewer are kept than before.
        """
        fewer = []
        for worker in workers:
            before, n = self.by_worker.pop(worker, -1), self._due(worker)
            revoked, until = self._revoked.get(worker, (0, 0.0))
            if until <= monotonic():
                self._revoked.pop(worker, None)
            elif revoked:
                n = max(n or 0, revoked)
            if n is not None:
                self.by_worker[worker] = n
            if before > (-1 if n is None else n):
                fewer.append(worker)
        group = self._pool.group
        limited = group is not None and group.most < math.inf
        self._pool.promised = sum(self.by_worker.values()) if limited else 0
        return fewer
