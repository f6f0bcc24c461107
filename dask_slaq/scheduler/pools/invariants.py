"""Invariants of the pools, asserted if ``distributed.scheduler.validate`` is set."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from dask_slaq.scheduler.pools.tracker import UNFINISHED

if TYPE_CHECKING:
    from dask_slaq.scheduler.pools.pools import Pools


def check_task(pools: Pools, key: Any) -> None:
    """Check that the records of one task agree with the scheduler. Raises `AssertionError`."""
    pool, ts = pools.tracker.owner.get(key), pools.scheduler.tasks.get(key)
    if ts is None or pool is None or ts not in pool.tasks:
        assert ts is None or not pools.control.has(ts), f"{ts} is restricted, but in no pool"
        return
    assert pools.pools.get(pool.name) is pool, f"{ts} is in the closed pool {pool.name}"
    if ts in pool.ready:
        assert ts.state == "no-worker", f"{ts} is held, but {ts.state}"
        gang = pools.tracker.gangs.is_open(ts)
        assert gang or pool.ready[ts] in pool.kinds[pool.ready[ts].kind], f"{ts} is not to be found"
    elif ts.state == "no-worker" and pools.tracker.is_held(ts):
        assert ts in pools._to_release, f"{ts} is held, but not ready"
    assert (ts in pool.running) == (ts in pools.sent), f"{ts} is on a worker for one of two"
    if ts in pool.running:
        assert ts.state == "processing", f"{ts} counts as on a worker"
    assert pools.control.has(ts) <= (ts.state == "processing"), f"{ts} is restricted still"
    assert (ts in pool.unfinished) <= (ts.state in UNFINISHED), f"{ts} counts as unfinished"
    if ts.state in ("waiting", "queued", "no-worker"):
        assert ts in pool.unfinished, f"{ts} does not count as unfinished"


def check_all(pools: Pools) -> None:
    """Check that the records of all tasks agree with the scheduler. Raises `AssertionError`."""
    tasks, owner = pools.scheduler.tasks, pools.tracker.owner
    for key, pool in owner.items():
        assert key in tasks, f"{key!r} is forgotten, but in pool {pool.name}"
        assert tasks[key] in pool.tasks, f"{key!r} is another task of that key in {pool.name}"
        check_task(pools, key)
    for name, pool in pools.pools.items():
        assert pool.name == name
        for ts in (*pool.unfinished, *pool.running):
            assert ts in pool.tasks, f"{ts} is not in the pool {name} that counts it"
        assert all(owner.get(ts.key) is pool for ts in pool.tasks), f"tasks of {name}"
        filed = sum(map(len, pool.kinds.values()))
        together = sum(pools.tracker.gangs.is_open(ts) for ts in pool.ready)
        assert filed + together == len(pool.ready), f"ready tasks of {name}"
        threads = sum(sent.threads for sent in pool.running.values())
        assert math.isclose(pool.threads, threads, abs_tol=1e-6), f"threads of {name}"
        passed = sum(not sent.ours for sent in pool.running.values())
        assert pool.passed.total() == passed, f"tasks of {name} that Dask sent"
        assert math.isfinite(pool.service) and math.isfinite(pool.balance), f"account of {name}"
    for who, group in pools.groups.items():
        threads = sum(pool.threads for pool in group.pools)
        assert math.isclose(group.running, threads, abs_tol=1e-6), f"threads of {who}"
    pools.sent.check()
    for records in (pools.tracker.seceded_at, pools.tracker.charged_until):
        assert records.keys() <= owner.keys(), "a record of an unknown task"


def left_over(pools: Pools) -> list[str]:
    """Return descriptions of the records left after all jobs have ended. Should be empty."""
    tracker = pools.tracker
    found = [f"pool {name}" for name in pools.pools]
    found += [f"owner of {key}" for key in tracker.owner]
    found += [f"time of secession of {key}" for key in tracker.seceded_at]
    found += [f"charges of {key}" for key in tracker.charged_until]
    if len(pools.sent):
        found.append(f"{len(pools.sent)} tasks on workers")
    if pools.holding:
        found.append("tasks are held, or to be given back")
    tasks = pools.scheduler.tasks.values()
    return found + [f"restriction of {ts.key}" for ts in tasks if pools.control.has(ts)]
