"""Agent of a search on a worker: which of its trials train, and which wait in their report.

The scheduler sends turns, an order of trials and the number of them that may train, and the agent
follows the last ones by itself. Law: nothing waits unless the scheduler was heard of within
`SILENCE_SECONDS`, over an open connection, on a worker that runs.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Hashable, Mapping
from dataclasses import replace
from time import monotonic, time
from traceback import clear_frames
from typing import Any

from dask.typing import Key
from distributed import Worker
from distributed.core import Status
from distributed.diagnostics.plugin import WorkerPlugin
from distributed.worker import thread_state

from dask_slaq.core.jobs.reports import MOST_LOSSES
from dask_slaq.core.trials import TrialEvent
from dask_slaq.worker.carrying import CARRIES, Carrier
from dask_slaq.worker.keeping import StateKeeper
from dask_slaq.worker.shared import SharedArguments
from dask_slaq.worker.states import FILES, KeptState, safe_folder
from dask_slaq.worker.trial_slot import SlotState, TrialSlot, parameters_of

#: Seconds without a word of the scheduler after which all trials train on.
SILENCE_SECONDS = 1.5
#: Seconds between two looks of a waiting trial at what it waits for.
LOOK_SECONDS = 0.5

#: Annotation of the tasks of a search: the identifier of its block.
ANNOTATION = "slaq_search"
#: Annotation that names the metric which is the loss.
METRIC = "slaq_metric"
#: Annotation that says by what models are grouped: a parameter, or a pickled callable.
GROUP = "slaq_group"

#: States of a task that runs in a thread, or did when it was cancelled.
_ON = frozenset({"executing", "long-running", "resumed", "cancelled"})

#: States of a worker whose results nobody gets.
ENDS = (Status.closing, Status.closed, Status.failed)

_agents: weakref.WeakKeyDictionary[Worker, TrialAgent] = weakref.WeakKeyDictionary()
_making = threading.Lock()


def agent_of(worker: Worker) -> TrialAgent:
    """Return the agent of a worker, which is made at first."""
    with _making:
        agent = _agents.get(worker)
        if agent is None:
            agent = _agents[worker] = TrialAgent(worker)
        return agent


def prepare(dask_worker: Worker) -> None:
    """Know what belongs to the process of a worker before a model changes it; for ``run``."""
    agent_of(dask_worker)


class TrialAgent:
    """Agent of the searches on one worker."""

    def __init__(self, worker: Worker) -> None:
        self.worker: Worker = weakref.proxy(worker)  # `_agents` keeps the agent while it lives
        self.slots: dict[Key, TrialSlot] = {}  # by key of the task
        self._turns: list[dict[str, Any]] = []
        self._held: set[Hashable] = set()
        self._explored: set[Hashable] = set()  # those of them that wait for a place in the order
        self._leaving: set[Hashable] = set()  # those that leave the worker
        # States of tasks that have not reported, and the seconds that it took to fetch them.
        self._resumed: dict[Hashable, tuple[KeptState | None, float]] = {}
        self._heard = 0.0
        self.carrier = Carrier(self._is_alone)
        self.arguments = SharedArguments(self.worker)
        self.keeper = StateKeeper(self.worker, self.carrier, self.send_kept)
        # Memory of the worker in bytes when each task began that has not reported; and at the last
        # report, None if a task has begun or ended since.
        self._begun: dict[Hashable, float] = {}
        self._memory: float | None = None
        self._lock = threading.Lock()
        worker.stream_handlers["slaq-turns"] = self.set_turns
        worker.loop.add_callback(worker.plugin_add, plugin=_Follower(self), name=_Follower.name)

    def begin(self, key: Key) -> None:
        """Measure the memory of the worker, and see its process, as a task of a search begins."""
        self.carrier.begin(key, annotation_of(self.worker, key, CARRIES))
        if (run := run_of(self.worker, key)) is not None:
            self.arguments.begin(run, key)
        with self._lock:
            self._begun[key], self._memory = self._process_memory(), None

    def report(
        self,
        key: Key,
        run: str,
        number: Hashable,
        loss: float,
        step: int | None = None,
        others: Mapping[str, float] | None = None,
    ) -> TrialSlot:
        """Record a report of iteration `step`, or of the next one, with `others` than the loss.

        Returns the slot of the task, which is made at its first report.
        """
        now, memory = monotonic(), self._process_memory()
        with self._lock:
            slot = self.slots.get(key)
            if slot is None:
                slot = self.slots[key] = TrialSlot(key, run, number, since=_start_of_task())
                self._resume(slot)
            if slot.number != number or slot.iterations.goes_back(step):
                if slot.unsent.losses:  # of what ends here
                    self._post_soon(self._message(slot, TrialEvent.REPORTS))
                slot.begin_again(number)
            grown = self._growth(slot.key, memory, is_first=slot.reports == 0)
            slot.add(loss, others or {}, step, grown, now)
            self._hold(slot)
            if len(slot.unsent.losses) >= MOST_LOSSES:
                self._post_soon(self._message(slot, slot.says))
            return slot

    def resume(self, key: Key, kept: KeptState | None, took: float) -> None:
        """Record the state that a task goes on from, and took seconds to fetch; None without."""
        if kept is not None:
            self.carrier.resume(kept.streams)
        with self._lock:
            self._resumed[key] = kept, took

    def _resume(self, slot: TrialSlot) -> None:
        states = slot.checkpoint
        states.resumes = slot.key in self._resumed
        kept, slot.unsent.took = self._resumed.pop(slot.key, (None, 0.0))
        states.folder = safe_folder(annotation_of(self.worker, slot.key, FILES))
        states.kept_at = monotonic()
        if kept is not None and kept.number == slot.number:
            states.begins, slot.iterations = kept.reports, replace(kept.iterations)
            states.note(kept.nbytes, 0.0)
            states.kept_at -= kept.age

    def send_kept(self, slot: TrialSlot, state: Mapping[str, Any]) -> None:
        """Send the scheduler what is known of a state that is kept. On the event loop."""
        with self._lock:
            message = {**self._message(slot, TrialEvent.KEEPS), "state": state}
        self._post(message)

    def leave(self, key: Key, *, done: bool = False) -> None:
        """Remove the slot of a task that ended; the next trial in order may go on.

        A task that is `done` without a report here goes on from a state after its last one: that is
        sent again, as the scheduler may know nothing of it. Called on the event loop before Dask
        sends the end of the task.
        """
        self.carrier.end(key)
        with self._lock:
            slot = self.slots.pop(key, None)
            self._begun.pop(key, None)
            kept, _ = self._resumed.pop(key, (None, 0.0))
            if done and slot is None and kept is not None:
                slot = self._seat_of_last_report(key, kept)
            self._memory = None
            self._settle()
            unsent = slot if slot is not None and slot.unsent.losses else None
            message = None if unsent is None else self._message(unsent, TrialEvent.REPORTS)
        if slot is not None:
            slot.may_go.set()
            if slot.leave is not None:
                # Dask's record of the error and its traceback hold each other, and with them the
                # model, until garbage is collected. Another model begins before that.
                clear_frames(slot.leave.__traceback__)
        if message is not None:
            self._post(message)

    def _seat_of_last_report(self, key: Key, kept: KeptState) -> TrialSlot | None:
        run = run_of(self.worker, key)
        if run is None or kept.last is None:
            return None
        loss, others = kept.last
        slot = TrialSlot(key, run, kept.number, iterations=kept.iterations)
        slot.checkpoint.begins = kept.reports - 1
        slot.queue(loss, others)
        ts = self.worker.state.tasks.get(key)
        slot.unsent.params = parameters_of(None if ts is None else ts.run_spec)
        return slot

    def _is_alone(self) -> bool:
        """Return whether one thread runs the tasks of this process."""
        if self.worker.address.startswith("inproc://"):
            return False  # a program is there, too
        with _making:
            others = [worker for worker in _agents if worker.address != self.worker.address]
        running = any(worker.status not in ENDS for worker in others)
        return self.worker.state.nthreads == 1 and not running

    def knows(self, key: Key) -> bool:
        """Return whether a task of a search runs here."""
        return key in self.slots or key in self._begun

    def _process_memory(self) -> float:
        return self.worker.monitor.get_process_memory()

    def _growth(self, key: Key, memory: float, *, is_first: bool) -> float | None:
        """Return the bytes by which the worker grew in a step of a trial; None if unknown.

        Tasks that have begun and not reported share the growth since they began.
        """
        before = self._memory
        if is_first:
            before = self._begun.pop(key, None)
        elif self._begun:
            before = None
        grown = None if before is None else (memory - before) / (len(self._begun) + 1)
        if self._begun:
            self._begun = {key: value + (grown or 0.0) for key, value in self._begun.items()}
        self._memory = None if self._begun else memory
        return grown

    def set_turns(self, turns: list[dict[str, Any]] | None = None, **other: Any) -> None:
        """Follow new turns: those of all searches with trials on this worker."""
        with self._lock:
            self._turns, self._heard = [dict(turn) for turn in turns or ()], monotonic()
            for turn in self._turns:
                self.keeper.peer = turn.get("peer", "")
            self._explored.clear()
            for slot in self.slots.values():
                if slot.state is SlotState.TRAINS and self._left_pool(slot):
                    # Dask does not tell the scheduler if the task has seceded before.
                    slot.state = SlotState.LEFT
                    self._post(self._message(slot, TrialEvent.LEFT))
            self._settle()

    def _left_pool(self, slot: TrialSlot) -> bool:
        # Dask sends its own message first, at the first secession, and fails if it comes second.
        ts = self.worker.state.tasks.get(slot.key)
        knows = ts is not None and ts.state == "long-running"
        return knows and slot.pool is not None and slot.thread not in slot.pool

    def _settle(self) -> None:
        held = self._explored & self.slots.keys()
        for turn in self._turns:
            if not turn["stop"]:
                there = (self.slots[k] for k in turn["order"] if k in self.slots)
                alive = [slot for slot in there if slot.state is not SlotState.LEFT]
                held.update(slot.key for slot in alive[turn["width"] :])
                # One goes on when another stops: that trains on until its next report.
                waiting = SlotState.WAITS
                rest = [s.key for s in alive[: turn["width"]] if s.state is waiting]
                train = sum(slot.state is not waiting for slot in alive)
                held.update(rest[max(turn["width"] - train, 0) :])
                held.difference_update(key for key, *_ in turn["prune"])
                held.difference_update(turn.get("free", ()))
        self._held = held
        self._leaving = {key for turn in self._turns for key in turn.get("leave", ())}
        for key, slot in self.slots.items():
            leaves = key in self._leaving and slot.waits
            if leaves or (key not in held and not self._hold(slot)):
                slot.may_go.set()
            else:
                slot.may_go.clear()

    def _hold(self, slot: TrialSlot) -> bool:
        """Hold a trial that has no place in the order yet once it is explored.

        Returns whether it did.
        """
        for turn in self._turns:
            if _is_of(turn, slot) and turn["explored"] > 0 and not turn["stop"]:
                known = slot.key in self._held or slot.key in turn["order"]
                known = known or slot.key in turn.get("free", ())
                if not known and slot.reports >= turn["explore"]:
                    turn["explored"] -= 1
                    self._explored.add(slot.key)
                    self._held.add(slot.key)
                    slot.may_go.clear()
                    return True
        return False

    def must_wait(self, slot: TrialSlot) -> bool:
        """Return whether a trial must wait in its report."""
        if slot.key not in self._held or monotonic() - self._heard > SILENCE_SECONDS:
            return False
        worker = self.worker
        return worker.status == Status.running and not worker.batched_stream.closed()

    def yield_thread(self, slot: TrialSlot) -> None:
        """Let another trial have the thread of one that waits in its report."""
        with self._lock:
            slot.state = SlotState.WAITS
            self._settle()

    def goes_on(self, slot: TrialSlot) -> bool:
        """Return whether a trial that waits goes on. From then on it counts as one that trains."""
        with self._lock:
            if not self.must_wait(slot) or self.is_cancelled(slot):
                slot.state = SlotState.RESUMES
            return slot.state is SlotState.RESUMES

    def goes_apart(self, slot: TrialSlot) -> bool:
        """Return whether a trial goes on outside of the pool: what has its threads may need it."""
        return any(turn.get("apart") and _is_of(turn, slot) for turn in self._turns)

    def must_leave(self, slot: TrialSlot, *, waits: bool) -> bool:
        """Return whether a trial must leave its worker, instead of waiting if it `waits`."""
        if not slot.checkpoint.can_be_kept:
            return False
        if monotonic() - self._heard > SILENCE_SECONDS or self.worker.batched_stream.closed():
            return False
        if any(_is_of(turn, slot) and slot.is_last(turn.get("steps")) for turn in self._turns):
            return False  # it is about to end
        if waits and any(turn.get("leaves") and _is_of(turn, slot) for turn in self._turns):
            return True
        return slot.key in self._leaving

    def verdict(self, slot: TrialSlot) -> TrialEvent | None:
        """Return whether a trial should end, as it is stopped or pruned; None if it should not."""
        for turn in self._turns:
            if slot.key in turn.get("free", ()):  # others want its result
                return None
            if _is_of(turn, slot) and turn.get("stop"):
                return TrialEvent.STOPPED
            # The next trial or curve of the task is not meant, nor one that is complete by now.
            meant = slot.key, slot.number, slot.iterations.curve
            if meant in turn["prune"] and not slot.is_last(turn.get("steps")):
                return TrialEvent.PRUNED
        return None

    def is_cancelled(self, slot: TrialSlot) -> bool:
        """Return whether nobody wants the result of the task any more, or can have it from here."""
        if self.worker.status in ENDS:
            return True
        ts = self.worker.state.tasks.get(slot.key)
        return ts is None or ts.state in ("cancelled", "released", "forgotten")

    def send(self, slot: TrialSlot, what: TrialEvent, waited: float = 0.0) -> None:
        """Send the scheduler what a trial does from now on, and what was not sent before.

        It goes on after it `waited` some seconds.
        """
        with self._lock:
            self._post_soon(self._message(slot, what, waited))

    def _message(self, slot: TrialSlot, what: TrialEvent, waited: float = 0.0) -> Mapping[str, Any]:
        # Called with the lock: the thread of the trial and the event loop make messages.
        message = slot.message(what, waited)
        ts = self.worker.state.tasks.get(slot.key)
        message["run_id"] = None if ts is None else ts.run_id
        message["memory"] = self._process_memory()
        if self.worker.lifetime:
            message["life"] = self.worker.lifetime
        return message

    def _post_soon(self, message: Mapping[str, Any]) -> None:
        self.worker.loop.add_callback(self._post, message)

    def _post(self, message: Mapping[str, Any]) -> None:
        stream = self.worker.batched_stream
        if not stream.closed():
            stream.send(message)


def _is_of(turn: Mapping[str, Any], slot: TrialSlot) -> bool:
    """Return whether a turn is of the search of a slot, in this block of it or an earlier one."""
    return turn["run"] == slot.run or slot.run in turn.get("runs", ())


def _start_of_task() -> float:
    """Return the monotonic seconds at which the task of this thread began."""
    now, wall = monotonic(), time()
    return now - max(wall - getattr(thread_state, "start_time", wall), 0.0)


class _Follower(WorkerPlugin):
    """Tells an agent which tasks of searches begin and end."""

    name = "slaq-trials"

    def __init__(self, agent: TrialAgent) -> None:
        self._agent = agent

    def transition(self, key: Any, start: str, finish: str, **kwargs: Any) -> None:
        """Follow a task of the worker."""
        if finish == "executing" and start not in _ON:
            if run_of(self._agent.worker, key) is not None:
                self._agent.begin(key)
        # A trial whose task was cancelled looks for itself, and ends.
        elif start in _ON and finish not in _ON and self._agent.knows(key):
            self._agent.leave(key, done=finish == "memory")


def annotation_of(worker: Worker, key: Any, name: str = ANNOTATION) -> Any:
    """Return an annotation of a task on a worker, or None."""
    ts = worker.state.tasks.get(key)
    return ((ts.annotations if ts is not None else None) or {}).get(name)


def run_of(worker: Worker, key: Any) -> str | None:
    """Return the search of a task on a worker, or None."""
    found = annotation_of(worker, key)
    return found if isinstance(found, str) else None
