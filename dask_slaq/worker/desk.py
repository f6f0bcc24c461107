"""Desk of a worker: which of its trials train, and which wait in their report.

The scheduler sends turns, an order of trials and the number of them that may train, and the desk
follows the last ones by itself. Law: nothing waits unless the scheduler was heard of within
`SILENCE` seconds, over an open connection, on a worker that runs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import thread_state

from dask_slaq.core.reports import Iterations

if TYPE_CHECKING:
    from distributed import Worker

#: Seconds without a word of the scheduler after which all trials train on.
SILENCE = 1.5
#: Seconds between two looks of a waiting trial at what it waits for.
LOOK = 0.5
#: Minimum seconds between two messages of a trial that trains.
PAUSE = 0.01

#: States of a task that runs in a thread, or did when it was cancelled.
_ON = frozenset({"executing", "long-running", "resumed", "cancelled"})

_desks: weakref.WeakKeyDictionary[Worker, Desk] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def desk_of(worker: Worker) -> Desk:
    """Return the desk of a worker, which is made at first."""
    with _making:
        desk = _desks.get(worker)
        if desk is None:
            desk = _desks[worker] = Desk(worker)
        return desk


@dataclass(slots=True, eq=False)
class Seat:
    """Task of a trial at a desk. Times are monotonic seconds."""

    key: Hashable
    run: str  # search that the trial belongs to
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    may_go: threading.Event = field(default_factory=threading.Event)  # set while it need not wait
    reports: int = 0  # of its present trial
    iterations: Iterations = field(default_factory=Iterations)  # of its present trial
    since: float = 0.0  # when its latest stretch of computing began
    sent: float = 0.0  # when its last message was sent
    losses: list[float] = field(default_factory=list)  # not sent yet
    steps: list[int] = field(default_factory=list)  # iterations of these losses
    computed: float = 0.0  # seconds that were not sent yet
    thread: threading.Thread = field(default_factory=threading.current_thread)  # that runs it
    # Threads of the pool that the thread began in; None if a thread cannot leave it.
    pool: Collection[threading.Thread] | None = None
    seceded: bool = False  # whether a report has given up its thread before
    waits: bool = False  # whether it waits in its report, or for a thread to go on
    away: bool = False  # whether it gave up its thread by itself, as in Dask's `worker_client`


class Desk:
    """Desk of one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker: Worker = weakref.proxy(worker)  # `_desks` keeps the desk while it lives
        self.seats: dict[Hashable, Seat] = {}  # by key of the task
        self._turns: list[dict[str, Any]] = []
        self._held: set[Hashable] = set()
        self._explored: set[Hashable] = set()  # those of them that wait for a place in the order
        self._heard = 0.0
        self._lock = threading.Lock()
        worker.stream_handlers["slaq-turns"] = self.take
        worker.loop.add_callback(worker.plugin_add, plugin=_Ends(self), name=_Ends.name)

    def sit(self, key: Hashable, run: str, number: Hashable, step: int | None = None) -> Seat:
        """Count a report of iteration `step`, or of the next one.

        Returns the seat of the task, which is made at its first report.
        """
        with self._lock:
            seat = self.seats.get(key)
            if seat is None:
                seat = self.seats[key] = Seat(key, run, number, since=_start_of_task())
            if seat.number != number:
                if seat.losses:  # of the trial that ends here
                    self.send(seat, "reports")
                seat.number, seat.reports, seat.iterations = number, 0, Iterations()
            seat.reports += 1
            seat.iterations.count(step)
            self._hold(seat)
            return seat

    def leave(self, key: Hashable) -> None:
        """Remove the seat of a task that ended; the next trial in order may go on.

        Called on the event loop before Dask sends the end of the task.
        """
        with self._lock:
            seat = self.seats.pop(key, None)
            self._settle()
        if seat is not None:
            seat.may_go.set()
            if seat.losses:
                self._post(self._message(seat, "reports"))

    def take(self, turns: list[dict[str, Any]] | None = None, **other: Any) -> None:
        """Follow new turns: those of all searches with trials on this worker."""
        with self._lock:
            self._turns, self._heard = [dict(turn) for turn in turns or ()], monotonic()
            self._explored.clear()
            for seat in self.seats.values():
                if not (seat.waits or seat.away) and self._left_pool(seat):
                    # Dask does not tell the scheduler if the task has seceded before.
                    seat.away = True
                    self._post(self._message(seat, "waits"))
            self._settle()

    def _left_pool(self, seat: Seat) -> bool:
        # Dask sends its own message first, at the first secession, and fails if it comes second.
        ts = self.worker.state.tasks.get(seat.key)
        told = ts is not None and ts.state == "long-running"
        return told and seat.pool is not None and seat.thread not in seat.pool

    def _settle(self) -> None:
        held = self._explored & self.seats.keys()
        for turn in self._turns:
            if not turn["stop"]:
                alive = [k for k in turn["order"] if k in self.seats and not self.seats[k].away]
                held.update(alive[turn["width"] :])
                held.difference_update(key for key, _ in turn["prune"])
        self._held = held
        for key, seat in self.seats.items():
            if key not in held and not self._hold(seat):
                seat.may_go.set()
            else:
                seat.may_go.clear()

    def _hold(self, seat: Seat) -> bool:
        """Hold a trial that has no place in the order yet once it is explored.

        Returns whether it did.
        """
        for turn in self._turns:
            if turn["run"] == seat.run and turn["explored"] > 0 and not turn["stop"]:
                known = seat.key in self._held or seat.key in turn["order"]
                if not known and seat.reports >= turn["explore"]:
                    turn["explored"] -= 1
                    self._explored.add(seat.key)
                    self._held.add(seat.key)
                    seat.may_go.clear()
                    return True
        return False

    def must_wait(self, seat: Seat) -> bool:
        """Return whether a trial must wait in its report."""
        if seat.key not in self._held or monotonic() - self._heard > SILENCE:
            return False
        worker = self.worker
        return worker.status == Status.running and not worker.batched_stream.closed()

    def verdict(self, seat: Seat) -> str:
        """Return ``"stopped"`` or ``"pruned"`` if a trial should end, else an empty string."""
        for turn in self._turns:
            if turn["run"] == seat.run and turn.get("stop"):
                return "stopped"
            # The next trial of the same task is not meant, nor one that is complete by now.
            if (seat.key, seat.number) in turn["prune"] and not _is_last(seat, turn.get("steps")):
                return "pruned"
        return ""

    def is_cancelled(self, seat: Seat) -> bool:
        """Return whether nobody wants the result of the task any more."""
        ts = self.worker.state.tasks.get(seat.key)
        return ts is None or ts.state in ("cancelled", "released", "forgotten")

    def send(self, seat: Seat, what: str, waited: float = 0.0) -> None:
        """Send the scheduler what a trial does from now on, and what was not sent before.

        `what` is ``"reports"``, ``"waits"`` without a thread, ``"goes"`` on after it `waited` some
        seconds, or ends as it was ``"pruned"`` or ``"stopped"``.
        """
        self.worker.loop.add_callback(self._post, self._message(seat, what, waited))

    def _message(self, seat: Seat, what: str, waited: float = 0.0) -> Mapping[str, Any]:
        losses, computed, steps = seat.losses, seat.computed, seat.steps
        seat.losses, seat.steps, seat.computed, seat.sent = [], [], 0.0, monotonic()
        named = {"steps": steps} if seat.iterations.named else {}
        ts = self.worker.state.tasks.get(seat.key)
        return {
            "op": "slaq-trial",
            "key": seat.key,
            "run_id": None if ts is None else ts.run_id,
            "what": what,
            "losses": losses,
            "computed": computed,
            "waited": waited,
            "at": time(),
            "number": seat.number,
            **named,
        }

    def _post(self, message: Mapping[str, Any]) -> None:
        stream = self.worker.batched_stream
        if not stream.closed():
            stream.send(message)


def _is_last(seat: Seat, steps: int | None) -> bool:
    """Return whether a trial of at most `steps` steps will not report again."""
    done = seat.iterations
    return steps is not None and done.last + done.gap > steps


def _start_of_task() -> float:
    """Return the monotonic seconds at which the task of this thread began."""
    now, wall = monotonic(), time()
    return now - max(wall - getattr(thread_state, "start_time", wall), 0.0)


class _Ends(WorkerPlugin):
    """Frees the seats of tasks that end."""

    name = "slaq-trials"

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Follow a task of the worker."""
        # A trial whose task was cancelled looks for itself, and ends.
        if key in self._desk.seats and start in _ON and finish not in _ON:
            self._desk.leave(key)
