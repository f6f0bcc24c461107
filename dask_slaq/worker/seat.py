"""Seat of a trial at the desk of a worker: what is known of it, and not told the scheduler yet."""

from __future__ import annotations

import logging
import threading
from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, field
from time import monotonic, time
from typing import Any

from dask._task_spec import DataNode, GraphNode, Task
from dask.utils import apply

from dask_slaq.core.jobs.reports import Iterations
from dask_slaq.core.trials import arguments, as_parameters, bounded
from dask_slaq.worker.states import Leave


@dataclass(slots=True, eq=False)
class Seat:
    """Task of a trial at a desk. Times are monotonic seconds."""

    key: Hashable
    run: str  # search that the trial belongs to
    number: Hashable = None  # distinguishes the trials that one task makes one after the other
    may_go: threading.Event = field(default_factory=threading.Event)  # set while it need not wait
    metric: str = ""  # name of the loss, once a report has named it
    reports: int = 0  # of its present trial
    anew: bool = False  # whether its next report begins its trial again
    iterations: Iterations = field(default_factory=Iterations)  # of its present trial
    since: float = 0.0  # when its latest stretch of computing began
    sent: float = 0.0  # when its last message was sent
    losses: list[float] = field(default_factory=list)  # not sent yet
    others: list[Mapping[str, float]] = field(default_factory=list)  # metrics with these losses
    last: tuple[float, Mapping[str, float]] | None = None  # loss and metrics of the last report
    grown: list[float | None] = field(default_factory=list)  # see `Desk._growth`; one per loss
    steps: list[int] = field(default_factory=list)  # iterations of these losses
    computed: float = 0.0  # seconds that were not sent yet
    thread: threading.Thread = field(default_factory=threading.current_thread)  # that runs it
    # Threads of the pool that the thread began in; None if a thread cannot leave it.
    pool: Collection[threading.Thread] | None = None
    seceded: bool = False  # whether a report has given up its thread before
    apart: bool = False  # whether it trains outside of its pool of threads
    waits: bool = False  # whether it waits in its report, or for a thread to go on
    waited: float = 0.0  # seconds in all
    rests: bool = False  # whether it waits in its report, and has told so
    resumes: bool = False  # whether its task goes on from states
    begins: int = 0  # reports before those that this task has made here
    folder: str = ""  # of the files of its states; empty if Dask keeps them
    state: Any = None  # that the present report was given
    unfit: bool = False  # whether its states cannot be kept
    nbytes: int | None = None  # of its states
    kept: float = 0.0  # when its last state was kept
    kept_after: int = 0  # reports before that
    pause: float = 0.0  # seconds until a copy of the next one: keeping takes time
    took: float = 0.0  # seconds to keep or fetch its last state, not sent yet
    leave: Leave | None = None  # by which it leaves
    away: bool = False  # whether it gave up its thread by itself, as in Dask's `worker_client`
    params: Mapping[str, Any] | None = None  # of its model, to be sent once
    drawn: bool = False  # whether the task made these itself, and they are not its arguments

    def begin_again(self) -> None:
        """Let the next report begin the trial again."""
        self.reports, self.iterations, self.anew = 0, Iterations(), True
        self.begins, self.kept_after, self.metric = 0, 0, ""

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
        self.computed += now - self.since

    def queue(self, loss: float, others: Mapping[str, float], grown: float | None = None) -> None:
        """Queue the loss of the present iteration, to be sent."""
        self.losses.append(loss)
        self.others.append(others)
        self.grown.append(grown)
        self.steps.append(self.iterations.last)

    def is_last(self, steps: int | None) -> bool:
        """Return whether a trial of at most `steps` steps will not report again."""
        done = self.iterations
        return steps is not None and done.last + done.gap > steps

    def message(self, what: str, waited: float) -> dict[str, Any]:
        """Return what the scheduler is told of the trial, and count it as sent; see `Desk.send`."""
        message = {
            "op": "slaq-trial",
            "key": self.key,
            "what": what,
            "losses": self.losses,
            "computed": self.computed,
            "waited": waited,
            "at": time(),
            "number": self.number,
            "grown": self.grown,
            "begins": self.begins,
            "moves": None if self.unfit or self.state is None else self.nbytes,
            "took": self.took,
        }
        if self.iterations.named:
            message["steps"] = self.steps
        if any(self.others):
            message["others"] = self.others
        if self.params:
            message |= {"params": self.params, "drawn": self.drawn}
            self.params = None
        if self.metric and self.losses:
            message["metric"] = self.metric
        if self.anew and self.losses:
            message["anew"], self.anew = True, False
        self.losses, self.others, self.grown, self.steps = [], [], [], []
        self.took = self.computed = 0.0
        self.sent = monotonic()
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
