"""Accounts of a scheduler: what its owners use, in jobs and outside of them, kept in the memory.

Tasks are charged when they end, and while they run for what has passed by the last heartbeats. So a
scheduler that is killed loses the usage of some seconds.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from time import localtime, monotonic, strftime, time
from typing import TYPE_CHECKING, Any

from tornado.ioloop import PeriodicCallback

from dask_slaq.core.usage import DAY, EARLIER, OUTCOMES, Ledger, Usage, decayed, sum_by
from dask_slaq.memory import usage_as_dicts
from dask_slaq.scheduler.memory import safely
from dask_slaq.scheduler.views import UsageByOwner

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import TaskState

    from dask_slaq.memory import RunStore
    from dask_slaq.scheduler.pools import Pool, Pools

__all__ = ["Accounts"]

logger = logging.getLogger(__name__)

#: Seconds between two looks at running tasks, after which usage is written, and for which a query
#: waits until it is.
PERIOD, PATIENCE = 5.0, 2.0
#: Maximum number of steps to a task that a client wants, and of groups of tasks remembered.
MOST_STEPS, MOST_GROUPS = 1000, 10_000
#: Days of which usage is in memory, for the board.
RECENT = 14


class Accounts:
    """Usage by owner, kind of job, job and day. Its methods never raise.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    pools : Pools
    store : RunStore or None
        Where usage is kept; None to count from the scheduler's start.
    payer_of : callable
        Returns the owner, kind and job that pay for the pool of a name.
    owner_of : callable
        Returns the owner of the work of a client outside of jobs.
    half_life : float, optional
        Seconds after which half of what was used no longer counts as used lately.

    Attributes
    ----------
    totals : UsageByOwner
        All usage, with that in the store.
    loaded : bool
        Whether the usage in the store is part of it.
    broken : str or None
        The error that ended the accounts.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        pools: Pools,
        store: RunStore | None,
        payer_of: Callable[[str], tuple[str, str, str]],
        owner_of: Callable[[str], str],
        half_life: float | None = None,
    ) -> None:
        self._scheduler, self._tracker, self._store = scheduler, pools.tracker, store
        self._payer_of, self._owner_of = payer_of, owner_of
        self.broken: str | None = None
        self.totals = UsageByOwner()
        self.loaded = store is None
        self._begin = self._faded = time()
        self.half_life = half_life
        self._lately: defaultdict[str, float] = defaultdict(float)
        self._ledger = Ledger()
        self._written = UsageByOwner()
        self._peaks: dict[str, float] = {}  # core-seconds that counters have shown
        self._days: defaultdict[tuple[int, str], float] = defaultdict(float)  # written of late
        self._ahead: dict[Any, float] = {}  # charged of running tasks, by key
        self._waits: dict[str, float] = {}  # jobs that wait, and until when that was counted
        self._clients: dict[str, str | None] = {}  # of groups of tasks
        self._loop = asyncio.get_running_loop()
        self._timer = PeriodicCallback(self.tick, PERIOD * 1000)
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

    @safely
    def _load(self, found: asyncio.Future[dict[tuple[Any, ...], Usage] | None]) -> None:
        """Add what the store has."""
        for (owner, day), usage in (found.result() or {}).items():
            self.totals.of(owner).add(usage)
            self._keep(day, owner, usage)
            if self.half_life is not None:
                used = decayed([(day, usage.core_seconds)], self._faded, self.half_life)
                self._lately[owner] += used
        self.loaded = True

    def _keep(self, day: int, owner: str, usage: Usage) -> None:
        """Count usage as written."""
        self._written.of(owner).add(usage)
        if day > time() // DAY - RECENT:
            self._days[day, owner] += usage.core_seconds

    # Charging

    def _add(self, payer: tuple[str, str, str], what: str, amount: float) -> None:
        for usage in (self._ledger.of(int(time() // DAY), *payer), self.totals.of(payer[0])):
            setattr(usage, what, getattr(usage, what) + amount)
        if what == "core_seconds" and self.half_life is not None:
            self._lately[payer[0]] += amount

    @safely
    def charge(self, name: str, seconds: float) -> None:
        """Charge the pool `name` for core-seconds that its tasks have computed."""
        self._add(self._payer_of(name), "core_seconds", seconds)

    @safely
    def task_ended(self, key: Any, startstops: Iterable[Any], followed: bool) -> None:
        """Charge a task that leaves its worker, unless the pools do; before they follow that.

        Parameters
        ----------
        key : hashable
        startstops : iterable of dict
            What it did there.
        followed : bool
            Whether the pools follow tasks.
        """
        ahead = self._ahead.pop(key, 0.0)
        computed = [run for run in startstops if run["action"] == "compute"]
        if not computed:
            return  # it used what it was charged for, and is lost
        pool, seconds = self._tracker.owner.get(key) if followed else None, 0.0
        if pool is None:
            seconds = max(computed[-1]["stop"] - computed[-1]["start"], 0.0)
        if seconds != ahead:
            ts = self._scheduler.tasks.get(key)
            self._add(self._payer(ts, pool), "core_seconds", seconds - ahead)

    @safely
    def job_ended(self, name: str, outcome: str, loss_reduction: float) -> None:
        """Count a job that ends.

        Parameters
        ----------
        name : str
        outcome : str
            One of `OUTCOMES`.
        loss_reduction : float
            In normalized loss.
        """
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
            self._add(self._payer_of(name), "waited", now - before[name])

    def _payer(self, ts: TaskState | None, pool: Pool | None) -> tuple[str, str, str]:
        """Return the owner, kind and job that pay for a task."""
        if pool is not None:
            return self._payer_of(pool.name)
        client = self._client_of(ts)
        return "unknown" if client is None else self._owner_of(client), "", ""

    def _client_of(self, ts: TaskState | None) -> str | None:
        """Return the client that wants a task, or one that depends on it."""
        if ts is None:
            return None
        if ts.who_wants:
            return min(client.client_key for client in ts.who_wants)
        name = ts.group.name
        if name not in self._clients:
            if len(self._clients) >= MOST_GROUPS:
                self._clients.clear()
            self._clients[name] = None
            above: TaskState | None = ts
            for _ in range(MOST_STEPS):
                if above is None or above.who_wants:
                    break
                above = next(iter(above.dependents), None)
            if above is not None and above.who_wants:
                self._clients[name] = min(client.client_key for client in above.who_wants)
        return self._clients[name]

    # Now and then

    @safely
    def tick(self) -> None:
        """Charge the running tasks for the time until now, and write what is new."""
        before, self._ahead = self._ahead, {}
        for ts, pool, seconds in self._running():
            self._ahead[ts.key] = seconds
            if more := seconds - before.pop(ts.key, 0.0):
                self._add(self._payer(ts, pool), "core_seconds", more)
        for key, seconds in before.items():
            known = self._scheduler.tasks.get(key)
            if known is not None and known.processing_on is not None:
                self._ahead[key] = seconds
        if self.loaded:
            self._write()

    def _running(self) -> Iterator[tuple[TaskState, Pool | None, float]]:
        """Yield the running tasks, and their core-seconds that are not charged yet."""
        tracker = self._tracker
        for ws in self._scheduler.workers.values():
            for ts, seconds in ws.executing.items():
                if ts.processing_on is ws:  # it has not ended since the heartbeat
                    yield ts, tracker.owner.get(ts.key), tracker.uncharged(ts, seconds)

    def _write(self) -> None:
        """Write what is new. What falls short of what was charged ahead is kept until it does not.

        So the counters never fall.
        """
        if self._store is None:
            return
        today, rows = int(time() // DAY), []
        for key, usage in self._ledger.take():
            if usage.core_seconds >= 0:
                rows.append((key, usage))
            elif key.day == today:
                self._ledger.rows[key] = usage
        if not rows:
            return
        if self._store.add_usage(rows, lambda: self._acknowledge(rows)):
            return
        self._ledger.rows.update(rows)

    def _acknowledge(self, rows: Sequence[Any]) -> None:
        """Count rows as written. Called in the writer's thread."""
        with contextlib.suppress(RuntimeError):  # the event loop is closed
            self._loop.call_soon_threadsafe(self._wrote, rows)

    @safely
    def _wrote(self, rows: Sequence[Any]) -> None:
        for key, usage in rows:
            self._keep(key.day, key.owner, usage)
        oldest = time() // DAY - RECENT
        for at in [at for at in self._days if at[0] <= oldest]:
            del self._days[at]

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
        kept = self._store is not None and self._store.failed is None
        if kept and not self.loaded:
            return None
        found = UsageByOwner()
        for owner, usage in (self._written if kept else self.totals).items():
            peak = max(usage.core_seconds, self._peaks.get(owner, 0.0))
            self._peaks[owner] = peak
            found[owner] = replace(usage, core_seconds=peak)
        return found

    def by_day(self) -> dict[tuple[int, str], float]:
        """Return the core-seconds of the last days by day and owner."""
        found = defaultdict(float, self._days)
        for (day, owner), usage in sum_by(self._ledger.rows.items(), ("day", "owner")).items():
            if int(day) > time() // DAY - RECENT:
                found[int(day), str(owner)] += usage.core_seconds
        return found

    def lately(self, owners: Iterable[str]) -> dict[str, float]:
        """Return the core-seconds that `owners` used, halved for each half-life since."""
        if self.half_life is None:
            return {}
        now = time()
        if now > self._faded:
            rest = 2.0 ** -((now - self._faded) / self.half_life)
            self._faded = now
            for owner in list(self._lately):
                self._lately[owner] *= rest
                if abs(self._lately[owner]) < 1e-6:
                    del self._lately[owner]
        return {owner: max(self._lately.get(owner, 0.0), 0.0) for owner in sorted(set(owners))}

    async def query(self, by: Sequence[str], seconds: float | None) -> dict[str, Any]:
        """Return usage.

        Parameters
        ----------
        by : sequence of str
            Fields of `UsageKey`.
        seconds : float, optional
            How far back, in whole days; all usage by default.

        Returns
        -------
        dict
            ``rows`` (see `usage_as_dicts`), ``file``, ``since`` (Unix seconds from which usage was
            counted, None if from the file's beginning) and ``note`` (what is missing, or None).
        """
        since = EARLIER if seconds is None else int((time() - seconds) // DAY)
        self.tick()
        left = [(key, usage) for key, usage in self._ledger.rows.items() if key.day >= since]
        found, store, note = sum_by(left, by), self._store, self.broken
        kept = None
        if store is not None:
            kept = await self._loop.run_in_executor(None, _read, store, by, since)
            for key, usage in (kept or {}).items():
                found.setdefault(key, Usage()).add(usage)
        begin = strftime("%Y-%m-%d %H:%M:%S", localtime(self._begin))
        if note is not None:
            note = f"usage is no longer counted: {note}"
        elif store is None:
            note = f"since the scheduler's start at {begin}: slaq.memory names no file to keep it"
        elif store.failed is not None or kept is None:
            note = f"{store.path} cannot be used, and usage is kept until the scheduler ends"
        return {
            "rows": usage_as_dicts(found, by),
            "file": None if store is None else str(store.path),
            "since": self._begin if kept is None else None,
            "note": note,
        }


def _read(
    store: RunStore, by: Sequence[str], since: int
) -> dict[tuple[str | int, ...], Usage] | None:
    store.flush(PATIENCE)
    return store.usage(by, since)
