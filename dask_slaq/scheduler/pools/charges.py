"""Charges: what tasks of pools have computed, and which part of it their job has paid."""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Callable, Iterable
from time import monotonic, time
from typing import Any

from distributed.scheduler import TaskState

from dask_slaq.core.dispatch import DurationEstimate
from dask_slaq.scheduler.pools.durations import Learned
from dask_slaq.scheduler.pools.pool import Pool
from dask_slaq.scheduler.pools.records import TaskRecords


class Charges:
    """Core-seconds of tasks in pools: at their end, while they report, and of running gangs.

    `observe` is called as ``observe(job, seconds, at_once)`` for them: `Engine.observe_task`.
    """

    def __init__(self, records: TaskRecords, observe: Callable[[str, float, int], None]) -> None:
        self._records, self._observe = records, observe
        # By the name of a pool, until `Accounts` take them; and of all unowned tasks.
        self.of_pools: defaultdict[str, float] = defaultdict(float)
        self.unowned = 0.0
        self.ended, self.took = 0, 0.0  # tasks of pools, and their core-seconds
        # What is like a task that has ended, its worker and seconds: of the newest ends.
        self._ends: deque[tuple[DurationEstimate, str, float]] = deque(maxlen=256)
        # Running tasks that gave up their thread, by key: the Unix time, and what was charged.
        self.seceded_at: dict[Any, tuple[float, float]] = {}
        # Tasks that report what they compute, by key: the Unix time up to which they were charged;
        # None while they wait in a report.
        self.charged_until: dict[Any, float | None] = {}
        self.waited: dict[Any, float] = {}  # seconds of these on their worker
        self.learned = Learned()

    def take_ends(self) -> Iterable[tuple[DurationEstimate, str, float]]:
        """Return the newest ends of tasks since the last call, for the speeds of workers."""
        ends, self._ends = self._ends, deque(maxlen=self._ends.maxlen)
        return ends

    def task_ended(
        self, pool: Pool, ts: TaskState, startstops: Iterable[Any], worker: str
    ) -> float:
        """Charge the job of a task that ends. Returns the core-seconds that its pool still owes."""
        key = ts.key
        (left, charged), seconds = (math.inf, 0.0), 0.0
        if self.seceded_at:
            left, charged = self.seceded_at.pop(key, (left, charged))
        computed = None
        for run in startstops:
            # A key that is computed again on the same worker brings its earlier runs along.
            if run["action"] == "compute":
                computed = run
        waited = self.waited.pop(key, 0.0) if self.waited else 0.0
        if computed is not None and self.learned.usual:
            self.learned.ended(ts, computed["stop"] - computed["start"], waited)
        sent = pool.running.get(ts)
        if key in self.charged_until:
            since = self.charged_until.pop(key)
            if since is not None:
                seconds = max((time() if computed is None else computed["stop"]) - since, 0.0)
        elif computed is None:
            # Lost, cancelled or tried again: Dask does not say what it computed.
            if sent is not None and sent.start is not None:
                seconds = (monotonic() - sent.start) * sent.threads
        else:
            seconds = max(min(computed["stop"], left) - computed["start"], 0.0)
            like = pool.durations.like(ts) if sent is None else sent.like
            self._ends.append((like, worker, seconds))
            like.observe(seconds)
            seconds *= sent.threads if sent is not None else 1.0
        self.ended += 1
        self.took += seconds
        pool.ended, pool.used = pool.ended + (computed is not None), pool.used + seconds
        rest = seconds
        if sent is not None and sent.expected == math.inf:
            rest -= sent.prepaid  # a member of a gang was charged while it ran
        self._charge(pool, rest)
        return seconds - charged

    def _charge(self, pool: Pool, seconds: float) -> None:
        name = pool.name
        self._observe(name, seconds, len(pool.ready) + len(pool.running) + pool.waiting)
        self.of_pools[name] += seconds
        if not pool.reports:
            self.unowned += seconds

    def seceded(self, pool: Pool, ts: TaskState) -> float:
        """Record that a task gives up its thread. Returns its core-seconds until now."""
        sent, used = pool.running.get(ts), 0.0
        if sent is not None and sent.start is not None and ts.key not in self.charged_until:
            used = monotonic() - sent.start
        self.seceded_at[ts.key] = time(), used
        return used

    def forget(self, key: Any) -> None:
        """Forget a task."""
        for known in (self.seceded_at, self.charged_until, self.waited):
            if known:
                known.pop(key, None)

    def charge_gangs(self) -> None:
        """Charge the members of gangs that run for the threads that they have used so far."""
        now = monotonic()
        for ts in self._records.gangs.running():
            pool = self._records.pool_of.get(ts.key)
            sent = pool.running.get(ts) if pool is not None else None
            if sent is None or sent.expected < math.inf:
                continue  # it was let go, and is charged when it ends
            if pool is not None and sent.start is not None:
                seconds = (now - sent.start) * sent.threads - sent.prepaid
                sent.prepaid += seconds
                pool.charge(seconds, sent)
                self._charge(pool, seconds)

    def charge_part(
        self, pool: Pool, ts: TaskState, seconds: float, waited: float, until: float | None
    ) -> None:
        """Charge the core-seconds that a task has reported to have computed, after it `waited`.

        `until` is the Unix time of the report; None if the task waits from then on.
        """
        self.waited[ts.key] = self.waited.get(ts.key, 0.0) + waited
        self.charged_until[ts.key] = until
        sent = pool.running.get(ts)
        pool.charge(seconds - (sent.prepaid if sent is not None else 0.0), sent)
        if sent is not None:
            sent.prepaid = 0.0  # from now on its reports are charged
        self._charge(pool, seconds)

    def uncharged(self, ts: TaskState, seconds: float) -> float:
        """Return the core-seconds of a running task for which nobody was charged yet.

        It began `seconds` ago, as of its worker's heartbeat.
        """
        if ts.key in self.charged_until:
            since = self.charged_until[ts.key]
            return 0.0 if since is None else max(time() - since, 0.0)
        gangs = self._records.gangs.of_task
        pool = self._records.pool_of.get(ts.key) if ts in gangs else None
        if pool is not None and (sent := pool.running.get(ts)) and sent.expected == math.inf:
            return 0.0  # gangs are charged while they run
        return seconds

    def charged_to(self, key: Any) -> float:
        """Return the Unix time up to which a task of a pool is charged to it, whenever it ends."""
        return math.inf if key in self.charged_until else self.seceded_at.get(key, (math.inf,))[0]
