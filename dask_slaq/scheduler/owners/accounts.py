"""Accounts of a scheduler: what its owners use, in jobs and outside, kept in the run history.

Tasks are charged when they end, and while they run for what has passed by the last heartbeats. So a
scheduler that is killed loses the usage of some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import monotonic, time
from typing import TYPE_CHECKING, Any

from distributed import Scheduler
from distributed.scheduler import TaskState
from tornado.ioloop import PeriodicCallback

from dask_slaq.core.owners.usage import DAY_SECONDS, OTHERS, OUTCOMES, Ledger, Spent, Usage, decayed
from dask_slaq.core.safely import safely
from dask_slaq.scheduler.pools import Charges, Pool, TaskRecords

if TYPE_CHECKING:
    from dask_slaq.run_history import RunStore  # and SQLite

logger = logging.getLogger(__name__)

#: Maximum number of tasks whose client is remembered, and of steps from one to its client.
MOST_TASKS = 10_000
#: Maximum number of owners. Usage of further ones is added up under `OTHERS`.
MOST_OWNERS = 1000


class UsageByOwner(dict[str, Usage]):
    """Mapping of owner to `Usage`, bounded in size."""

    def of(self, owner: str) -> Usage:
        """Return the usage of an owner, to be added to."""
        if owner not in self and len(self) >= MOST_OWNERS:
            owner = OTHERS
        return self.setdefault(owner, Usage())


class UnownedUsage:
    """Core-seconds of tasks outside jobs, in the newest epochs. They count only while jobs run.

    `epochs` has the Unix seconds of each, and the core-seconds used until then.
    """

    def __init__(self, most: int) -> None:
        self.epochs: deque[tuple[float, float]] = deque(maxlen=most)
        self._seen = 0.0

    def record(self, now: float, used: float, threads: int) -> None:
        """Add an epoch: Unix seconds, core-seconds of all tasks, threads of the cluster."""
        before, total = self.epochs[-1] if self.epochs else (now, 0.0)
        # Tasks that ran before the first job bring seconds of earlier epochs with them.
        grown = min(max(used - self._seen, 0.0), threads * (now - before))
        self._seen = used
        self.epochs.append((now, total + grown))


class Accounts:
    """Usage by owner, kind of job, job and day. Its methods never raise.

    It counts from the scheduler's start, and is kept in a `store` if there is one. `payer_of`
    returns the owner, kind and job that pay for the pool of a name, and `owner_of` the owner of the
    work of a client outside of jobs. After `half_life` seconds half of what was used no longer
    counts as used lately. `ticked` is called when usage is known anew.
    """

    def __init__(
        self,
        store: RunStore | None,
        scheduler: Scheduler,
        records: TaskRecords,
        charges: Charges,
        payer_of: Callable[[str], tuple[str, str, str]],
        owner_of: Callable[[str], str],
        half_life: float | None,
        ticked: Callable[[], object],
    ) -> None:
        self._scheduler, self._records, self._charges = scheduler, records, charges
        self.store = store
        self._payer_of, self._owner_of = payer_of, owner_of
        self._ticked = ticked
        self.broken: str | None = None  # the error that ended the accounts
        self._totals, self._written = UsageByOwner(), UsageByOwner()
        self.loaded = store is None  # whether the usage of earlier schedulers is part of it
        self.begin = self._faded = time()
        self.half_life = half_life
        self._lately: defaultdict[str, float] = defaultdict(float)
        self.ledger = Ledger()
        # Core-seconds that are not in the ledger yet: of closed pools by payer, and outside of jobs
        # by client.
        self._new: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        self._outside: defaultdict[str | None, float] = defaultdict(float)
        self._peaks: dict[str, float] = {}  # core-seconds that counters have shown
        self.counted: set[str] = set()  # owners with metrics of their own
        self.spent = Spent()
        self.ahead: dict[Any, float] = {}  # charged of running tasks, by key
        # Jobs that wait, and until when that was counted; seconds that are not in the ledger yet.
        self._waits: dict[str, float] = {}
        self._waited: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        self._clients: dict[Any, str | None] = {}  # of tasks that none wants itself, by key
        self._loop = asyncio.get_running_loop()
        # Seconds between two looks at running tasks, after which usage is written.
        self._timer = PeriodicCallback(self.tick, 5_000)
        self._timer.start()
        if store is not None:
            found = self._loop.run_in_executor(None, store.usage, ("owner", "day"))
            found.add_done_callback(self._load)

    def fail(self, error: Exception) -> None:
        """End the accounts, and log the error once."""
        if self.broken is None:
            self.broken = f"{type(error).__name__}: {error}"
            self._timer.stop()
            logger.error("usage is no longer counted: %s", self.broken, exc_info=error)
            self._loop.call_soon(self._ticked)  # nobody waits for a budget any more

    # Charging

    def _add(self, payer: tuple[str, str, str], what: str, amount: float) -> None:
        today = int(time() // DAY_SECONDS)
        for usage in (self.ledger.of(today, *payer), self._totals.of(payer[0])):
            setattr(usage, what, getattr(usage, what) + amount)
        if what == "core_seconds":
            self.spent.add(today, payer[0], amount)

    @safely
    def settle(self) -> None:
        """Enter the core-seconds of tasks into the ledger: for all at once, since each takes µs."""
        for name in list(self._charges.of_pools):
            self.pool_closes(name)
        new, self._new = self._new, defaultdict(float)
        outside, self._outside = self._outside, defaultdict(float)
        waited, self._waited = self._waited, defaultdict(float)
        for payer, seconds in waited.items():
            self._add(payer, "waited", seconds)
        for client, seconds in outside.items():
            new["unknown" if client is None else self._owner_of(client), "", ""] += seconds
        for payer, seconds in new.items():
            self._add(payer, "core_seconds", seconds)
            if self.half_life is not None:
                self._used_lately(payer[0], seconds)

    def _used_lately(self, owner: str, seconds: float) -> None:
        known = owner in self._lately or len(self._lately) < MOST_OWNERS
        self._lately[owner if known else OTHERS] += seconds

    @property
    def totals(self) -> UsageByOwner:
        """All usage, with that in the store."""
        self.settle()
        return self._totals

    @safely
    def pool_closes(self, name: str) -> None:
        """Have who pays for a pool now pay for what was charged to it."""
        if seconds := self._charges.of_pools.pop(name, 0.0):
            self._new[self._payer_of(name)] += seconds

    @safely
    def task_ended(self, key: Any, startstops: Iterable[Any], pool: Pool | None) -> None:
        """Charge a task that leaves its worker for what the pools do not; before they follow that.

        A `pool` that follows its tasks charges them until they give up their thread. So of theirs
        only those count here that gave it up, or are charged `ahead`. `startstops` tell what it did
        there.
        """
        ahead, begin = self.ahead.pop(key, 0.0) if self.ahead else 0.0, None
        for run in startstops:
            if run["action"] == "compute":
                begin, end = run["start"], run["stop"]
        seconds = 0.0
        if begin is not None:
            if pool is not None:
                begin = max(begin, self._charges.charged_to(key))
            seconds = max(end - begin, 0.0)
        elif pool is None or key in self._charges.seceded_at:
            return  # it used what it was charged for, and is lost
        if seconds != ahead:
            self._charge(self._scheduler.tasks.get(key), pool, seconds - ahead)
        if self._clients:
            self._clients.pop(key, None)

    @safely
    def job_ended(self, name: str, outcome: str, loss_reduction: float) -> None:
        """Count a job that ends with one of `OUTCOMES`, and its reduction of normalized loss."""
        self._waits.pop(name, None)
        payer = self._payer_of(name)
        self._add(payer, outcome if outcome in OUTCOMES else "lost", 1)
        self._add(payer, "loss_reduction", loss_reduction)

    @safely
    def count_waits(self, waiting: Iterable[str]) -> None:
        """Count the time since the last call for jobs that are `waiting` now and were then."""
        before, now = self._waits, monotonic()
        self._waits = dict.fromkeys(waiting, now)
        for name in self._waits.keys() & before.keys():
            self._waited[self._payer_of(name)] += now - before[name]

    def _charge(self, ts: TaskState | None, pool: Pool | None, seconds: float) -> None:
        """Charge the job, or the client, that pays for a task."""
        if pool is not None:
            self._charges.of_pools[pool.name] += seconds
        else:
            self._outside[self._client_of(ts)] += seconds

    def _client_of(self, ts: TaskState | None) -> str | None:
        """Return the client that wants a task, or one that depends on it.

        It is remembered for all tasks in between until they end, so that a chain is walked once.
        """
        if ts is not None and ts.who_wants is not None and len(ts.who_wants) == 1:
            return next(iter(ts.who_wants)).client_key  # as nearly always
        between: list[Any] = []
        while ts is not None and not ts.who_wants and ts.key not in self._clients:
            if len(between) >= MOST_TASKS:
                ts = None
                break
            between.append(ts.key)
            ts = next(iter(ts.dependents), None)
        if ts is None:
            client = None
        elif ts.who_wants:
            client = min(one.client_key for one in ts.who_wants)
        else:
            client = self._clients[ts.key]
        if between:
            if len(self._clients) + len(between) > MOST_TASKS:
                self._clients.clear()
            self._clients.update(dict.fromkeys(between, client))
        return client

    # Now and then

    @safely
    def tick(self) -> None:
        """Charge the running tasks for the time until now, and write what is new."""
        before, self.ahead = self.ahead, {}
        for ts, pool, seconds in self._running():
            self.ahead[ts.key] = seconds
            if more := seconds - before.pop(ts.key, 0.0):
                self._charge(ts, pool, more)
        for key, seconds in before.items():
            known = self._scheduler.tasks.get(key)
            if known is not None and known.processing_on is not None:
                self.ahead[key] = seconds
        self.settle()
        if self.loaded:
            self._write()
            self._ticked()

    @safely
    def _load(self, found: asyncio.Future[dict[tuple[Any, ...], Usage] | None]) -> None:
        """Add what the store has."""
        for (owner, day), usage in (found.result() or {}).items():
            self._totals.of(owner).add(usage)
            self._written.of(owner).add(usage)
            self.spent.add(day, owner, usage.core_seconds)
            if self.half_life is not None:
                used = decayed(day, usage.core_seconds, self._faded, self.half_life)
                self._used_lately(owner, used)
        self.loaded = True
        self._ticked()

    def _write(self) -> None:
        """Write what is new, if there is a file.

        What falls short of what was charged ahead is kept until it does not: counters never fall.
        """
        if self.store is None:
            return
        today, rows = int(time() // DAY_SECONDS), []
        for key, usage in self.ledger.drain():
            if usage.core_seconds >= 0:
                rows.append((key, usage))
            elif key.day == today:
                self.ledger.rows[key] = usage
        if not rows:
            return
        if self.store.add_usage(rows, lambda: self._acknowledge(rows)):
            return
        self.ledger.rows.update(rows)

    def _acknowledge(self, rows: Sequence[Any]) -> None:
        """Count rows as written. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._wrote, rows)

    @safely
    def _wrote(self, rows: Sequence[Any]) -> None:
        for key, usage in rows:
            self._written.of(key.owner).add(usage)

    def _running(self) -> Iterator[tuple[TaskState, Pool | None, float]]:
        """Yield the running tasks, and their core-seconds that are not charged yet."""
        for ws in self._scheduler.workers.values():
            for ts, seconds in ws.executing.items():
                if ts.processing_on is ws:  # it has not ended since the heartbeat
                    pool = self._records.pool_of.get(ts.key)
                    yield ts, pool, self._charges.uncharged(ts, seconds)

    def running(self) -> dict[str, float]:
        """Return the core-seconds of running tasks for which pools were not charged, by name."""
        found: defaultdict[str, float] = defaultdict(float)
        for _, pool, seconds in self._running():
            if pool is not None:
                found[pool.name] += seconds
        return found

    @safely
    def stop(self) -> None:
        """Write what is known now, without waiting for it."""
        self._timer.stop()
        self.tick()
        self._write()

    # What people look at

    def counters(self) -> UsageByOwner | None:
        """Return totals that never fall, even if the scheduler is killed and started again.

        None until they are known.
        """
        filed = self.store is not None and self.store.failed is None
        if filed and not self.loaded:
            return None
        found = UsageByOwner()
        for owner, usage in (self._written if filed else self.totals).items():
            peak = max(usage.core_seconds, self._peaks.get(owner, 0.0))
            self._peaks[owner] = peak
            found[owner] = replace(usage, core_seconds=peak)
        return found

    def lately(self, owners: Iterable[str]) -> dict[str, float]:
        """Return the core-seconds that `owners` used, halved for each half-life since."""
        if self.half_life is None:
            return {}
        self.settle()
        now = time()
        if now > self._faded:
            rest = 2.0 ** -((now - self._faded) / self.half_life)
            self._faded = now
            for owner in list(self._lately):
                self._lately[owner] *= rest
                if abs(self._lately[owner]) < 1e-6:
                    del self._lately[owner]
        return {owner: max(self._lately.get(owner, 0.0), 0.0) for owner in sorted(set(owners))}
