"""Slot of a trial at the agent of a worker: what is known of it, and not told the scheduler yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from time import monotonic, time
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task
from dask.typing import Key
from dask.utils import apply

from dask_slaq.core.jobs.reports import Iterations
from dask_slaq.core.trials import TrialEvent, arguments, as_parameters, bounded
from dask_slaq.worker.states import Leave

#: Most part of the time of a trial that copies of its states may take.
KEEPING_PART = 0.02


@dataclass(slots=True)
class Unsent:
    """What the scheduler has not been sent yet of a trial."""

    losses: list[float] = field(default_factory=list)
    others: list[Mapping[str, float]] = field(default_factory=list)  # metrics with these losses
    grown: list[float | None] = field(
        default_factory=list
    )  # see `TrialAgent._growth`; one per loss
    steps: list[int] = field(default_factory=list)  # iterations of these losses
    computed: float = 0.0  # seconds
    took: float = 0.0  # seconds to keep or fetch its last state
    params: Mapping[str, Any] | None = None  # of its model, to be sent once
    group: tuple[str, str] | None = None  # in which it is compared, and its candidate, sent once
    drawn: bool = False  # whether the task made these itself, and they are not its arguments


@dataclass(slots=True)
class SavedState:
    """States of a trial: what it goes on from, and what is kept."""

    resumes: bool = False  # whether its task goes on from states
    begins: int = 0  # reports before those that this task has made here
    offered: Any = None  # state that the present report was given
    unfit: bool = False  # whether its states cannot be kept
    folder: str = ""  # of the files of its states; empty if Dask keeps them
    nbytes: int | None = None  # of its states
    reports: int = 0  # before its last state
    kept_at: float = 0.0  # when that was kept
    pause: float = 0.0  # seconds until a copy of the next one: keeping takes time

    @property
    def can_be_kept(self) -> bool:
        """Whether the present report was given a state that can be kept, and gone on from."""
        return self.offered is not None and not self.unfit and self.resumes

    def note(self, nbytes: int, seconds: float) -> None:
        """Record the size of a state, which took `seconds` to make, and when a copy is due."""
        self.kept_at, self.nbytes = monotonic(), nbytes
        # A copy takes more time where it goes: it is taken to go at 100 MB/s.
        self.pause = (seconds + nbytes / 100e6) / KEEPING_PART

    def has_rested(self) -> bool:
        """Return whether another copy of a state takes a small part of the time since the last."""
        return monotonic() - self.kept_at >= self.pause


class SlotState(Enum):
    """What a trial does on its worker."""

    TRAINS = "trains"
    LEFT = "left"  # trains, but gave up its thread by itself, as in Dask's `worker_client`
    STOPS = "stops"  # waits in its report, and is about to send so
    WAITS = "waits"
    RESUMES = "resumes"  # waits for a thread to go on


@dataclass(slots=True, eq=False)
class TrialSlot:
    """Task of a trial at an agent. Times are monotonic seconds."""

    key: Key
    run: str  # search that the trial belongs to
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    metric: str = ""  # name of the loss, once a report has named it
    reports: int = 0  # of its present trial
    anew: bool = False  # whether its next report begins its trial again
    iterations: Iterations = field(default_factory=Iterations)  # of its present trial
    last: tuple[float, Mapping[str, float]] | None = None  # loss and metrics of the last report
    since: float = 0.0  # when its latest stretch of computing began
    sent: float = 0.0  # when its last message was sent
    unsent: Unsent = field(default_factory=Unsent)
    checkpoint: SavedState = field(default_factory=SavedState)
    thread: threading.Thread = field(default_factory=threading.current_thread)  # that runs it
    # Threads of the pool that the thread began in; None if a thread cannot leave it.
    pool: Collection[threading.Thread] | None = None
    seceded: bool = False  # whether a report has given up its thread before
    state: SlotState = SlotState.TRAINS
    may_go: threading.Event = field(default_factory=threading.Event)  # set while it need not wait
    waited: float = 0.0  # seconds in all
    leave: Leave | None = None  # by which it leaves
    taken: Mapping[str, Any] | None = None  # of its process, see `Carrier`

    @property
    def waits(self) -> bool:
        """Whether it waits in its report, or for a thread to go on."""
        return self.state not in (SlotState.TRAINS, SlotState.LEFT)

    @property
    def says(self) -> TrialEvent:
        """What a report says that is all there is to say."""
        return TrialEvent.LEFT if self.state is SlotState.LEFT else TrialEvent.REPORTS

    def begin_again(self, number: Hashable) -> None:
        """Let the next report begin the trial again, or the one of another number."""
        self.anew, self.number = number == self.number, number
        self.reports = 0
        self.iterations = Iterations(curve=self.iterations.curve + 1 if self.anew else 0)
        self.checkpoint.begins, self.checkpoint.reports, self.metric = 0, 0, ""

    def add(
        self,
        loss: float,
        others: Mapping[str, float],
        step: int | None,
        grown: float | None,
        now: float,
    ) -> None:
        """Add a report of iteration `step`, or of the next one, made at `now`."""
        self.reports += 1
        self.iterations.count(step)
        self.queue(loss, others, grown)
        self.last = loss, others
        self.unsent.computed += now - self.since

    def queue(self, loss: float, others: Mapping[str, float], grown: float | None = None) -> None:
        """Queue the loss of the present iteration, to be sent."""
        unsent = self.unsent
        unsent.losses.append(loss)
        unsent.others.append(others)
        unsent.grown.append(grown)
        unsent.steps.append(self.iterations.last)

    def is_last(self, steps: int | None) -> bool:
        """Return whether a trial of at most `steps` steps will not report again."""
        done = self.iterations
        return steps is not None and done.last + done.gap > steps

    def message(self, what: TrialEvent, waited: float) -> dict[str, Any]:
        """Return the message `what` of the trial, and count it as sent; see `TrialAgent.send`."""
        unsent, states = self.unsent, self.checkpoint
        self.unsent, self.sent = Unsent(), monotonic()
        message = {
            "op": "slaq-trial",
            "key": self.key,
            "what": what.value,
            "losses": unsent.losses,
            "computed": unsent.computed,
            "waited": waited,
            "at": time(),
            "number": self.number,
            "grown": unsent.grown,
            "begins": states.begins,
            "moves": None if states.unfit or states.offered is None else states.nbytes,
            "took": unsent.took,
        }
        if self.iterations.named:
            message["steps"] = unsent.steps
        if self.iterations.curve:
            message["curve"] = self.iterations.curve
        if any(unsent.others):
            message["others"] = unsent.others
        if unsent.params:
            message |= {"params": unsent.params, "drawn": unsent.drawn}
        if unsent.group is not None:
            message["group"] = unsent.group
        if self.metric and unsent.losses:
            message["metric"] = self.metric
        if self.anew and unsent.losses:
            message["anew"], self.anew = True, False
        return message


logger = logging.getLogger(__name__)

#: Functions that only put values into containers, by name.
CONTAINERS = frozenset({"dict", "list", "tuple", "set", "to_container", "_identity_cast"})


def parameters_of(task: Any) -> dict[str, Any]:
    """Return the plain arguments of the function that a task calls; empty if they are unknown.

    Results of other tasks are not among them, and nothing is computed.
    """
    try:
        function, args, kwargs = task.func, list(task.args), dict(task.kwargs)
        if function is apply:
            function, args, kwargs = _value(args[0]), _value(args[1]), {}
            kwargs = _value(task.args[2]) if len(task.args) > 2 else {}
        names = {name: _value(value) for name, value in kwargs.items()}
        return bounded(as_parameters(arguments(function, map(_value, args), names)))
    except Exception:
        logger.debug("the arguments of a task are unknown: %r", task, exc_info=True)
        return {}


def _value(part: Any) -> Any:
    """Return a part of a task, with the containers in it made; parts of other tasks stay."""
    if isinstance(part, DataNode):
        return part.value
    if not isinstance(part, GraphNode) or part.dependencies or not _only_holds(part):
        if isinstance(part, Mapping) and isinstance(part, GraphNode):
            return {name: _value(part[name]) for name in part}
        return part
    return part({})


def _only_holds(part: Any) -> bool:
    """Return whether a part of a task consists of nothing but values and containers."""
    if isinstance(part, DataNode) or not isinstance(part, GraphNode):
        return True
    if not isinstance(part, Task) or getattr(part.func, "__name__", "") not in CONTAINERS:
        return False
    return all(map(_only_holds, _parts(part.args)))


def _parts(args: Any) -> Any:
    for arg in args:
        if isinstance(arg, list | tuple):
            yield from _parts(arg)
        else:
            yield arg
