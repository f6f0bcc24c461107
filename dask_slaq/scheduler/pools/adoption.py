"""Adoption of the unfinished tasks that clients submitted before the first job opened.

Such tasks belong to no pool, because without jobs nothing is tracked. Left to Dask's queue, they
would wait for as long as jobs have ready tasks, since pools fill slots before Dask's queue does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import islice
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.scheduler.jobs import ScheduledJobs
    from dask_slaq.scheduler.pools.task_owners import TaskOwners

__all__ = ["Adoption"]

#: Number of tasks adopted together, maximum number of such batches per step of the event loop, and
#: seconds after which a step ends. The clock may be virtual and stand still within a step.
TOGETHER, TIMES, STEP = 50, 10, 0.005
#: States of tasks that are not finished.
UNFINISHED = frozenset({"waiting", "queued", "processing"})


class Adoption:
    """Adoption of unowned tasks, in steps that do not block the scheduler.

    Parameters
    ----------
    jobs : ScheduledJobs
    owners : TaskOwners
    fail : callable
        Called with the error if a step fails.
    """

    def __init__(
        self, jobs: ScheduledJobs, owners: TaskOwners, fail: Callable[[BaseException], None]
    ) -> None:
        self._jobs, self._owners, self._fail = jobs, owners, fail
        self._found: Iterator[tuple[str, TaskState]] = iter(())
        self._handle: asyncio.Handle | None = None

    def begin(self) -> None:
        """Adopt all unfinished tasks, beginning with the next step of the event loop."""
        self.cancel()
        self._found = self._unfinished()
        self._handle = asyncio.get_running_loop().call_soon(self._step)

    def cancel(self) -> None:
        """Adopt no more tasks."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._found = iter(())

    def _step(self) -> None:
        self._handle, begin = None, perf_counter()
        try:
            for _ in range(TIMES):
                if not self._adopt_some() or perf_counter() - begin > STEP:
                    break
        except Exception as error:
            self._fail(error)

    def _adopt_some(self) -> bool:
        """Adopt a batch of tasks. Returns whether there may be more."""
        by_client: dict[str, list[TaskState]] = {}
        for client, ts in islice(self._found, TOGETHER):
            by_client.setdefault(client, []).append(ts)
        for client, tasks in by_client.items():
            self._owners.adopt(client, tasks)
        if by_client and self._handle is None:
            self._handle = asyncio.get_running_loop().call_soon(self._step)
        return bool(by_client)

    def _unfinished(self) -> Iterator[tuple[str, TaskState]]:
        """Yield each unowned, unfinished task with a client that waits for it."""
        scheduler, owner = self._jobs.scheduler, self._jobs.pools.tracker.owner
        seen: set[TaskState] = set()
        for name, client in list(scheduler.clients.items()):
            wanted = list(client.wants_what)
            while wanted:
                ts = wanted.pop()
                if ts in seen or ts.state not in UNFINISHED:
                    continue
                seen.add(ts)
                wanted.extend(ts.waiting_on or ())
                if ts.run_spec is not None and ts.key not in owner:
                    yield name, ts
