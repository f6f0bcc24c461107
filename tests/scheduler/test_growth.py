"""Nothing grows: what jobs, clients, workers and tasks leave behind when they go is bounded."""

import asyncio
import functools
import gc
import types
import weakref
from collections import Counter, deque
from contextlib import ExitStack
from itertools import pairwise
from unittest import mock

import dask
import numpy as np
from distributed import Worker
from distributed.utils_test import inc
from driving import another_client, gen_cluster, inside, start_plugin, until

import dask_slaq as slaq
from dask_slaq.core.forecast import from_past_runs

#: Bounds of what is remembered on purpose, made small: a test reaches them at once.
BOUNDS = {
    "core.jobs.ends": {"MOST_SCORES": 4},
    "core.jobs.history": {"MOST_ENDED": 4},
    "core.run_history.runs": {"MOST_KINDS": 4, "MOST_RUNS_PER_KIND": 4},
    "core.owners.usage": {"MOST_ROWS_BY_JOB": 4, "MOST_ROWS_OF_A_DAY": 4, "MOST_ROWS": 4},
    "core.trials.ended": {"MOST_BYTES": 1},
    "run_history.following": {"MOST_LOADED_KINDS": 4},
    "scheduler.jobs.scheduled_jobs": {"MOST_ENDED": 4},
    "scheduler.owners.accounts": {"MOST_OWNERS": 4, "MOST_TASKS": 4},
    "scheduler.owners.identity": {"MOST_CLIENTS": 1},
    "scheduler.pools.durations": {"MOST_GROUPS": 4},
    "scheduler.pools.label_limits": {"MOST_LOGGED": 4},
    "scheduler.trials.tables": {"MOST_NAMED": 4},
}
#: Rounds after which objects are counted: enough to reach all bounds, and twice some more. By
#: how many objects of a type it counts as growth, if it is so both times: one per round.
ROUNDS, GROWTH = (7, 13, 19), 6
#: What is looked into, besides objects of the package: the rest is Dask's, Python's or the loop's.
CONTAINERS = (
    *(dict, list, tuple, set, frozenset, deque, np.ndarray, functools.partial),
    *(types.MethodType, types.CellType, types.GeneratorType, types.FunctionType),
    *(weakref.WeakKeyDictionary, asyncio.Future, asyncio.Handle, type({}.values())),
)


def reachable(plugin) -> Counter[str]:
    """Return the number of objects that the plugin refers to, by type."""
    seen, found, wanted = set(), Counter(), [plugin]
    while wanted:
        each = wanted.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        if not isinstance(each, int):  # only small ones are shared, so their number means nothing
            found[type(each).__name__] += 1
        if isinstance(each, types.FunctionType):  # and not the module in which it was made
            wanted.extend(cell.cell_contents for cell in each.__closure__ or ())
            wanted.extend(vars(each).values())
        elif isinstance(each, CONTAINERS) or type(each).__module__.startswith("dask_slaq"):
            wanted.extend(ref for ref in gc.get_referents(each) if not isinstance(ref, type))
    return found


def named(name, k):
    def work(x):
        slaq.report(1 / (k + 1))
        return x + 1

    work.__name__ = name
    return work


async def come_and_go(s, k):
    """A worker, a client and its jobs come, work under names of their own, and go."""
    async with Worker(s.address, nthreads=1), another_client(s) as c:
        with dask.config.set({"slaq.owner": f"owner-{k}"}):
            first = slaq.job(f"first-{k}", client=c)
            second = slaq.job(f"second-{k}", client=c, kind=f"kind-{k}")
            search = slaq.search(f"search-{k}", client=c)
        async with first, second:
            with dask.annotate(slaq_job=f"first-{k}", slaq_limit=f"label-{k}"):
                some = c.map(named(f"some{k}", k), range(6), pure=False)
            with dask.annotate(slaq_job=f"second-{k}"):
                more = c.map(named(f"more{k}", k), some, pure=False)
                await c.gather(more)
            for loss in (3.0, 2.0, 1.0):
                first.report(loss)
                second.report(loss)
            s.plugins["slaq"].run_once()
        async with search:
            trials = c.map(named(f"trial{k}", k), range(6), pure=False)
        await c.gather([*trials, *c.map(inc, range(4), pure=False)])
        await until(lambda: not s.plugins["slaq"].jobs.reports)
        del some, more, trials


def test_what_comes_and_goes_leaves_nothing(tmp_path):
    kept = {"run_history": str(tmp_path / "memory.sqlite"), "log": str(tmp_path / "log.jsonl")}

    @gen_cluster(client=True, nthreads=[2], timeout=120)
    async def run(c, s, a):
        settings = {"history": 3, "bindings": 3, "half_life": "1d", "limits": {"label-0": 2}}
        plugin = await start_plugin(c, s, policy="max-total", **settings, **kept)
        sizes = []
        for k in range(ROUNDS[-1] + 1):
            await come_and_go(s, k)
            if k in ROUNDS:
                await until(lambda: not s.tasks)
                inside(plugin).store.flush()
                await asyncio.sleep(0.05)
                from_past_runs._hypotheses.cache_clear()  # of a bounded number of tables
                gc.collect()
                sizes.append(reachable(plugin))
        assert plugin.failed is None and inside(plugin).memory_error is None
        grown = [after - before for before, after in pairwise(sizes)]
        more = {name: n for name, n in (grown[0] & grown[1]).items() if n >= GROWTH}
        assert not more, f"grown in {GROWTH} rounds, twice, by type: {more}"

    with ExitStack() as stack:
        for module, bounds in BOUNDS.items():
            stack.enter_context(mock.patch.multiple(f"dask_slaq.{module}", **bounds))
        run()
