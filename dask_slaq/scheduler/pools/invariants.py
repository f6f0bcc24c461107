"""Invariants of the pools, asserted if ``distributed.scheduler.validate`` is set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

    from dask_slaq.scheduler.dispatch import Pool
    from dask_slaq.scheduler.pools.pools import Pools

__all__ = ["check_all", "check_task", "left_over"]

#: States of the tasks that a pool counts as unfinished. `released` is transient.
UNFINISHED = frozenset({"released", "waiting", "queued", "no-worker", "processing"})


def check_task(pools: Pools, key: Any) -> None:
    """Check that the records of one task agree with the scheduler.

    Parameters
    ----------
    pools : Pools
    key : hashable
        Key of the task.

    Raises
    ------
    AssertionError
    """
    pool, ts = pools.tracker.owner.get(key), pools.scheduler.tasks.get(key)
    if ts is None or pool is None or ts not in pool.tasks:
        held = ts is not None and pools.control.has(ts)
        assert not held or ts in pools.holding.to_give_back, f"{ts} is restricted, but in no pool"
        return
    assert pools.pools.get(pool.name) is pool, f"{ts} is in the closed pool {pool.name}"
    _check_ready(pools, pool, ts)
    _check_running(pools, pool, ts)
    assert (ts in pool.unfinished) <= (ts.state in UNFINISHED), f"{ts} counts as unfinished"
    if ts.state in ("waiting", "queued", "no-worker"):
        assert ts in pool.unfinished, f"{ts} does not count as unfinished"
    if ts.state in ("memory", "erred", "released"):
        assert not pools.control.has(ts), f"{ts} is restricted still"


def _check_ready(pools: Pools, pool: Pool, ts: TaskState) -> None:
    held = ts.state == "no-worker" and pools.control.holds(ts)
    assert held == (ts in pool.ready), f"{ts}: held {held}, ready {ts in pool.ready}"
    if held:
        entry = pool.ready[ts]
        assert entry.ts is ts and entry.kind in pool.kinds, f"{ts} is filed wrongly"
        assert pool.kinds[entry.kind].has(entry), f"{ts} is not to be found"
        assert ts in pools.scheduler.unrunnable, f"{ts} is not on the scheduler's list"


def _check_running(pools: Pools, pool: Pool, ts: TaskState) -> None:
    passed = any(ts in tasks for tasks in pool.passed.values())
    running = ts in pool.running
    assert not (passed and running), f"{ts} is running and passed"
    assert not (passed or running) or ts.state == "processing", f"{ts} counts as on a worker"
    assert running == (ts in pools.slots), f"{ts}: running {running}, in a slot {not running}"


def check_all(pools: Pools) -> None:
    """Check that the records of all tasks agree with the scheduler. Raises `AssertionError`."""
    tasks = pools.scheduler.tasks
    for key, pool in pools.tracker.owner.items():
        assert key in tasks, f"{key!r} is forgotten, but in pool {pool.name}"
        assert tasks[key] in pool.tasks, f"{key!r} is another task of that key in {pool.name}"
        check_task(pools, key)
    for name, pool in pools.pools.items():
        assert pool.name == name
        known = (pool.unfinished, pool.ready, pool.running, *pool.passed.values())
        for ts in (ts for some in known for ts in some):
            assert ts in pool.tasks, f"{ts} is not in the pool {name} that counts it"
        assert all(pools.tracker.owner.get(ts.key) is pool for ts in pool.tasks), f"tasks of {name}"
        for ready in pool.kinds.values():
            ready.check()
        assert all(pool.passed.values()), f"an empty set of passed tasks in {name}"
        assert math.isfinite(pool.service) and not math.isnan(pool.tokens), f"charges of {name}"
    for ts in pools.scheduler.unrunnable:
        held = pools.control.has(ts)
        assert not held or ts.key in pools.tracker.owner or ts in pools.holding.to_give_back, (
            f"{ts} lost"
        )
    pools.slots.check(pools.pools)
    for records in (pools.tracker.seceded_at, pools.tracker.charged_until):
        assert records.keys() <= pools.tracker.owner.keys(), "a record of an unknown task"
    workers = pools.scheduler.workers
    assert all(not w or w in workers for w in pools.wakeups.timers), (
        "a timer for a worker that is gone"
    )
    if not (pools.holding.on or len(pools.holding)):
        held_by_us = [ts for ts in tasks.values() if pools.control.holds(ts)]
        assert not held_by_us, f"{held_by_us} are held, though nothing is"


def left_over(pools: Pools) -> list[str]:
    """Return descriptions of the records left after all jobs have ended. Should be empty."""
    found = [f"pool {name}" for name in pools.pools]
    found += [f"owner of {key}" for key in pools.tracker.owner]
    found += [f"time of secession of {key}" for key in pools.tracker.seceded_at]
    found += [f"charges of {key}" for key in pools.tracker.charged_until]
    found += [f"timer for {worker}" for worker in pools.wakeups.timers if worker]
    if len(pools.slots):
        found.append(f"{len(pools.slots)} tasks on workers")
    if pools.holding.on or len(pools.holding):
        found.append("tasks are held, or to be given back")
    tasks = pools.scheduler.tasks.values()
    return found + [f"restriction of {ts.key}" for ts in tasks if pools.control.has(ts)]
