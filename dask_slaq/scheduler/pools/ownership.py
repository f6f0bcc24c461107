"""Which job a task belongs to: the one in whose block it was submitted, by its annotations."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.timers import Steps

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.scheduler.pools.pool import Pool
    from dask_slaq.scheduler.pools.pools import Pools

#: Annotation that names the job of a task, and prefix of the annotation for each job block in which
#: the task was built or computed.
ANNOTATION = "slaq_job"
BLOCK = "slaq_job:"

#: States of unfinished tasks that may need a worker.
_ADOPTED = ("waiting", "queued", "no-worker", "processing")


class TaskOwners:
    """Puts tasks into the pools of the `running` jobs, oldest first, or of unowned tasks.

    `pool_of_unowned` returns the pool of a client, and `is_contended` whether tasks must be held.
    """

    def __init__(
        self,
        pools: Pools,
        *,
        running: Mapping[str, object],
        pool_of_unowned: Callable[[str], Pool],
        is_contended: Callable[[], bool],
        fail: Callable[[BaseException], None],
    ) -> None:
        self._pools, self._running = pools, running
        self._pool_of_unowned, self._is_contended = pool_of_unowned, is_contended
        self._steps = Steps(fail, 0.005)

    def own(self, client: str, tasks: Iterable[Any]) -> None:
        """Put new tasks, by key, into the pools of their jobs, or of a client's unowned tasks."""
        mine: dict[str, list[Any]] = {}
        for key in tasks:
            ts = self._pools.scheduler.tasks[key]
            job = self._job_of(client, ts.annotations) if ts.annotations else None
            mine.setdefault(job or f"other:{client}", []).append(ts)
        for name, states in mine.items():
            pool = self._pools.pools.get(name)
            if pool is None:
                if all(ts.run_spec is None or ts.state != "released" for ts in states):
                    continue
                pool = self._pool_of_unowned(client)
            self._pools.tracker.own(pool, states)
        self._pools.hold(self._is_contended())

    def _job_of(self, client: str, annotations: dict[Any, Any]) -> str | None:
        """Return the running job of the client that a task's annotations name, or None.

        A task that was built in the block of a job that has ended belongs to the job in whose block
        it is computed; of several nested ones, to the newest.
        """
        job = annotations.get(ANNOTATION)
        if not isinstance(job, str):
            return None
        if self._has(client, job):
            return job
        if BLOCK + job not in annotations:  # a name by hand, which no job has
            return None
        keys = (key for key in annotations if isinstance(key, str) and key.startswith(BLOCK))
        around = {name for key in keys if self._has(client, name := key.removeprefix(BLOCK))}
        return next((name for name in reversed(list(self._running)) if name in around), None)

    def _has(self, client: str, job: str) -> bool:
        return job in self._running and self._pools.pools[job].client == client

    def adopt_all(self) -> None:
        """Adopt the unfinished tasks that clients submitted before the first job opened, in steps.

        Such tasks belong to no pool, because without jobs nothing is tracked. Left to Dask's queue,
        they would wait for as long as jobs have ready tasks, since pools fill slots before Dask.
        """
        self._steps.begin(self._adopt(), now=False)

    def cancel(self) -> None:
        """Adopt no more tasks."""
        self._steps.cancel()

    def _adopt(self) -> Iterator[None]:
        found, pools = self._unfinished(), self._pools
        while some := list(islice(found, self._steps.TOGETHER)):
            by_client: dict[str, list[TaskState]] = {}
            for client, ts in some:
                by_client.setdefault(client, []).append(ts)
            for client, tasks in by_client.items():
                pools.tracker.own(self._pool_of_unowned(client), tasks)
                if pools.tracker.holding:
                    pools.control.release(tasks, "held")  # those that wait already
                else:
                    pools.hold(self._is_contended())
            yield

    def _unfinished(self) -> Iterator[tuple[str, TaskState]]:
        """Yield each unowned, unfinished task with a client that waits for it."""
        scheduler, owner = self._pools.scheduler, self._pools.tracker.owner
        seen: set[TaskState] = set()
        for name, client in list(scheduler.clients.items()):
            wanted = list(client.wants_what)
            while wanted:
                ts = wanted.pop()
                if ts in seen or ts.state not in _ADOPTED:
                    continue
                seen.add(ts)
                wanted.extend(ts.waiting_on or ())
                if ts.run_spec is not None and ts.key not in owner:
                    yield name, ts
