"""Order in which jobs are served.

Jobs that are owed, or whose owner is, come first, those that wait longest for it before; then jobs
within their cap, by index, and by service among equals, of which those below their share come first
if worker sets are strict; then jobs over their cap. Jobs that run on what nobody else wants come
after all others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable
from itertools import groupby

from dask_slaq.core.dispatch.constants import BACK_SECONDS, SLACK_SECONDS
from dask_slaq.core.dispatch.job_queue import (
    ENTITLED,
    OVER_CAP,
    OWED,
    OWNER_OWED,
    WITHIN_CAP,
    Handover,
    JobQueue,
    Key,
)
from dask_slaq.core.dispatch.ready import ANY, Waiting


class Order:
    """Jobs in the order in which they are served, and their ready tasks, which are `waiting`.

    `lend` is whether jobs are served above their cap, and before others that are below their share;
    if not, a task takes a thread outside of its job's worker set only with its grant. And
    `saturation` the root tasks per thread that a worker is sent, which may be infinite. `listed`
    returns all jobs that a ready task is listed in if it is listed in several; `prefers` is told of
    a job whose user gave priorities while other owners compete.
    """

    def __init__(
        self,
        waiting: Waiting[JobQueue] | None = None,
        *,
        lend: bool = True,
        saturation: float = 1.1,
        listed: Callable[[Handover], Iterable[JobQueue]] = lambda task: (),
        prefers: Callable[[JobQueue], None] = lambda pool: None,
    ) -> None:
        self.waiting: Waiting[JobQueue] = Waiting() if waiting is None else waiting
        self.lend, self.saturation = lend, saturation
        self._listed, self._prefers = listed, prefers
        self.tokens_at = math.inf  # when a job with ready tasks, asked for lately, has tokens again

    def key(self, pool: JobQueue, now: float) -> Key | None:
        """Return the sort key of a job, lowest first; None if it may not be served.

        A task that is sent takes the key along as its priority, so that it runs before tasks of
        later jobs that wait on its worker. The key is kept until something of the job changes, or
        until the time from which on it is owed something; if owners are configured, not at all.
        """
        cached = pool.cached
        if now >= cached.until:
            cached.until = math.inf if pool.group is None else -math.inf
            cached.key = self._key(pool, now)
        if cached.key is None and (pool.account.is_limit or not self.lend) and pool.ready:
            self.tokens_at = min(self.tokens_at, cached.until)
        return cached.key

    def _key(self, pool: JobQueue, now: float) -> Key | None:
        group, running = pool.group, len(pool.running)
        if pool.paused or (group is not None and not group.may_start()):
            return None
        # What a job is owed comes out of its owner's share, and not out of that of others.
        since, owner_lag = 0.0, 0.0 if group is None else group.lag
        granted, account = pool.granted, pool.account
        is_new = granted.index == math.inf
        within = group is None or owner_lag > 0 or is_new
        below, owed = pool.threads < granted.most, account.owed(now)
        wait = 0.0  # seconds until it has the tokens for one more thread
        if account.is_limit and not is_new:
            wait = account.tokens_in(now) if below else math.inf
        elif not self.lend and granted.most < 1 and not is_new:
            wait = pool.entitled_in(now)  # a cap below a thread is a part of the time of one
        if wait and not pool.gives_way:
            pool.cached.until = now + wait
            return None
        if within and below and (owed > 0 or is_new):
            standing = OWED
            rate = account.rate
            since = account.accrued_at - account.balance / rate if rate else -math.inf
        elif not below or wait:
            standing = OVER_CAP
            if not (self.lend or pool.gives_way):
                return None
        else:
            standing = OWNER_OWED if owner_lag > 0 else WITHIN_CAP
            if account.rate and group is None:
                pool.cached.until = now - owed / account.rate  # from then on it is owed something
            if not (self.lend or owner_lag > 0):
                entitled_in = pool.entitled_in(now)
                if entitled_in:
                    pool.cached.until = min(pool.cached.until, now + entitled_in)
                else:
                    standing = ENTITLED
        service = pool.service
        if len(pool.filed) == 1 and ANY in pool.filed:
            first = pool.filed[ANY].at()
            if first is not None and first.rootish:  # results in memory are used before
                service += SLACK_SECONDS * granted.share / pool.weight
        rank = 2 if group is not None and group.on_leftovers else int(standing > OWNER_OWED)
        return Key(
            rank, -owner_lag * (rank == 0), standing, since, -granted.index, service,
            running / pool.weight, pool.name,
        )  # fmt: skip

    def before(self, pools: Collection[JobQueue], now: float) -> dict[JobQueue, Key]:
        """Return for each job with priorities the first key of work that its user puts after it.

        Such a job comes no later than that. A priority that users give tasks counts among the work
        of their owner only.
        """
        found: dict[JobQueue, Key] = {}
        by_owner: dict[str, list[JobQueue]] = {p.owner: [] for p in pools if p.prioritized}
        for pool in self.waiting.pools if by_owner else ():
            if pool.owner in by_owner:
                by_owner[pool.owner].append(pool)
        for theirs in by_owner.values():
            least: Key | None = None  # of those that matter less
            theirs.sort(key=lambda pool: -pool.user_priority())
            for mine, alike in groupby(theirs, key=lambda pool: pool.user_priority()):
                here = list(alike)
                if least is not None:
                    found.update((pool, least) for pool in here if pool.prioritized)
                keys = [k._replace(name="") for p in here if (k := self.key(p, now)) is not None]
                least = min([least, *keys] if least is not None else keys, default=None)
                if mine < 0 and len(theirs) < len(self.waiting.pools):
                    self._prefers(here[0])
        return found

    def has_before(self, key: Key, now: float) -> bool:
        """Return whether a job with ready tasks comes before one with this `key`."""
        some = itertools.islice(self.waiting.pools, 50)  # not all, of very many
        return any((mine := self.key(pool, now)) is not None and mine < key for pool in some)

    def coming(self, now: float) -> list[JobQueue]:
        """Return the jobs that are likely to have ready tasks again within `BACK_SECONDS`."""
        return [
            pool
            for pool in self.waiting.coming
            if pool.gaps.mean < min(BACK_SECONDS, pool.gaps.spell)
            and (pool.ready or pool.running or now - pool.gaps.left_at < BACK_SECONDS)
        ]

    def sent(self, task: Handover) -> None:
        """Record that a task was sent where it was chosen for, and charge its job in advance."""
        pool, worker = task.pool, task.worker
        if task.ts in pool.ready:
            self.remove(task)
        pool.enter(task, worker, moves=not self.lend)
        if task.expected < math.inf:
            task.prepaid = task.expected * task.threads
            pool.charge(task.prepaid, task)
        if not task.preferred:
            pool.made_at[worker] = pool.made_at.get(worker, 0.0) + 1

    def remove(self, task: Handover) -> None:
        """Remove a task that is no longer ready."""
        task.pool.pop(task.ts)
        for other in self._listed(task):
            other.pop(task.ts)

    def put_back(self, task: Handover) -> None:
        """List a task again that was removed, and not sent."""
        for each in {task.pool: None, **dict.fromkeys(self._listed(task))}:
            each.push(task)

    def check(self, pools: Collection[JobQueue], now: float) -> None:
        """Raise `AssertionError` unless the index and the keys that are kept hold now."""
        self.waiting.check(pools)
        for pool in pools:
            if now < (until := pool.cached.until):
                kept, found = pool.cached.key, self._key(pool, now)
                pool.cached.until = until
                assert (kept is None) == (found is None), f"whether {pool.name} may be served"
                if kept is not None and found is not None:
                    same = math.isclose(kept.lag, found.lag, rel_tol=1e-9, abs_tol=1e-6)
                    assert same and kept._replace(lag=found.lag) == found, f"{kept} is {found}"
