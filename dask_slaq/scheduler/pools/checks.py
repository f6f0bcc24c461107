"""Checks of the pools of a scheduler: what should agree, and be gone once no job runs."""

from __future__ import annotations

import math
from time import monotonic
from typing import Any

from dask_slaq.scheduler.pools.records import UNFINISHED


def left_over(pools: Any) -> list[str]:
    """Describe what is left although no job runs. Empty if nothing is."""
    charges = pools.charges
    found = [f"pool {name}" for name in pools.pools]
    found += [f"owner of {key}" for key in pools.records.pool_of]
    found += [f"time of secession of {key}" for key in charges.seceded_at]
    found += [f"charges of {key}" for key in (*charges.charged_until, *charges.waited)]
    if len(pools.sent):
        found.append(f"{len(pools.sent)} tasks on workers")
    if pools.holds_or_releases:
        found.append("tasks are held, or to be given back")
    tasks = pools.scheduler.tasks.values()
    found += [f"restriction of {ts.key}" for ts in tasks if pools.control.has(ts)]
    return found + [f"excuse of {ts.key}" for ts in tasks if ts in pools.control.excused]


def check(pools: Any) -> None:
    """Raise `AssertionError` unless all records agree with the scheduler."""
    tasks, owner = pools.scheduler.tasks, pools.records.pool_of
    for key, pool in owner.items():
        assert key in tasks, f"{key!r} is forgotten, but in pool {pool.name}"
        assert tasks[key] in pool.tasks, f"{key!r} is another task of that key in {pool.name}"
        check_task(pools, key)
    for name, pool in pools.pools.items():
        assert pool.name == name
        for ts in (*pool.unfinished, *pool.running):
            assert ts in pool.tasks, f"{ts} is not in the pool {name} that counts it"
        assert all(owner.get(ts.key) is pool for ts in pool.tasks), f"tasks of {name}"
        filed = sum(map(len, pool.filed.values()))
        together = sum(pools.records.gangs.is_open(ts) for ts in pool.ready)
        assert filed + together == len(pool.ready), f"ready tasks of {name}"
        threads = sum(sent.threads for sent in pool.running.values())
        assert math.isclose(pool.threads, threads, abs_tol=1e-6), f"threads of {name}"
        passed = sum(not sent.ours for sent in pool.running.values())
        assert pool.sent_by_dask.total() == passed, f"tasks of {name} that Dask sent"
        assert math.isfinite(pool.service) and math.isfinite(pool.account.balance), (
            f"account of {name}"
        )
    for who, group in pools.groups.items():
        threads = sum(pool.threads - pool.lent for pool in group.pools)
        assert math.isclose(group.running, threads, abs_tol=1e-6), f"threads of {who}"
    pools.order.check(pools.pools.values(), monotonic())
    pools.sent.check()
    rounds = pools.rounds
    for address, slots in rounds.dispatcher.free.items():
        assert slots.has_thread or address in pools.wakes.look_at, f"{address} counts as free"
    charges = pools.charges
    for records in (charges.seceded_at, charges.charged_until, charges.waited):
        assert records.keys() <= owner.keys(), "a record of an unknown task"


def check_task(pools: Any, key: Any) -> None:
    """Raise `AssertionError` unless the records of one task agree with the scheduler."""
    pool, ts = pools.records.pool_of.get(key), pools.scheduler.tasks.get(key)
    if ts is None or pool is None or ts not in pool.tasks:
        assert ts is None or not pools.control.has(ts), f"{ts} is restricted, but in no pool"
        return
    assert pools.pools.get(pool.name) is pool, f"{ts} is in the closed pool {pool.name}"
    if ts in pool.ready:
        assert ts.state in pools.control.WAITING, f"{ts} is held, but {ts.state}"
        gang, task = pools.records.gangs.is_open(ts), pool.ready[ts]
        assert gang or task in pool.filed[task.constraints], f"{ts} is not to be found"
    elif ts in pools.patch.queue.held or (ts.state == "no-worker" and pools.records.in_pool(ts)):
        waits = ts in pools._to_release or ts.key in pools.records.migrating
        assert waits, f"{ts} is held, but not ready"
    if (task := pool.running.get(ts)) is not None:
        assert ts.state == "processing", f"{ts} counts as on a worker"
        assert pools.sent.has(task), f"{ts} is on a worker for one of two"
    assert pools.control.has(ts) <= (ts.state == "processing"), f"{ts} is restricted still"
    assert (ts in pools.control.excused) <= (ts.state == "processing"), f"{ts} is excused still"
    assert (ts in pool.unfinished) <= (ts.state in UNFINISHED), f"{ts} counts as unfinished"
    if ts.state in ("waiting", "queued", "no-worker"):
        assert ts in pool.unfinished, f"{ts} does not count as unfinished"
