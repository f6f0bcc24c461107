"""Which job a task belongs to: the one in whose block it was submitted, by its annotations.

What a task submits outside of any block belongs to the job of that task.
"""

from __future__ import annotations

import math
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import chain, islice
from operator import itemgetter
from typing import Any

from distributed.comm.core import Comm
from distributed.scheduler import TaskState

from dask_slaq.core.fairly import oldest_of_most
from dask_slaq.scheduler.event_loop import ChunkedWork
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.pools import Pools

#: Annotation that names the job of a task, and prefix of the annotation for each job block in which
#: the task was built or computed.
ANNOTATION = "slaq_job"
BLOCK = "slaq_job:"


#: States of unfinished tasks that may need a worker.
_ADOPTED = ("waiting", "queued", "no-worker", "processing")


class TaskPools:
    """Puts tasks into the pools of the `running` jobs, oldest first, or of unowned tasks.

    `pool_of_unowned` returns the pool of a client, and `is_contended` whether tasks must be held.
    `claimed` is called with the name of a job and a task of an earlier block of that name, and
    `outside` with a client that submits outside of any block, and the Unix time at which it was
    heard of: it returns whether a block was open. `is_of` returns whether a job is of the client of
    a connection, and `alike` whether two connections are of one machine and name.
    """

    def __init__(
        self,
        pools: Pools,
        *,
        running: Mapping[str, object],
        pool_of_unowned: Callable[[str], Pool],
        is_contended: Callable[[], bool],
        claimed: Callable[[str, TaskState], None],
        outside: Callable[[str, float], bool],
        is_of: Callable[[str, Any], bool],
        alike: Callable[[Any, Any], bool],
        enter: Callable[..., Any],
    ) -> None:
        self._is_of, self._alike = is_of, alike
        self._pools, self._running, self._claimed = pools, running, claimed
        self._outside = outside
        self._told: set[str] = set()  # clients that were told that they submit outside of a block
        # Clients and names of ended jobs that left unfinished tasks.
        self._left: OrderedDict[tuple[str, str], None] = OrderedDict()
        self._pool_of_unowned, self._is_contended = pool_of_unowned, is_contended
        self._steps = ChunkedWork(enter, 0.005)
        self._todo: deque[Iterator[None]] = deque()

    def own(
        self,
        client: str,
        tasks: Iterable[Any],
        wanted: Iterable[Any] = (),
        received: float = -math.inf,
        submitter: Any = None,
        comm: Comm | None = None,
        block: object = None,
    ) -> None:
        """Put the tasks of a graph, by key, into the pools of their jobs, or of unowned tasks.

        `wanted` are the keys of which the client wants results, and `received` is the Unix time at
        which the graph came. If a task has submitted it, `submitter` is the key of that task, whose
        pool theirs are in, unless they are in the block of another job. That key is believed of the
        client of that job, and of a connection `comm` from the machine of the task's worker.
        `block` is the job in whose block the graph was sent: tasks that are known are of others.
        """
        parent = self._running_task(submitter)
        around = None if parent is None else self._pools.records.job_of(parent.key)
        by_job = self._by_job(client, tasks, comm)
        of_none = by_job.pop("", [])
        if around is not None and of_none and self._may_name(client, around, parent, comm):
            by_job.setdefault(around, []).extend(of_none)
            of_none = []
        if of_none and not by_job and block is None:
            self._warn_of_outside(client, wanted, received)
        pools, unowned = self._pools.pools, f"other:{client}"
        if of_none and (unowned in pools or any(map(_is_new, of_none))):
            by_job.setdefault(self._pool_of_unowned(client).name, []).extend(of_none)
        for name, some in by_job.items():
            self._pools.records.own(pools[name], some, parent if name == around else None)
        self._pools.hold(self._is_contended())

    def _by_job(
        self, client: str, keys: Iterable[Any], comm: Comm | None
    ) -> dict[str, list[TaskState]]:
        """Return tasks by the job that their annotations name, "" if none."""
        found: dict[str, list[TaskState]] = {}
        sure: set[Any] = set()  # names in annotations that were found to be of such a job
        for key in keys:
            ts, job = self._pools.scheduler.tasks[key], None
            if notes := ts.annotations:
                job = notes.get(ANNOTATION)
                if not isinstance(job, str) or job not in sure:
                    job = self._job_of(client, notes, comm)
                    sure.add(job)
            found.setdefault(job or "", []).append(ts)
        return found

    def _warn_of_outside(self, client: str, wanted: Iterable[Any], received: float) -> None:
        """Tell a client once that it submits outside of its open block, if it has one.

        Results that were known before are of another block, or of none on purpose.
        """
        tasks = self._pools.scheduler.tasks
        known = client in self._told or not any(_is_new(tasks[key]) for key in wanted)
        if not known and self._outside(client, received):
            self._told.add(client)

    def _running_task(self, key: Any) -> TaskState | None:
        """Return the task of a key that a message names, if it runs."""
        ts = None
        if isinstance(key, str | tuple):
            with suppress(TypeError):  # not a key
                ts = self._pools.scheduler.tasks.get(key)
        return None if ts is None or ts.processing_on is None else ts

    def _may_name(
        self, client: str, around: str, parent: TaskState | None, comm: Comm | None
    ) -> bool:
        """Return whether a client is believed that a task in the pool `around` has submitted tasks.

        Any client may name any task, but one in its process is on the machine of its worker.
        """
        if comm is None or around == f"other:{client}" or self._is_of(around, comm):
            return True
        ws = None if parent is None else parent.processing_on
        stream: Any = None if ws is None else self._pools.scheduler.stream_comms.get(ws.address)
        return stream is not None and self._alike(stream.comm, comm)

    def _job_of(
        self, client: str, annotations: dict[Any, Any], comm: Comm | None = None
    ) -> str | None:
        """Return the running job of the client that a task's annotations name, or None.

        A task that was built in the block of a job that has ended belongs to the job in whose block
        it is computed; of several nested ones, to the newest.
        """
        job = annotations.get(ANNOTATION)
        if not isinstance(job, str):
            return None
        if self._has(client, job, comm):
            return job
        if BLOCK + job not in annotations:  # a name by hand, which no job has
            return None
        keys = (key for key in annotations if isinstance(key, str) and key.startswith(BLOCK))
        around = {name for key in keys if self._has(client, name := key.removeprefix(BLOCK), comm)}
        return next((name for name in reversed(list(self._running)) if name in around), None)

    def _has(self, client: str, job: str, comm: Comm | None = None) -> bool:
        if job not in self._running or self._pools.pools[job].client != client:
            return False
        return comm is None or self._is_of(job, comm)  # another one may have taken its name

    def adopt(self, name: str) -> None:
        """Adopt in steps what was submitted before the job `name` opened.

        An earlier block of this name may have left tasks, as a notebook's cell does that is
        interrupted and run again: they belong to the job. When the first job opens, so do the
        unfinished tasks of all clients to them. Such tasks belong to no pool, because without jobs
        nothing is tracked. Left to Dask's queue, they would wait for as long as jobs have ready
        tasks, since pools fill slots before Dask.
        """
        client = self._pools.pools[name].client
        if (client, name) in self._left:
            del self._left[client, name]
            self._todo.append(self._claim(client, name))
        if len(self._running) == 1:
            self._todo.append(self._adopt())
        if self._todo and not self._steps.pending:
            self._steps.begin(self._work(), now=False)

    def ended(self, name: str, *, failed: bool) -> None:
        """Remember whether a job that ends leaves unfinished tasks; any if its block `failed`."""
        pool = self._pools.pools.get(name)
        if pool is None or not pool.reports:
            return
        self._told.discard(pool.client)
        if pool.unfinished or (failed and pool.tasks):
            self._left[pool.client, name] = None
            while len(self._left) > 1000:
                del self._left[oldest_of_most(self._left, itemgetter(0))]

    def cancel(self) -> None:
        """Adopt no more tasks."""
        self._steps.cancel()
        self._todo.clear()

    def _work(self) -> Iterator[None]:
        while self._todo:
            yield from self._todo.popleft()

    def _adopt(self) -> Iterator[None]:
        found = self._unfinished()
        while some := list(islice(found, self._steps.TOGETHER)):
            by_client: dict[str, list[TaskState]] = {}
            for client, ts in some:
                by_client.setdefault(client, []).append(ts)
            for client, tasks in by_client.items():
                self._take(self._pool_of_unowned(client), tasks)
            yield

    def _claim(self, client: str, name: str) -> Iterator[None]:
        found = self._named(client, name)
        while some := list(islice(found, self._steps.TOGETHER)):
            if not self._has(client, name):
                return
            self._take(self._pools.pools[name], some)
            for ts in some:
                self._claimed(name, ts)
            yield

    def _take(self, pool: Pool, tasks: list[TaskState]) -> None:
        """Put tasks into a pool that were submitted before it opened."""
        pools = self._pools
        pools.records.own(pool, tasks)
        if pools.records.holding:
            pools.control.release(tasks, "held")  # those that wait already
        else:
            pools.hold(self._is_contended())

    def _unfinished(self) -> Iterator[tuple[str, TaskState]]:
        """Yield each unowned, unfinished task with a client that waits for it."""
        scheduler, pool_of = self._pools.scheduler, self._pools.records.pool_of
        seen: set[TaskState] = set()
        for name, client in list(scheduler.clients.items()):
            for ts in _behind(client.wants_what, seen):
                if ts.run_spec is not None and ts.key not in pool_of:
                    yield name, ts

    def _named(self, client: str, job: str) -> Iterator[TaskState]:
        """Yield what a client waits for, or has, that was submitted in a block of this name."""
        state = self._pools.scheduler.clients.get(client)
        wanted = list(state.wants_what) if state is not None else []
        done = (ts for ts in wanted if ts.state not in _ADOPTED)
        for ts in chain(done, _behind(wanted, set())):
            if ts.annotations and self._job_of(client, ts.annotations) == job:
                yield ts


def _is_new(ts: TaskState) -> bool:
    """Return whether a task has just been submitted, to be computed."""
    return ts.state == "released" and ts.run_spec is not None


def _behind(wanted: Iterable[TaskState], seen: set[TaskState]) -> Iterator[TaskState]:
    """Yield unfinished tasks, and what they wait for, which were not seen before."""
    found = list(wanted)
    while found:
        ts = found.pop()
        if ts in seen or ts.state not in _ADOPTED:
            continue
        seen.add(ts)
        found.extend(ts.waiting_on or ())
        yield ts
