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
from typing import Any

from distributed.scheduler import Scheduler, TaskState, WorkerState

from dask_slaq.core.dispatch import supplies
from dask_slaq.core.runtime import WorkerSpeeds
from dask_slaq.core.settings import SPARE_LABEL
from dask_slaq.scheduler.event_loop import Alarm, Soon
from dask_slaq.scheduler.pools import ByGroup, TaskControl, group_of, input_bytes, load

#: A task is late after this many times the upper quartile of the compute times of similar tasks.
LATE = 3.0
#: Seconds that a task is overdue before it is late: about what a copy takes to begin.
SOON = 0.1
#: A task is overdue from the beginning on a worker that is known to be this many times slower.
SLOW = 2.0
#: Compute times kept of similar tasks, and how many must be known.
KEPT, LEAST = 32, 4
#: Seconds without a look for late tasks, per second that a look at the threads that got free took.
REST = 20.0


#: Makes the compute times of similar tasks, in seconds on a median worker.
_times = partial(deque[float], maxlen=KEPT)


@dataclass(slots=True, eq=False)
class _Running:
    """Task on a worker that may get a copy."""

    worker: str
    times: deque[float]
    factor: float  # of the worker's times
    sent: float  # in monotonic seconds
    ahead: int  # tasks that must end on its thread before it starts
    copy: str = ""  # worker of the copy
    run: int = -1  # number of its run

    def due(self) -> float:
        """Return when the task is late, in monotonic seconds; infinite if unknown."""
        if len(self.times) < LEAST:
            return math.inf
        usual = sorted(self.times)[math.ceil(0.75 * len(self.times)) - 1]
        start = self.sent + self.ahead * usual * self.factor
        if self.factor > SLOW and (self.factor - 1.0) * usual > 2 * SOON:
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
        self.scheduler, self._speeds, self.made = scheduler, speeds, 0
        self._control, self._moved, self._listen = control, moved, listen
        self.begun = False  # whether any task may have a copy; until then none is followed
        self.running: dict[Any, _Running] = {}
        self._on: Counter[str] = Counter()  # copies by worker
        self._slow: Counter[str] = Counter()  # tasks that have a copy, by their own worker
        self._late: dict[Any, None] = {}  # keys of tasks for which no thread was idle
        self._soon = Soon(partial(enter, self._serve), REST)
        self._times = ByGroup[deque[float]]()
        self._alarm = Alarm(partial(enter, self._rang))

    def begin(self) -> None:
        """Follow tasks from now on, of which one may get a copy."""
        if not self.begun:
            self.begun = True
            self._listen()

    def stop(self) -> None:
        """Drop all copies."""
        for key, running in self.running.items():
            self._drop(key, running)
        for some in (self.running, self._on, self._slow, self._late):
            some.clear()
        self._alarm.cancel()
        self._soon.cancel()

    def transition(self, key: Any, start: str, finish: str, kwargs: dict[str, Any]) -> None:
        """Follow one transition of any task; `kwargs` are those of the plugin's hook."""
        if start == "processing":
            running = self._forget(key)
            if running is not None and finish == "memory":
                self._observe(running, kwargs.get("startstops") or ())
            self.look()
        if finish == "processing":
            ts = self.scheduler.tasks[key]
            ws = ts.processing_on
            if ws is not None and not ts.actor and (ts.annotations or {}).get(SPARE_LABEL):
                times = self._times.of(group_of(ts, input_bytes(ts)), _times)
                ahead = max(math.ceil(load(ws) / ws.nthreads) - 1, 0)
                factor = self._speeds.factor(ws.address, ts.prefix.name)
                running = _Running(ws.address, times, factor, monotonic(), ahead)
                self.running[key] = running
                self._look_at(key, running)

    def _observe(self, ended: _Running, startstops: Any) -> None:
        times, known = ended.times, len(ended.times)
        computed = (s["stop"] - s["start"] for s in startstops if s["action"] == "compute")
        times.extend(seconds / ended.factor for seconds in computed)
        if known < LEAST <= len(times):  # from now on it is known when they are late
            for key, running in self.running.items():
                if running.times is times:
                    self._look_at(key, running)

    def _forget(self, key: Any) -> _Running | None:
        """Follow a task no longer, and drop its copy. Returns what was known of it."""
        running = self.running.pop(key, None)
        if running is not None:
            self._alarm.forget(key)
            self._late.pop(key, None)
            self._drop(key, running)
        return running

    def look(self) -> None:
        """Look soon for late tasks, as a thread may be idle."""
        if self._late:
            self._soon.ask()

    def _serve(self) -> None:
        """Copy late tasks to the threads that are idle since none was for them."""
        with self._soon.work():
            idle = [ws for ws in self.scheduler.running if self._has_thread(ws)]
            for key in list(self._late) if idle else ():
                self._try(key)
                idle = [ws for ws in idle if self._has_thread(ws)]
                if not idle:
                    break

    def _has_thread(self, ws: WorkerState) -> bool:
        """Return whether a worker has an idle thread, and no late task of its own."""
        return not self._slow[ws.address] and ws.nthreads > load(ws) + self._on[ws.address]

    def _look_at(self, key: Any, running: _Running) -> None:
        if (due := running.due()) < math.inf:
            self._alarm.set(due, key)

    def _rang(self, keys: list[Any]) -> None:
        for key in keys:
            self._try(key)

    def _try(self, key: Any) -> None:
        """Copy a task if it is late. Without an idle thread it waits for one."""
        running, now = self.running.get(key), monotonic()
        self._late.pop(key, None)
        if running is None or running.copy:
            return
        ts = self.scheduler.tasks[key]
        there = ts.processing_on
        if there is not None and there.address != running.worker:  # stolen
            running.worker, running.sent, running.ahead = there.address, now, 0
            running.factor = self._speeds.factor(there.address, ts.prefix.name)
        if running.due() > now:  # similar tasks have taken longer since
            self._look_at(key, running)
        elif not self._copy(ts, running):
            self._late[key] = None

    def _copy(self, ts: TaskState, running: _Running) -> bool:
        """Send a copy of a late task to an idle thread. Returns whether there was one."""
        idle = list(self._idle(ts, running.worker))
        if not idle or ts in _stolen(self.scheduler):
            return False
        there = {
            ws: sum(dep.nbytes for dep in ts.dependencies if ws in (dep.who_has or ()))
            for ws in idle
        }
        ws = min(idle, key=lambda ws: (-there[ws], ws.address))
        running.copy = ws.address
        self._on[ws.address] += 1
        self._slow[running.worker] += 1
        self.made += 1
        running.run = self._control.send_copy(ts, ws)
        return True

    def _idle(self, ts: TaskState, there: str) -> Iterator[WorkerState]:
        """Yield workers with a thread for a task, except those with late tasks of their own."""
        allowed = self._control.allowed(ts)
        needs = (ts.resource_restrictions or {}).items()
        for ws in self.scheduler.running if allowed is None else allowed:
            if ws.address != there and self._has_thread(ws) and supplies(ws, needs):
                yield ws

    def _drop(self, key: Any, running: _Running) -> None:
        """Release a copy whose result is not used."""
        if running.copy:
            self._lose(running)
            ts, ws = self.scheduler.tasks.get(key), self.scheduler.workers.get(running.copy)
            if ts is None or ws not in (ts.who_has or ()):
                self._control.free(key, running.copy)

    def _lose(self, running: _Running) -> None:
        """Count the copy of a task no longer."""
        for counter, worker in ((self._on, running.copy), (self._slow, running.worker)):
            counter[worker] -= 1
            if not counter[worker]:
                del counter[worker]
        self.look()

    def forget_worker(self, worker: str) -> None:
        """Forget the copies on a worker that left. Their tasks may get another one."""
        for key, running in self.running.items():
            if running.copy == worker:
                self._lose(running)
                running.copy = ""
                self._alarm.set(monotonic(), key)

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

    def stealing(self) -> None:
        """Drop the copies of tasks that are about to be stolen.

        The thief may be the worker of the copy. Dask does not know that inputs are needed there,
        and may have dropped them: the stolen task would fail.
        """
        for ts in _stolen(self.scheduler):
            if (running := self.running.get(ts.key)) is not None and running.copy:
                self.seceded(ts.key)

    def seceded(self, key: Any) -> None:
        """Make no copy of a task that gave up its thread: it may wait for as long as it likes."""
        self._forget(key)
        self.look()


def _stolen(scheduler: Scheduler) -> Mapping[TaskState, Any]:
    """Return the tasks that work stealing has asked for, and has no answer about yet."""
    stealing = scheduler.extensions.get("stealing")
    return {} if stealing is None else stealing.in_flight
