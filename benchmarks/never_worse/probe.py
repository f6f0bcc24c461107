"""Observation of a run: when tasks computed or waited, and what was in memory.

Everything runs in one process, so tasks record their times where the laws read them.
"""

from __future__ import annotations

import asyncio
import functools
import re
import zlib
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from distributed import get_worker
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks import virtual

#: Stands in a key before the number of an attempt, which does not change the value of its task.
ATTEMPT = "~"


@dataclass
class Computed:
    """One execution of a task on a thread; times are virtual seconds."""

    who: str
    start: float
    stop: float = float("inf")
    seconds: float = 0.0


@dataclass
class Probe(SchedulerPlugin):
    """Scheduler plugin that observes a run, also under plain Dask.

    `arrived` has the time when the first task of a participant reached the scheduler, and
    `computed` the executions in order of their starts. `most_roots` and `most_bytes` were in memory
    at once. Results that a client wants do not count as bytes: they stay until it leaves, and jobs
    that share leave together. `idle` has the spans of time in which a task waited on the scheduler
    although a slot was free, `ready` those in which a participant had ready tasks that were not
    computing.
    """

    name: str = "never-worse-probe"
    arrived: dict[str, float] = field(default_factory=dict)
    computed: list[Computed] = field(default_factory=list)
    most_roots: int = 0
    most_bytes: int = 0
    idle: list[tuple[float, float]] = field(default_factory=list)
    ready: dict[str, list[tuple[float, float]]] = field(default_factory=dict)
    scheduler: Any = None
    _roots: set[Any] = field(default_factory=set)
    _bytes: dict[Any, int] = field(default_factory=dict)
    _held: int = 0
    _idle_since: float | None = None
    _ready_since: dict[str, float] = field(default_factory=dict)
    _running: dict[str, int] = field(default_factory=dict)
    _sampler: Any = None

    async def start(self, scheduler: Any) -> None:
        """Start sampling a scheduler."""
        self.scheduler = scheduler
        self._sampler = asyncio.ensure_future(self._sample())

    def stop(self) -> None:
        """Stop sampling, and close all open spans."""
        self._sampler.cancel()
        now = virtual.now()
        if self._idle_since is not None:
            self.idle.append((self._idle_since, now))
        for who, since in self._ready_since.items():
            self.ready.setdefault(who, []).append((since, now))

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Track the arrival of tasks and the results in memory."""
        if start == "released":
            self.arrived.setdefault(who_of(key), virtual.now())
        if finish == "memory":
            ts = self.scheduler.tasks[key]
            if ts.run_spec is not None:
                self._bytes[key] = 0 if ts.who_wants else max(ts.nbytes, 0)
                self._held += self._bytes[key]
                self.most_bytes = max(self.most_bytes, self._held)
                if str(key).startswith("root-"):
                    self._roots.add(key)
                    self.most_roots = max(self.most_roots, len(self._roots))
        elif start == "memory":
            self._roots.discard(key)
            self._held -= self._bytes.pop(key, 0)

    async def _sample(self) -> None:
        while True:
            await asyncio.sleep(0.02)
            self._look()

    def _look(self) -> None:
        now, scheduler = virtual.now(), self.scheduler
        free = any(_threads_used(ws) < ws.nthreads for ws in scheduler.running)
        if free and any(map(_anywhere, (*scheduler.queued, *scheduler.unrunnable))):
            if self._idle_since is None:
                self._idle_since = now
        elif self._idle_since is not None:
            self.idle.append((self._idle_since, now))
            self._idle_since = None
        self._look_who_is_ready(now)

    def _look_who_is_ready(self, now: float) -> None:
        """Update the spans in which participants have tasks, on workers or queued, that wait."""
        scheduler = self.scheduler
        have = Counter(who_of(ts.key) for ws in scheduler.workers.values() for ts in ws.processing)
        ready = {who for who, count in have.items() if count > self._running.get(who, 0)}
        for ts in (*scheduler.queued, *scheduler.unrunnable):
            who = who_of(ts.key)
            if who not in ready:
                ready.add(who)
        for who in ready - self._ready_since.keys():
            self._ready_since[who] = now
        for who in self._ready_since.keys() - ready:
            self.ready.setdefault(who, []).append((self._ready_since.pop(who), now))

    def begin(self, who: str) -> Computed:
        """Record that a task of `who` starts to compute."""
        run = Computed(who, virtual.now())
        self.computed.append(run)
        self._running[who] = self._running.get(who, 0) + 1
        return run

    def end(self, run: Computed) -> None:
        """Record that the execution ended."""
        run.stop = virtual.now()
        self._running[run.who] -= 1

    def core_seconds(self, who: str, begin: float, end: float) -> float:
        """Return the core-seconds of a participant in the window from `begin` to `end`."""
        return sum(
            max(min(run.stop, end) - max(run.start, begin), 0.0)
            for run in self.computed
            if run.who == who
        )

    def running_at(self, when: float) -> list[Computed]:
        """Return the executions that are in progress at time `when`."""
        return [run for run in self.computed if run.start <= when < run.stop]


@functools.lru_cache(maxsize=100_000)
def who_of(key: Any) -> str:
    """Return the participant NAME of a task with a key such as ``root-NAME.3-...``."""
    parts = str(key).split("-", 2)
    return parts[1].split(".")[0] if len(parts) > 1 else ""


def _threads_used(ws: Any) -> float:
    """Return the number of tasks on a worker that hold, or wait for, one of its threads.

    Those that wait there for a resource do not, although Dask counts them. Tasks of scenarios need
    one unit of one resource.
    """
    used = ws.used_resources.items()
    waiting = sum(max(amount - ws.resources.get(name, 0), 0) for name, amount in used)
    return len(ws.processing) - len(ws.long_running) - waiting


def _anywhere(ts: Any) -> bool:
    """Return whether any worker could run a task cheaply, ignoring the plugin's restrictions."""
    if ts.resource_restrictions or ts.host_restrictions or ts.loose_restrictions or ts.actor:
        return False
    if ts.worker_restrictions and not str(next(iter(ts.worker_restrictions))).startswith("slaq:"):
        return False
    return sum(dep.nbytes for dep in ts.dependencies) < 100_000


#: Stack of probes; the last one belongs to the current run.
current: list[Probe] = []


async def compute(*inputs: Any, name: str, seconds: float = 0.0, nbytes: int = 0) -> Any:
    """Emulate a task with the key `name`, for some virtual seconds.

    Returns a value that depends on the name and on all inputs, see `value_of`.
    """
    who = who_of(name)
    run = current[-1].begin(who)
    try:
        await asyncio.sleep(seconds)
    finally:
        current[-1].end(run)
    return value_of(name, inputs, nbytes)


def value_of(name: str, inputs: Any, nbytes: int = 0) -> Any:
    """Hash the name and the inputs of a task, to check that it got the right inputs.

    The value pretends to have `nbytes` bytes.
    """
    name = re.sub(f"{ATTEMPT}[0-9]+", "", name)
    number = zlib.crc32(repr((name, [_plain(i) for i in inputs])).encode())
    return virtual.Sized(number, nbytes) if nbytes else number


def _plain(value: Any) -> Any:
    if isinstance(value, virtual.Sized):
        return value.value
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    return value


async def give_up_slot(key: str) -> None:
    """Secede from a coroutine, as `distributed.secede` does from a thread."""
    from distributed.worker_state_machine import SecedeEvent

    worker = get_worker()
    worker.handle_stimulus(SecedeEvent(key=key, compute_duration=0.0, stimulus_id=f"secede-{key}"))
