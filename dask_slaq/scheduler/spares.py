"""Spare copies of late tasks: a second worker computes the same task, and the first result counts.

Dask computes a key on one worker. A copy is another run of the same task, which the scheduler does
not expect: it drops what comes of it. If the copy ends first, the task is moved there, as work
stealing moves tasks, before Dask reads the message. If it fails or its worker is lost, nothing has
changed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import supplies
from dask_slaq.core.settings import SPARE_LABEL
from dask_slaq.scheduler.event_loop import Alarm
from dask_slaq.scheduler.pools import ByGroup, TaskControl, group_of, input_bytes, load

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState, WorkerState

    from dask_slaq.core.runtime import WorkerSpeeds

__all__ = ["Spares"]

#: A task is late after this many times the upper quartile of the compute times of similar tasks.
LATE = 3.0
#: Seconds that a task is overdue before it is late: about what a copy takes to begin.
SOON = 0.1
#: A task is late from the beginning on a worker that is known to be this many times slower.
SLOW = 2.0
#: Compute times kept of similar tasks, and how many must be known.
KEPT, LEAST = 32, 4
#: Seconds between two looks for an idle thread for a late task.
LOOK = 0.05


@dataclass(slots=True, eq=False)
class _Running:
    """Task on a worker that may get a copy."""

    worker: str
    times: deque[float]  # of similar tasks, in seconds on a median worker
    factor: float  # of the worker's times
    sent: float  # in monotonic seconds
    ahead: int  # tasks that must end on its thread before it starts
    start: float | None  # estimated; None while it waits on the worker
    copied: bool = False
    copy: str = ""  # worker of the copy
    run: int = -1  # number of its run

    def due(self) -> float:
        """Return when the task is late, in monotonic seconds; infinite if unknown.

        A task that waits on a worker is expected to start as if similar ones were ahead of it.
        """
        if len(self.times) < LEAST:
            return math.inf
        usual = sorted(self.times)[math.ceil(0.75 * len(self.times)) - 1]
        start = self.start
        if start is None:
            start = self.sent + self.ahead * usual * self.factor
        if self.factor * usual > usual + 2 * SOON and self.factor > SLOW:
            return start + SOON  # a copy would end before it
        return start + max(LATE * usual, usual + SOON)


class Spares:
    """Spare copies of the late tasks of a scheduler.

    `moved` is called with the key of a task that was moved to the worker of its copy, and `listen`
    once, before the first copy: from then on `finished` is to be called.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        control: TaskControl,
        moved: Callable[[Any], None],
        enter: Callable[..., Any],
        speeds: WorkerSpeeds,
        listen: Callable[[], None],
    ) -> None:
        self._speeds = speeds
        self.scheduler, self.made, self.won = scheduler, 0, 0
        self._control, self._moved, self._listen = control, moved, listen
        self._listens = False
        self.running: dict[Any, _Running] = {}
        self._on: Counter[str] = Counter()  # copies by worker
        self._times = ByGroup[deque[float]]()
        self._alarm = Alarm(partial(enter, self._rang))

    def stop(self) -> None:
        """Drop all copies."""
        for key, running in self.running.items():
            self._drop(key, running)
        self.running.clear()
        self._on.clear()
        self._alarm.cancel()

    def transition(self, key: Any, start: str, finish: str, kwargs: dict[str, Any]) -> None:
        """Follow one transition of any task; `kwargs` are those of the plugin's hook."""
        if start == "processing":
            running = self.running.pop(key, None)
            if running is not None:
                self._alarm.forget(key)
                self._drop(key, running)
                if finish == "memory":
                    self._observe(running, kwargs.get("startstops") or ())
            if self.running:
                self._thread_freed(str(kwargs.get("worker")))
        if finish == "processing":
            ts = self.scheduler.tasks[key]
            ws = ts.processing_on
            if ws is not None and not ts.actor and (ts.annotations or {}).get(SPARE_LABEL):
                if not self._listens:
                    self._listens = True
                    self._listen()
                group = group_of(ts, input_bytes(ts))
                times = self._times.of(group, lambda: deque(maxlen=KEPT))
                now, ahead = monotonic(), math.ceil(load(ws) / ws.nthreads) - 1
                starts = None if ahead > 0 else now
                factor = self._speeds.factor(ws.address, ts.prefix.name)
                running = _Running(ws.address, times, factor, now, ahead, starts)
                self.running[key] = running
                self._look_at(key, running.due())

    def _observe(self, ended: _Running, startstops: Any) -> None:
        times = ended.times
        computed = (s["stop"] - s["start"] for s in startstops if s["action"] == "compute")
        times.extend(seconds / ended.factor for seconds in computed)
        if len(times) == LEAST:  # from now on it is known when they are late
            for key, running in self.running.items():
                if running.times is times:
                    self._look_at(key, running.due())

    def _thread_freed(self, worker: str) -> None:
        for key, running in self.running.items():
            if running.worker == worker and running.start is None:
                running.start = monotonic()
                self._look_at(key, running.due())
                return

    def _look_at(self, key: Any, when: float) -> None:
        if when < math.inf:
            self._alarm.set(when, key)

    def _rang(self, keys: list[Any]) -> None:
        now = monotonic()
        for key in keys:
            running = self.running.get(key)
            if running is None or running.copied:
                continue
            ts = self.scheduler.tasks[key]
            there = ts.processing_on
            if there is not None and there.address != running.worker:  # stolen
                running.worker, running.start = there.address, now
                running.factor = self._speeds.factor(there.address, ts.prefix.name)
            if running.due() > now:  # similar tasks have taken longer since
                self._look_at(key, running.due())
            elif not self._copy(ts, running):
                self._look_at(key, now + LOOK)

    def _copy(self, ts: TaskState, running: _Running) -> bool:
        """Send a copy of a late task to an idle thread. Returns whether there was one."""
        idle = list(self._idle(ts, running.worker))
        if not idle or ts in _stolen(self.scheduler):
            return False
        name = ts.prefix.name
        factor = {ws: self._speeds.factor(ws.address, name) for ws in idle}
        ws = min(idle, key=lambda ws: (factor[ws], -_bytes_there(ts, ws), ws.address))
        if factor[ws] >= running.factor > SLOW:
            return False  # it would not end sooner
        running.copied, running.copy = True, ws.address
        self._on[ws.address] += 1
        self.made += 1
        running.run = self._control.send_copy(ts, ws)
        return True

    def _idle(self, ts: TaskState, there: str) -> Iterator[WorkerState]:
        """Yield workers with a thread for a task, except those with late tasks of their own."""
        slow = {running.worker for running in self.running.values() if running.copied}
        allowed = self._control.allowed(ts)
        needs = (ts.resource_restrictions or {}).items()
        for ws in self.scheduler.running if allowed is None else allowed:
            free = ws.nthreads - load(ws) - self._on[ws.address]
            if free > 0 and ws.address not in {*slow, there} and supplies(ws, needs):
                yield ws

    def _drop(self, key: Any, running: _Running) -> None:
        """Release a copy whose result is not used."""
        if running.copy:
            self._on[running.copy] -= 1
            ts, ws = self.scheduler.tasks.get(key), self.scheduler.workers.get(running.copy)
            if ts is None or ws not in (ts.who_has or ()):
                self._control.free(key, running.copy)

    def forget_worker(self, worker: str) -> None:
        """Forget the copies on a worker that left. Their tasks may get another one."""
        self._on.pop(worker, None)
        for key, running in self.running.items():
            if running.copy == worker:
                running.copied, running.copy = False, ""
                self._look_at(key, monotonic())

    # Messages of workers

    def finished(self, key: Any, worker: str, run_id: int | None) -> None:
        """Move a task whose copy has ended to the worker of the copy, before Dask reads that."""
        running = self.running.get(key)
        if running is None or (running.copy, running.run) != (worker, run_id):
            return
        ts, ws = self.scheduler.tasks[key], self.scheduler.workers.get(worker)
        if ws is not None and ts.processing_on is not None and ts.processing_on is not ws:
            self._control.move(ts, ws, running.run)
            self._moved(key)
            self.won += 1

    def stealing(self) -> None:
        """Drop the copies of tasks that are about to be stolen.

        The thief may be the worker of the copy. Dask does not know that inputs are needed there,
        and may have dropped them: the stolen task would fail.
        """
        for ts in _stolen(self.scheduler):
            if (running := self.running.get(ts.key)) is not None and running.copied:
                self.seceded(ts.key)

    def seceded(self, key: Any) -> None:
        """Make no copy of a task that gave up its thread: it may wait for as long as it likes."""
        running = self.running.pop(key, None)
        if running is not None:
            self._alarm.forget(key)
            self._drop(key, running)


def _stolen(scheduler: Scheduler) -> Mapping[TaskState, Any]:
    """Return the tasks that work stealing has asked for, and has no answer about yet."""
    stealing = scheduler.extensions.get("stealing")
    return {} if stealing is None else stealing.in_flight


def _bytes_there(ts: TaskState, ws: WorkerState) -> int:
    return sum(dep.nbytes for dep in ts.dependencies if ws in (dep.who_has or ()))
