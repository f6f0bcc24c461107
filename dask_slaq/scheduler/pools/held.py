"""Memory that the results of owners hold, while the memory of any owner is limited.

A result counts for who computed it until the cluster forgets it, whoever holds it then; scattered
data for whose client holds it. Copies on further workers count once: Dask makes and drops them.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch import ANY, GROWS, NOT_DATA, Stored

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler, TaskState

    from dask_slaq.core.dispatch import TaskKind
    from dask_slaq.core.owners import Owners
    from dask_slaq.scheduler.pools.pool import Pool

__all__ = ["HeldMemory"]

#: A task adds to the memory if it makes over this many times its part of what its inputs hold.
TIMES = 10
#: Part of an input that counts if neither it nor the result is ever freed by itself.
KEPT = 0.01
#: Annotation of the models of searches, which take turns: none waits for another to begin.
MODEL = "slaq_search"
#: Links of a chain of tasks that is followed to who waits for its end.
MOST_LINKS = 100


class HeldMemory:
    """Bytes by owner and team, from `follow` on. `owner_of` returns the owner of a client."""

    def __init__(
        self,
        scheduler: Scheduler,
        pool_of: Mapping[Any, Pool],
        owner_of: Callable[[str], str],
    ) -> None:
        self._scheduler, self._pool_of, self._owner_of = scheduler, pool_of, owner_of
        self._results: dict[Any, tuple[str, float]] = {}  # owner and bytes, by key
        self._running: dict[Any, tuple[str, tuple[Stored, ...]]] = {}  # name, by key
        self._stored: dict[str, Stored] = {}
        self._before: dict[str, Stored] = {}  # of earlier limits, for the sizes of results
        self._lines: dict[str, tuple[Stored, ...]] = {}
        self._owners: Owners
        self._terms: object = None

    def follow(self, owners: Owners) -> None:
        """Apply the limits of `owners`, and count what there is."""
        self._owners, self._terms = owners, owners.terms
        results, self._results = self._results, {}
        self._before, self._stored, self._lines, self._running = self._stored, {}, {}, {}
        for ts in self._scheduler.tasks.values():
            if ts.state == "memory":
                owner, _ = results.get(ts.key) or (self._maker(ts), 0.0)
                self._keep(ts, owner)
            elif ts.state == "processing":
                self._start(ts)

    def is_of(self, owners: Owners) -> bool:
        """Return whether the limits of `owners` are applied as they are."""
        return self._owners is owners and self._terms is owners.terms

    def of(self, name: str) -> Stored | None:
        """Return the memory of an owner, or of a team with a slash; None without a limit.

        The machines of an owner whose name has terms count together.
        """
        account = name if name.endswith("/") else self._owners.account_of(name)
        if (found := self._stored.get(account)) is None:
            most = self._owners.of(name).max_memory
            if most == math.inf:
                return None
            found = Stored(most, self._per_thread(), self._before.get(account))
            self._stored[account] = found
        return found

    def _per_thread(self) -> float:
        """Return the bytes of memory that workers have per thread; 0 if they have no limits."""
        workers = self._scheduler.workers.values()
        return sum(ws.memory_limit for ws in workers) / max(self._scheduler.total_nthreads, 1)

    def line(self, owner: str) -> tuple[Stored, ...]:
        """Return the memory of an owner and its teams, of each that has a limit."""
        found = self._lines.get(owner)
        if found is None:
            each = map(self.of, self._owners.line(owner))
            found = self._lines[owner] = tuple(stored for stored in each if stored is not None)
        return found

    def transition(self, ts: TaskState, start: str, finish: str) -> bool:
        """Follow one transition of any task, while its pool is known still.

        Returns whether memory was freed, so that tasks that wait may have room.
        """
        freed = False
        if start == "processing":
            self._end(ts)
        elif start == "memory":
            owner, nbytes = self._results.pop(ts.key, ("", 0.0))
            for stored in self.line(owner) if nbytes else ():
                stored.held -= nbytes
                freed = True
        if finish == "processing":
            self._start(ts)
        elif finish == "memory":
            self._keep(ts, self._maker(ts))
        return freed

    def lend(self, ts: TaskState, lends: bool) -> None:
        """Count a task that waits for tasks of its own as one that makes nothing, or no longer.

        Else these might wait for room that it leaves once they have ended.
        """
        if lends:
            self._end(ts)
        elif ts.state == "processing" and ts.key not in self._running:
            self._start(ts)

    def _end(self, ts: TaskState) -> None:
        name, line = self._running.pop(ts.key, ("", ()))
        for stored in line:
            stored.running[name] -= 1

    def _start(self, ts: TaskState) -> None:
        pool = self._pool_of.get(ts.key)
        if pool is not None and not _is_model(ts) and (line := self.line(pool.owner)):
            self._running[ts.key] = ts.prefix.name, line
            for stored in line:
                stored.running[ts.prefix.name] += 1

    def _keep(self, ts: TaskState, owner: str) -> None:
        if line := self.line(owner):
            nbytes = float(max(ts.nbytes, 0))
            self._results[ts.key] = owner, nbytes
            for stored in line:
                stored.observe(ts.prefix.name, nbytes)

    def _maker(self, ts: TaskState) -> str:
        """Return the owner of the pool of a task, or else of who waits for its result."""
        if (pool := self._pool_of.get(ts.key)) is not None:
            return pool.owner
        for _ in range(MOST_LINKS):
            if ts.who_wants or not ts.waiters:
                break
            ts = next(iter(ts.waiters))
        return next((self._owner_of(cs.client_key) for cs in ts.who_wants or ()), "")

    def kind(self, ts: TaskState, owner: str, kind: TaskKind) -> TaskKind:
        """Return the kind of a ready task, which tells whether it adds to the memory of its owner.

        Tasks do not that use up what they make at most ten times as much of: else nothing would be
        freed. Inputs count in equal parts for all tasks that wait for them. If both the input and
        the result are held by clients, nothing is freed, and the result must be much smaller.
        """
        if _is_model(ts) or not (line := self.line(owner)):
            return kind
        uses, kept = 0.0, bool(ts.who_wants)
        for dep in ts.dependencies:
            whose, nbytes = self._results.get(dep.key, ("", 0.0))
            if nbytes and not set(line).isdisjoint(self.line(whose)):
                stays = kept and dep.who_wants
                uses += nbytes * KEPT if stays else nbytes / max(len(dep.waiters or ()), 1)
        # One without own inputs is as if they were tiny: metadata that all tasks share.
        makes = line[0].typical(ts.prefix.name, at_least=TIMES * NOT_DATA)
        if makes <= NOT_DATA or (uses and makes <= TIMES * uses):
            return kind._replace(grows=False) if kind.grows else kind
        return GROWS if kind is ANY else kind._replace(grows=True)

    def check(self, pools: Collection[Pool]) -> None:
        """Count scattered data, and find owners that wait for memory that nothing frees."""
        for cs in self._scheduler.clients.values():
            if cs.wants_what and self.line(owner := self._owner_of(cs.client_key)):
                for ts in cs.wants_what:
                    scattered = ts.run_spec is None and ts.state == "memory"
                    if scattered and ts.key not in self._results:
                        self._keep(ts, owner)
        waits: set[Stored] = set()
        for pool in pools:
            if not (pool.ready and pool.group is not None and not pool.paused):
                continue
            if (full := self.full(pool)) is not None:
                waits.add(full)
        for stored in self._stored.values():
            stored.check(stored in waits)
        for pool in pools:
            if (full := self.full(pool)) is not None and full.stuck:
                self._sort_again(pool)

    def full(self, pool: Pool) -> Stored | None:
        """Return the memory whose limit keeps all ready tasks of a pool waiting; None if none."""
        if pool.group is None or not pool.kinds or not all(kind.grows for kind in pool.kinds):
            return None
        found: Stored | None = None
        for entry in pool.first_ready():
            group = pool.group.full_memory(entry.name)
            if group is None:
                return None
            found = found or group.stored
        return found

    def blocked(self, pool: Pool) -> int:
        """Return the number of ready tasks of a pool that wait for memory."""
        if pool.group is None:
            return 0
        return sum(
            len(ready)
            for kind, ready in pool.kinds.items()
            if kind.grows
            and (first := ready.first())
            and pool.group.full_memory(first.name) is not None
        )

    def verify(self) -> None:
        """Raise `AssertionError` unless the counts agree with the scheduler."""
        tasks, held, running = self._scheduler.tasks, Counter[Stored](), Counter[Stored]()
        for key, (owner, nbytes) in self._results.items():
            assert key in tasks and tasks[key].state == "memory", f"{key!r} is no result"
            held.update(dict.fromkeys(self.line(owner), nbytes))
        for key, (_, line) in self._running.items():
            assert key in tasks and tasks[key].state == "processing", f"{key!r} does not run"
            running.update(line)
        for stored in self._stored.values():
            assert math.isclose(stored.held, held[stored], abs_tol=1.0), "bytes of results"
            assert stored.running.total() == running[stored], "running tasks"

    def _sort_again(self, pool: Pool) -> None:
        """Find again which tasks add to the memory: inputs may no longer be held by a client."""
        for ts, entry in list(pool.ready.items()):
            if entry in pool.kinds.get(entry.kind, ()):
                kind = self.kind(ts, pool.owner, entry.kind)
                if kind != entry.kind:
                    pool.push(entry._replace(kind=ANY if kind == ANY else kind))


def _is_model(ts: TaskState) -> bool:
    """Return whether a task is a model of a search: it counts once it is ready."""
    return MODEL in (ts.annotations or ())
