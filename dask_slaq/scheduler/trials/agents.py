"""TrialAgents of workers: which turns each was sent, and when it is sent some again."""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Mapping
from contextlib import suppress
from time import monotonic
from typing import Any

from distributed.scheduler import Scheduler, WorkerState


class TrialAgents:
    """TrialAgents of the workers on which a trial has reported; only these know what turns are.

    A worker is sent the same again after `repeat` seconds.
    """

    def __init__(self, scheduler: Scheduler, repeat: float = 0.4) -> None:
        self.repeat = repeat
        self._scheduler = scheduler
        self._known: dict[str, Any] = {}  # connections, by address
        # What each worker was sent, and when.
        self._sent: dict[str, tuple[list[dict[str, Any]], float]] = {}

    def prepare(self, workers: Iterable[WorkerState]) -> None:
        """Let workers of one thread know their process before models change it, see `Carrier`."""
        if some := [ws.address for ws in workers if ws.nthreads == 1]:
            self._scheduler.loop.add_callback(self._prepare, some)

    async def _prepare(self, workers: list[str]) -> None:
        from dask_slaq.worker.trial_agent import prepare

        message = {"op": "run", "function": pickle.dumps(prepare)}
        with suppress(Exception):  # a worker without this package has no models that report
            await self._scheduler.broadcast(msg=message, workers=workers, on_error="ignore")

    def hear(self, worker: str) -> None:
        """Know a worker on which a trial reports."""
        self._known[worker] = self._comm(worker)

    def knows(self, worker: str) -> bool:
        """Return whether a worker was sent turns by the last choice."""
        return worker in self._sent

    def forget_worker(self, worker: str) -> None:
        """Forget a worker that left."""
        self._known.pop(worker, None)

    def clear(self) -> None:
        """Forget all workers."""
        self._known.clear()

    def tell(self, turns: Mapping[str, list[dict[str, Any]]]) -> None:
        """Send workers their turns, unless they were sent the same a moment ago."""
        now = monotonic()
        sent, self._sent = self._sent, {}
        for worker in sent.keys() - turns.keys():
            self.send(worker, [])
        for worker, some in turns.items():
            before, since = sent.get(worker, (None, now))
            if before != some or now - since >= self.repeat:
                self.send(worker, some)
                since = now
            self._sent[worker] = some, since

    def look(self, worker: str) -> None:
        """Send a worker its turns again: it looks whether a model has left its thread."""
        if worker in self._sent:
            self.send(worker, self._sent[worker][0])

    def peer_of(self, worker: str) -> str:
        """Return the worker that takes replicas of the states of another one; empty if none is."""
        others = sorted(ws.address for ws in self._scheduler.running if ws.address != worker)
        return next((a for a in others if a > worker), others[0] if others else "")

    def _comm(self, worker: str) -> Any:
        return self._scheduler.stream_comms.get(worker)

    def send(self, worker: str, turns: list[dict[str, Any]]) -> None:
        """Send a worker turns, if it is known."""
        # A message for which a worker has no handler would end its connection.
        agent = self._known.get(worker)
        if agent is not None and agent is self._comm(worker) and not agent.closed():
            agent.send({"op": "slaq-turns", "turns": turns})
