"""Limits by label: a maximum of tasks in ``dask.annotate(slaq_limit=LABEL)`` that run at once.

A task counts from when it is sent to a worker until it leaves it. One that is ready while its label
is full waits in state ``no-worker``: in the pool of its job, where the dispatcher passes it over,
if tasks are held; here otherwise, until a task of its label ends. It needs no job.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from time import monotonic
from typing import Any

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.core.dispatch import DurationEstimate, Handover, JobQueue, Ready
from dask_slaq.core.settings import LIMIT_LABEL as LABEL
from dask_slaq.core.settings import shown
from dask_slaq.scheduler.event_loop import ChunkedWork
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.records import TaskRecords
from dask_slaq.scheduler.pools.task_control import TaskControl
from dask_slaq.scheduler.pools.wakes import Wakes

logger = logging.getLogger(__name__)

#: Maximum number of unknown labels that are logged.
MOST_LOGGED = 100


def label_given(ts: TaskState) -> str | None:
    """Return the label that the user gave a task, whether it has a limit or not."""
    if not ts.annotations or ts.actor:
        return None
    label = ts.annotations.get(LABEL)
    return label if isinstance(label, str) else None


class Limits:
    """Limits of a scheduler, and the tasks that wait for them. False if there are none.

    `records` tell whether a ready task waits in the pool of its job; `wakes` have pools look when a
    full label has room again.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        control: TaskControl,
        records: TaskRecords,
        wakes: Wakes,
        enter: Callable[..., Any],
    ) -> None:
        self.scheduler, self._control = scheduler, control
        self._records, self._wakes, self._enter = records, wakes, enter
        self.most: dict[str, int] = {}  # tasks at once, by label
        self.used: Counter[str] = Counter()
        self._running: dict[Any, str] = {}  # label of each task that counts, by key
        self._waiting: dict[str, Ready[Handover]] = {}  # tasks that wait in no pool, by label
        self._entries: dict[Any, Handover] = {}  # these, by key
        self._count, self._steps = itertools.count(), ChunkedWork(enter)
        self._logged: set[str] = set()
        self._nobody = JobQueue("")  # these are of no pool
        self._first_here = self._reserved = False
        self._later: asyncio.TimerHandle | None = None

    def __bool__(self) -> bool:
        return bool(self.most)

    def label_of(self, ts: TaskState) -> str | None:
        """Return the label of a task, None if it has none with a limit. Actors are not limited."""
        label = label_given(ts) if self.most else None
        return label if label in self.most else None

    def free(self, label: str | None) -> float:
        """Return how many more tasks of a label may run."""
        if label is None or label not in self.most:
            return float("inf")
        return max(self.most[label] - self.used[label], 0)

    def free_in_pools(self, label: str | None) -> float:
        """Return how many more tasks of a label may go from pools now."""
        if label is not None and self._reserved and self._entries:
            return 0.0
        return self.free(label)

    def runs(self, label: str) -> bool:
        """Return whether a task of a label runs."""
        return self.used[label] > 0

    def is_held(self, ts: TaskState) -> bool:
        """Return whether a ready task must wait because its label is full."""
        return not self.free(self.label_of(ts))

    def blocked(self, pool: Pool) -> int:
        """Return the number of ready tasks of a pool that their labels leave no room for."""
        ready: Counter[str] = Counter()
        for constraints, tasks in pool.filed.items() if self.most else ():
            if constraints.label is not None:
                ready[constraints.label] += len(tasks)
        return sum(int(max(count - self.free(label), 0)) for label, count in ready.items())

    def set(self, most: Mapping[str, int]) -> None:
        """Replace the limits, and count the tasks of their labels."""
        self.most = dict(most)
        tasks = self.scheduler.tasks.values() if most else ()
        labels = ((ts.key, self.label_of(ts)) for ts in tasks if ts.state == "processing")
        self._running = {key: label for key, label in labels if label is not None}
        self.used = Counter(self._running.values())
        self._waiting.clear()
        self._entries.clear()
        self.look_again()

    def look_again(self) -> None:
        """Try all tasks of labels that wait in no pool: a worker joined, or the limits changed."""
        if not self.most:
            return
        for ts in self.scheduler.unrunnable:
            label = self.label_of(ts)
            if label is not None and not self._records.in_pool(ts):
                self._wait(label, ts)
        self._wake()

    def transition(self, key: Any, start: str, finish: str) -> None:
        """Follow one transition of any task."""
        if start == "processing" and (label := self._running.pop(key, None)) is not None:
            was_full = not self.free(label)
            self.used[label] -= 1
            if was_full:
                self._wake()
        elif start == "no-worker":
            self._leave(key)
        if finish not in ("processing", "no-worker"):
            return
        ts = self.scheduler.tasks[key]
        label = self.label_of(ts)
        if label is None:
            return
        if finish == "processing":
            self._running[key] = label
            self.used[label] += 1
        elif not (self._records.in_pool(ts) or self.free(label)):
            # With room in its label, no worker may run it, and Dask tries again when one joins.
            self._wait(label, ts)

    def keep_waiting(self) -> None:
        """Restart ``no-workers-timeout`` for tasks that wait for their label only."""
        for entry in self._entries.values():
            if self.is_held(entry.ts):
                self.scheduler.unrunnable.pop(entry.ts, None)
                self.scheduler.unrunnable[entry.ts] = monotonic()

    @property
    def waiting(self) -> int:
        """Number of tasks that wait in no pool."""
        return len(self._entries)

    def as_dict(self) -> dict[str, dict[str, int]]:
        """Return the limit of each label, ``most``, and its ``running`` and ``waiting`` tasks."""
        waits = chain(self.scheduler.unrunnable, self.scheduler.queued) if self.most else ()
        waiting = Counter(map(self.label_of, waits))
        return {
            label: {"most": most, "running": self.used[label], "waiting": waiting[label]}
            for label, most in self.most.items()
        }

    def log_unknown(self, annotations: Mapping[str, Mapping[Any, Any]]) -> None:
        """Log each label of new tasks that has no limit, once."""
        for label in {v if isinstance(v, str) else shown(v) for v in annotations[LABEL].values()}:
            new = label not in self.most and label not in self._logged
            if new and len(self._logged) < MOST_LOGGED:
                self._logged.add(label)
                known = ", ".join(self.most) or "none"
                logger.warning(
                    "tasks are labelled %s=%s, which has no limit; slaq.limits has: %s",
                    *(LABEL, shown(label), known),
                )

    def _wait(self, label: str, ts: TaskState) -> None:
        if ts.key in self._entries:
            return
        rank = False, ts.priority or (), next(self._count)
        entry = Handover(self._nobody, ts, DurationEstimate(), rank)
        self._entries[ts.key] = entry
        self._waiting.setdefault(label, Ready()).push(entry)

    def _leave(self, key: Any) -> None:
        if (entry := self._entries.pop(key, None)) is not None:
            for ready in self._waiting.values():
                ready.pop(entry)

    def _wake(self) -> None:
        """Let tasks of labels go soon. Those here and those in pools choose first in turn."""
        if self._entries and not self._reserved:
            first = self._later is not None or not (self._first_here and self._records.holding)
            if self._later is not None:  # pools had their choice
                self._later.cancel()
            self._first_here = self._reserved = first
            # Not at once: the cause may be a transition. Pools have 20 ms to take slots first.
            delay = 0 if first else 0.020
            self._later = asyncio.get_running_loop().call_later(delay, self._enter, self._go)
        self._wakes.soon()

    def _go(self) -> None:
        self._later = None
        if not self._steps.pending:
            self._steps.begin(self._fill())

    def _fill(self) -> Iterator[None]:
        """Release the first tasks of each label while it has room: Dask chooses their workers."""
        for label in list(self._waiting):
            while first := self._first(label):
                self._control.release(first, f"{label} has room")
                yield
        self._reserved = False
        if any(ready and self.free(label) for label, ready in self._waiting.items()):
            self._wake()  # one of an earlier label has ended meanwhile
        self._wakes.soon()  # for pools to take what is left

    def _first(self, label: str) -> list[TaskState]:
        found: list[TaskState] = []
        ready = self._waiting.get(label, Ready())
        most = min(self.free(label), ChunkedWork.TOGETHER)
        while len(found) < most and (entry := ready.at()) is not None:
            # Not tried again if no worker may run it, until one joins.
            self._leave(entry.ts.key)
            found.append(entry.ts)
        return found
