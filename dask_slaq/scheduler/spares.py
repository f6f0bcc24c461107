"""Spare copies of late tasks: a second worker computes the same task, and the first result counts.

Dask computes a key on one worker. A copy is another run of the same task, which the scheduler does
not expect: it drops what comes of it. If the copy ends first, the task is moved there, as work
stealing moves tasks, before Dask reads the message. If it fails or its worker is lost, nothing has
changed.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import supplies
from dask_slaq.core.settings import SPARE_LABEL
from dask_slaq.scheduler.event_loop import Alarm, Soon
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
#: Seconds without a look for late tasks, per second that a look at the threads that got free took.
REST = 20.0


class _Times(deque[float]):
    """Compute times of similar tasks, and those that run while too few are known, by key."""

    def __init__(self) -> None:
        super().__init__(maxlen=KEPT)
        self.asked: dict[Any, _Running] = {}


@dataclass(slots=True, eq=False)
class _Running:
    """Task on a worker that may get a copy."""

    worker: str
    times: _Times  # of similar tasks, in seconds on a median worker
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
        self.scheduler, self.made = scheduler, 0
        self._control, self._moved, self._listen = control, moved, listen
        self.begun = False  # whether any task may have a copy; until then none is followed
        self.running: dict[Any, _Running] = {}
        self._on: Counter[str] = Counter()  # copies by worker
        self._slow: Counter[str] = Counter()  # tasks that have a copy, by their own worker
        self._unstarted: dict[str, dict[Any, _Running]] = {}  # by worker and key
        self._late: dict[Any, None] = {}  # keys of tasks for which no thread was idle
        self._freed: set[str] = set()  # workers that may have an idle thread since
        self._soon = Soon(partial(enter, self._serve), REST)
        self._times = ByGroup[_Times]()
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
        for some in (self.running, self._on, self._slow, self._unstarted, self._late):
            some.clear()
        self._alarm.cancel()
        self._soon.cancel()

    def transition(self, key: Any, start: str, finish: str, kwargs: dict[str, Any]) -> None:
        """Follow one transition of any task; `kwargs` are those of the plugin's hook."""
        if start == "processing":
            running = self._forget(key)
            if running is not None and finish == "memory":
                self._observe(running, kwargs.get("startstops") or ())
            if self.running:
                self._thread_freed(str(kwargs.get("worker")))
        if finish == "processing":
            ts = self.scheduler.tasks[key]
            ws = ts.processing_on
            if ws is not None and not ts.actor and (ts.annotations or {}).get(SPARE_LABEL):
                group = group_of(ts, input_bytes(ts))
                times = self._times.of(group, _Times)
                now, ahead = monotonic(), math.ceil(load(ws) / ws.nthreads) - 1
                starts = None if ahead > 0 else now
                factor = self._speeds.factor(ws.address, ts.prefix.name)
                running = _Running(ws.address, times, factor, now, ahead, starts)
                self.running[key] = running
                if len(times) < LEAST:
                    times.asked[key] = running
                if starts is None:
                    self._unstarted.setdefault(ws.address, {})[key] = running
                self._look_at(key, running.due())

    def _observe(self, ended: _Running, startstops: Any) -> None:
        times = ended.times
        computed = (s["stop"] - s["start"] for s in startstops if s["action"] == "compute")
        times.extend(seconds / ended.factor for seconds in computed)
        if times.asked and len(times) >= LEAST:  # from now on it is known when they are late
            asked, times.asked = times.asked, {}
            for key, running in asked.items():
                self._look_at(key, running.due())

    def _forget(self, key: Any) -> _Running | None:
        """Follow a task no longer, and drop its copy. Returns what was known of it."""
        running = self.running.pop(key, None)
        if running is not None:
            self._alarm.forget(key)
            self._late.pop(key, None)
            running.times.asked.pop(key, None)
            self._starts(key, running)
            self._drop(key, running)
        return running

    def _starts(self, key: Any, running: _Running) -> None:
        """Wait no longer for the start of a task on its worker."""
        if (there := self._unstarted.get(running.worker)) is not None:
            there.pop(key, None)
            if not there:
                del self._unstarted[running.worker]

    def _thread_freed(self, worker: str) -> None:
        self.look(worker)
        for key, running in self._unstarted.get(worker, {}).items():
            running.start = monotonic()
            self._starts(key, running)
            self._look_at(key, running.due())
            return

    def look(self, worker: str) -> None:
        """Let a worker that may have an idle thread have a late task, unless it has others soon."""
        if self._late:
            self._freed.add(worker)
            self._soon.ask()

    def _serve(self) -> None:
        """Copy late tasks to the threads that are idle since nobody was for them."""
        workers = self.scheduler.workers
        with self._soon.work():
            freed, self._freed = self._freed, set()
            idle = [ws for a in freed if (ws := workers.get(a)) and self._has_thread(ws)]
            for key in list(self._late) if idle else ():
                self._try(key, idle)
                idle = [ws for ws in idle if self._has_thread(ws)]
                if not idle:
                    break

    def _has_thread(self, ws: WorkerState) -> bool:
        """Return whether a worker has an idle thread, and no late task of its own."""
        if ws not in self.scheduler.running or self._slow[ws.address]:
            return False
        return ws.nthreads > load(ws) + self._on[ws.address]

    def _look_at(self, key: Any, when: float) -> None:
        if when < math.inf:
            self._alarm.set(when, key)

    def _rang(self, keys: list[Any]) -> None:
        for key in keys:
            self._try(key, None)

    def _try(self, key: Any, idle: Collection[WorkerState] | None) -> None:
        """Copy a task if it is late, to one of these workers, or to any.

        If none of them has a thread for it, it waits for one that gets free.
        """
        running, now = self.running.get(key), monotonic()
        self._late.pop(key, None)
        if running is None or running.copied:
            return
        ts = self.scheduler.tasks[key]
        there = ts.processing_on
        if there is not None and there.address != running.worker:  # stolen
            self._starts(key, running)
            running.worker, running.start = there.address, now
            running.factor = self._speeds.factor(there.address, ts.prefix.name)
        if running.due() > now:  # similar tasks have taken longer since
            self._look_at(key, running.due())
        elif not self._copy(ts, running, idle):
            self._late[key] = None

    def _copy(
        self, ts: TaskState, running: _Running, among: Collection[WorkerState] | None
    ) -> bool:
        """Send a copy of a late task to an idle thread. Returns whether there was one."""
        idle = list(self._idle(ts, running.worker, among))
        if not idle or ts in _stolen(self.scheduler):
            return False
        name = ts.prefix.name
        factor = {ws: self._speeds.factor(ws.address, name) for ws in idle}
        ws = min(idle, key=lambda ws: (factor[ws], -_bytes_there(ts, ws), ws.address))
        if factor[ws] >= running.factor > SLOW:
            return False  # it would not end sooner
        running.copied, running.copy = True, ws.address
        self._on[ws.address] += 1
        self._slow[running.worker] += 1
        self.made += 1
        running.run = self._control.send_copy(ts, ws)
        return True

    def _idle(
        self, ts: TaskState, there: str, among: Collection[WorkerState] | None
    ) -> Iterator[WorkerState]:
        """Yield workers with a thread for a task, except those with late tasks of their own."""
        allowed = self._control.allowed(ts)
        needs = (ts.resource_restrictions or {}).items()
        some = self.scheduler.running if allowed is None else allowed
        for ws in some if among is None else among:
            fits = ws.address != there and (among is None or ws in some)
            if fits and self._has_thread(ws) and supplies(ws, needs):
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
            self.look(worker)

    def forget_worker(self, worker: str) -> None:
        """Forget the copies on a worker that left. Their tasks may get another one."""
        for key, running in self.running.items():
            if running.copy == worker:
                self._lose(running)
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
        self._forget(key)
        ts = self.scheduler.tasks.get(key)
        if ts is not None and ts.processing_on is not None:
            self.look(ts.processing_on.address)


def _stolen(scheduler: Scheduler) -> Mapping[TaskState, Any]:
    """Return the tasks that work stealing has asked for, and has no answer about yet."""
    stealing = scheduler.extensions.get("stealing")
    return {} if stealing is None else stealing.in_flight


def _bytes_there(ts: TaskState, ws: WorkerState) -> int:
    return sum(dep.nbytes for dep in ts.dependencies if ws in (dep.who_has or ()))
