"""A search that runs on a scheduler: its models, and the turns that its workers were last given."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import Any

from distributed.scheduler import TaskState, WorkerState

from dask_slaq.core.trials import (
    Footprint,
    MoveSpeed,
    PastModel,
    SearchSettings,
    Trial,
    TrialAccount,
    Trials,
    TrialState,
    Turns,
    Unreported,
)
from dask_slaq.scheduler.pools import Pool

logger = logging.getLogger(__name__)

#: How a trial ended, by the state of its task.
OUTCOMES: dict[str, str] = {"memory": "done", "erred": "failed"}


class PromisedThreads:
    """Threads that the `trials` of a search take without being sent a task.

    A worker is expected to send within the seconds `in_flight` that a model has gone on.
    """

    def __init__(self, trials: Trials, pool: Pool, in_flight: float = 0.25) -> None:
        self.trials, self._pool, self._in_flight = trials, pool, in_flight
        # Threads kept free for its trials. Zero: none is free now, and they take the next one.
        self.by_worker: dict[str, int] = {}
        self._turns: dict[str, Turns] = {}  # of the last choice, by worker
        # Trials that were to go on by the choice before, and until when that may be heard.
        self._revoked: dict[str, tuple[int, float]] = {}

    def _due(self, worker: str) -> tuple[int, bool]:
        """Return how many trials of a worker are to go on by the last choice, and wait still.

        One goes on as soon as another one of its worker waits or ends, and sends so after that.
        With it: whether some trial would take the next thread.
        """
        turns, alive = self._turns.get(worker), self.trials.alive
        if turns is None:
            return 0, False
        there = (alive[key] for key in turns.order if key in alive and alive[key].worker == worker)
        states = Counter(trial.state for trial in there)
        trains, waits = states[TrialState.TRAINS], states[TrialState.WAITS]
        return max(min(turns.width - trains, waits), 0), waits > 0 and turns.width >= trains

    def give_turns(self, turns: dict[str, Turns]) -> list[str]:
        """Keep the turns of a choice. A trial that is no longer to go on may have done so by now.

        Returns the workers where fewer threads are promised than before.
        """
        before = {worker: self._due(worker)[0] for worker in self._turns}
        self._turns, until = turns, monotonic() + self._in_flight
        # What was revoked by an earlier choice is not due any more, and is not kept for longer.
        self._revoked |= {w: (n, until) for w, n in before.items() if n > self._due(w)[0]}
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
            before, (n, takes_next) = self.by_worker.pop(worker, None), self._due(worker)
            revoked, until = self._revoked.get(worker, (0, 0.0))
            if until <= monotonic():
                self._revoked.pop(worker, None)
            else:
                n = max(n, revoked)
            if n or takes_next:
                self.by_worker[worker] = n
            if before is not None and not (before <= n and worker in self.by_worker):
                fewer.append(worker)
        group = self._pool.group
        limited = group is not None and group.most < math.inf
        self._pool.promised = sum(self.by_worker.values()) if limited else 0
        return fewer


class RunningSearch:
    """Search that runs, whose block has the identifier `run`."""

    def __init__(
        self, pool: Pool, run: str, settings: SearchSettings, past: Iterable[PastModel] = ()
    ) -> None:
        self.pool, self.run = pool, run
        self.runs = [run]  # with those of its earlier blocks, which tasks on workers still name
        self.inherited: set[Any] = set()  # keys of the models of these
        self.trials = Trials(settings, lambda: time(), past)
        self.begun: dict[Any, TaskState] = {}  # tasks on a worker that have not reported, by key
        self.computes: dict[Any, float] = {}  # since when those of them compute that do
        self.locked: set[Any] = set()  # those that were blocked
        self.account = TrialAccount()
        self.model, self.speed = Footprint(), MoveSpeed()
        self.deadly = 0  # largest memory limit of a worker that died of its memory
        self.outcome: str | None = None  # how its block was left; None while it is open
        self.cut_off: set[Any] = set()  # trials that left their worker before they ended
        self.bound: int | None = None
        self.seen: tuple[int | None, int, int] = (None, 0, 0)  # by which it was computed
        self.trained_on: set[Any] = set()  # keys of trials that go on in another task
        # Keys submitted in its block that others had submitted before: nothing is known of them.
        self.unknown: dict[Any, None] = {}
        self.promised = PromisedThreads(self.trials, pool)
        self.marked = 0  # number of the last mark of its client
        self.unreported = Unreported()
        # Names of its models whose losses only rose; None if they are no scores, or that was told.
        self.rising: set[str] | None = None if settings.maximize else set()
        self.metrics: list[str] = []  # names of the losses of its models, up to two
        self.lacks = ""  # name of a loss
        self.has: dict[str, None] = {}  # what reports have instead
        self.jobs: dict[str, Trial] = {}  # its models that are jobs, by name, while they run
        self.before = ""  # last block of its name, and the rows of its models that have ended
        self.rows_before: dict[Any, list[dict[str, Any]]] | None = None

    @property
    def goes_on(self) -> bool:
        """Whether any of its models is not done."""
        return bool(self.pool.unfinished or self.jobs or self.begun or self.trials.alive)

    @property
    def training(self) -> int:
        """Number of its trials that train, and have not stalled."""
        return len(self.trials) - self.trials.waiting - self.stalled

    @property
    def stalled(self) -> int:
        """Number of its trials that have stalled."""
        return sum(trial.state is TrialState.STALLED for trial in self.trials.alive.values())

    @property
    def lacking(self) -> str:
        """What is wrong where reports were dropped, and no model has made any other."""
        if not self.lacks or any(trial.reports for trial in self.trials):
            return ""
        return f"no report has {self.lacks}; they have: {', '.join(self.has)}"

    def blocked(
        self, tasks: Sequence[TaskState], running: int, waits: bool, most: int = 2
    ) -> list[TaskState]:
        """Return which tasks of a worker should have reported, of which the first `running` run.

        If some trial `waits` there, they may need a lock that it holds. After `most` of them, no
        further trial waits.
        """
        now = monotonic()
        self.computes = {key: at for key, at in self.computes.items() if key in self.begun}
        since = [(self.computes.setdefault(ts.key, now), ts.key) for ts in tasks[:running]]
        late = now - self.trials.patience if waits else -math.inf
        self.locked.update(key for begin, key in since if begin < late)
        if len(self.locked) >= most and self.trials.settings.max_waiting:
            self.trials.settings = replace(self.trials.settings, max_waiting=0)
            logger.warning(
                "search %s: %d models made no report while others waited in theirs, and may need a "
                "lock that these held: no further model waits in a report",
                self.pool.name,
                len(self.locked),
            )
        return [ts for ts in tasks if ts.key in self.locked]

    def is_guest(self, key: Any) -> bool:
        """Return whether a task that has not reported on its worker goes on there from a state."""
        trial = self.trials.alive.get(key)
        return trial is not None and trial.state.migrates

    def takes_new(self, ws: WorkerState) -> bool:
        """Return whether a worker may begin any of its held tasks: resources may be used up."""
        group, kinds = self.pool.group, self.pool.filed
        return not kinds or any(
            kind.suits(ws) and (group is None or group.supplies(kind.resources or ()))
            for kind in kinds
        )

    @property
    def steps(self) -> int:
        """Expected number of reports of a model; a hundred if nothing is known."""
        return self.trials.settings.steps or self.trials.longest or 100

    def describe(self, ready: int) -> str:
        """Return in words what its trials do; `ready` more have not begun."""
        counts = (
            (self.training + sum(not self.is_guest(key) for key in self.begun), "trains", "train"),
            (self.trials.staying, "waits in its report", "wait in their report"),
            (self.trials.waiting - self.trials.staying, "has left its worker", "have left theirs"),
            (self.stalled, "has stalled", "have stalled"),
            (ready, "has not begun", "have not begun"),
        )
        parts = [f"{n} {one if n == 1 else many}" for n, one, many in counts if n]
        ends = Counter(trial.outcome for trial in self.trials.ended)
        others = [f"{ends[how]} {how}" for how in ("pruned", "failed", "stopped") if ends[how]]
        parts += [self.lacking] * bool(self.lacking)
        return ", ".join([f"search: {ends['done']} done", *others, *parts])
