"""Scale benchmark: what large queues, many jobs and many workers cost the scheduler.

The scheduler and its graph are real and run in real time. Only the workers are stand-ins, which
speak Dask's protocol without computing (`protocol_workers`). Times are CPU times of the scheduler's
thread, given alongside those of plain Dask for the same tasks. The minimum over repetitions counts,
since noise only adds. Python's garbage collector is off during measurements. So is work stealing,
because the stand-ins do not answer its requests.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from contextlib import AsyncExitStack
from functools import partial
from statistics import mean, median
from time import perf_counter, thread_time
from typing import Any

import click
import dask
import dask.array as da
from distributed import Client, Scheduler

from benchmarks import virtual
from benchmarks.common.calls import Calls
from benchmarks.common.cluster import job_block
from benchmarks.common.protocol_cluster import cluster, first, settled, submit, until
from benchmarks.common.protocol_workers import ProtocolWorkers, Steps
from benchmarks.common.results import give, json_option, say, table
from benchmarks.common.scheduler_cost import SchedulerCost

#: Workers and their threads in `queue`, and threads per worker in `crowd`.
QUEUE_WORKERS, QUEUE_THREADS, THREADS = 16, 4, 2
#: Tasks of the second job.
SECOND = 300
#: Jobs of one owner, jobs, and workers that come, where many compete.
MANY, JOINS = {"priority": 100, "homes": 200, "joins": 20}, 100
#: Epochs in an hour.
EPOCHS = 3600


# A long queue


async def queue(policy: str, tasks: int, seed: int) -> dict[str, float]:
    """Measure the longest steps of the event loop while one job has many queued tasks.

    Returns milliseconds: ``open`` while a second job opens and submits tasks, ``worker`` while a
    worker joins, and ``close`` while the second job ends.
    """
    async with cluster(policy, seed) as (scheduler, workers, client):
        for _ in range(QUEUE_WORKERS):
            await workers.add(QUEUE_THREADS)
        found = {}
        async with job_block(policy, "long", client):
            held = submit(client, "long", tasks)
            await until(lambda: len(scheduler.tasks) == tasks)
            await settled(scheduler)
            async with AsyncExitStack() as second:
                with Steps() as steps:
                    await second.enter_async_context(job_block(policy, "second", client))
                    mine = submit(client, "second", SECOND)
                    await until(lambda: mine[-1].key in scheduler.tasks)
                    await settled(scheduler)
                found["open"] = _ms(steps)
                with Steps() as steps:
                    await workers.add(QUEUE_THREADS)
                    await settled(scheduler)
                found["worker"] = _ms(steps)
                with Steps() as steps:
                    mine.clear()
                    await second.aclose()
                    await settled(scheduler)
                found["close"] = _ms(steps)
            del held
        return {phase: found[phase] for phase in ("open", "close", "worker")}


def _ms(steps: Steps) -> float:
    say(f"    {1e3 * steps.longest:8.2f} ms {steps.what}")
    return 1e3 * steps.longest


async def many(policy: str, case: str, jobs: int, seed: int) -> float:
    """Measure the longest step of the event loop in milliseconds where many jobs compete.

    The case is ``priority``, where users give tasks priorities; ``homes``, where tasks wait for the
    busy workers that have their inputs; or ``joins``, where workers come meanwhile.
    """
    async with cluster(policy, seed, SHORT) as (scheduler, stubs, client), AsyncExitStack() as all_:
        for _ in range(QUEUE_WORKERS):
            await stubs.add(QUEUE_THREADS)
        held = []
        for i in range(jobs):
            name = f"job-{i:03d}"
            await all_.enter_async_context(job_block(policy, name, client))
            with dask.annotate(priority=i % 5 if case == "priority" else 0):
                held += submit(client, name, 40, steps=2 if case == "homes" else 0)
        await until(lambda: held[-1].key in scheduler.tasks)
        await settled(scheduler)
        # On a slow machine most of few tasks may have ended by now.
        enough = min(stubs.finished + min(500, len(held) // 2), len(held))
        with Steps() as steps:
            for _ in range(JOINS if case == "joins" else 0):
                await stubs.add(QUEUE_THREADS)
            await until(lambda: stubs.finished >= enough)
        say(f"{case}, {jobs} jobs:")
        return _ms(steps)


# Many jobs and workers


async def crowd(
    policy: str, jobs: int, workers: int, seconds: float, seed: int
) -> dict[str, float]:
    """Measure the scheduler's milliseconds per finished task, and to fill all slots at once.

    Finished tasks are counted for some `seconds`; workers have two threads each.
    """
    async with cluster(policy, seed) as (scheduler, stubs, client), AsyncExitStack() as blocks:
        for _ in range(workers):
            await stubs.add(THREADS)
        futures = []
        for i in range(jobs):
            name = f"job-{i:03d}"
            job = await blocks.enter_async_context(job_block(policy, name, client))
            for k in range(6):
                job.report(1.0 / (1 + k))
            per_job = round(8 * seconds * THREADS * workers / jobs / 4) + 10
            futures += submit(client, name, per_job, steps=3)
        await until(lambda: len(scheduler.tasks) == len(futures))
        slots = THREADS * workers
        # A few threads are always idle, between a finished task and the next.
        await until(lambda: stubs.running() >= 0.95 * slots)
        spent = await _run_for(scheduler, stubs, seconds)
        await until(lambda: stubs.running() >= 0.95 * slots)
        filled = await _fill(scheduler, stubs, slots)
        futures.clear()
        return {"ms_per_task": spent, "slots_ms": filled}


async def _run_for(scheduler: Scheduler, stubs: ProtocolWorkers, seconds: float) -> float:
    slaq = scheduler.plugins.get("slaq")
    epochs, count, before, begin = 0.0, stubs.finished, stubs.seconds, perf_counter()
    with Steps() as steps:
        while perf_counter() - begin < seconds:
            await asyncio.sleep(min(1.0, seconds))
            if slaq is not None:
                turn = thread_time()
                slaq.run_once()
                epochs += thread_time() - turn
    total = stubs.seconds - before + steps.ours + epochs
    return 1e3 * total / (stubs.finished - count)


async def _fill(scheduler: Scheduler, stubs: ProtocolWorkers, slots: int) -> float:
    """Finish all running tasks in one step, and time the dispatch of as many new ones (ms).

    Plain Dask sends new tasks within that step, so the whole step counts there.
    """
    slaq = scheduler.plugins.get("slaq")
    before = stubs.seconds
    for _ in range(stubs.running()):
        stubs.finish_next()
    handled = stubs.seconds - before
    if slaq is None:
        return 1e3 * handled
    with Steps() as steps:
        await until(lambda: sum(len(ws.processing) for ws in scheduler.workers.values()) >= slots)
    return 1e3 * steps.ours


# The cost of a task


async def lives(
    policy: str,
    jobs: int,
    shape: str,
    seed: int,
    measure: Callable[[Scheduler], Any],
    *,
    workers: int = 20,
    tasks: int = 1_500,
) -> tuple[Any, int]:
    """Run tasks, and `measure` the scheduler from their graphs until all are forgotten.

    Without jobs, the tasks are those of one that is not open. Returns what `measure` made, and the
    number of tasks.
    """
    async with cluster(policy, seed, SHORT) as (scheduler, stubs, client), AsyncExitStack() as all_:
        for _ in range(workers):
            await stubs.add(THREADS)
        slaq = scheduler.plugins.get("slaq")
        for i in range(jobs):
            job = await all_.enter_async_context(job_block(policy, f"job-{i:03d}", client))
            for k in range(6):
                job.report(1.0 / (1 + k))
        clock = asyncio.get_running_loop().time  # the virtual one, too
        next_epoch = clock()
        with measure(scheduler) as found:
            futures = [
                future
                for i in range(max(jobs, 1))
                for future in SHAPES[shape](client, f"job-{i:03d}", tasks // max(jobs, 1) or 1)
            ]
            await until(lambda: futures[-1].key in scheduler.tasks)
            count = len(scheduler.tasks)
            while not all(future.done() for future in futures):
                await asyncio.sleep(0.05)
                if slaq is not None and clock() >= next_epoch:
                    found.run(slaq.run_once)
                    next_epoch += 1.0
            futures.clear()
            await until(lambda: not any(ts.who_wants for ts in scheduler.tasks.values()))
            await settled(scheduler)
        return found, count


def cost(*args: Any, **size: Any) -> dict[str, float]:
    """Measure what the scheduler spends on each task. See `lives`.

    Returns microseconds per task, and the numbers of dispatches per task and of empty ones among
    all.
    """
    spent, count = asyncio.run(lives(*args, SchedulerCost, **size))
    return {
        "us": 1e6 * spent.seconds / count,
        "dispatches": spent.dispatches / count,
        "empty": spent.empty / max(spent.dispatches, 1),
    }


def count_calls(policy: str, jobs: int, shape: str, seed: int) -> dict[str, float]:
    """Return the calls of our functions per task by function, but for epochs. See `calls`."""
    few = partial(lives, tasks=CALLED)
    made, count = virtual.run(few, policy, jobs, shape, seed, lambda scheduler: Calls())
    return {function: calls / count for function, calls in made.by_function().items()}


def calls(policy: str, seed: int) -> dict[str, Any]:
    """Count the calls of our functions per task with one job and with two, on the virtual clock.

    Returns means over chains and a map, and all by function. They are the same on any machine.
    """
    with virtual.pool(1) as pool:
        found = {
            jobs: {
                shape: pool.submit(count_calls, policy, int(jobs), shape, seed).result()
                for shape in ("chains", "map")
            }
            for jobs in ("1", "2")
        }
    means = {jobs: mean(sum(by.values()) for by in of.values()) for jobs, of in found.items()}
    return {"calls": means, "functions": found}


def _map(client: Client, job: str, tasks: int) -> list[Any]:
    return submit(client, job, tasks)


def _chains(client: Client, job: str, tasks: int) -> list[Any]:
    return submit(client, job, max(tasks // 5, 1), steps=4)


def _tree(client: Client, job: str, tasks: int) -> list[Any]:
    with dask.annotate(slaq_job=job):
        futures = last = client.map(first, range(max(tasks // 2, 1)), pure=False)
        while len(last) > 1:
            left, right = last[::2], [*last[1::2], last[-1]]
            last = client.map(_both, left, right[: len(left)], pure=False)
            futures = futures + last
    return futures


def _array(client: Client, job: str, tasks: int) -> list[Any]:
    side = max(round((tasks / 4) ** 0.5), 2)
    # Of one number each, because nothing computes; the tasks are those of any size.
    x = da.ones((side, side), chunks=1, name=f"ones-{job}")
    y = x + x.T
    with dask.annotate(slaq_job=job):
        return list(client.compute([y.sum(), y.mean(axis=0)], optimize_graph=False))


def _both(x: Any, y: Any) -> Any:
    return x, y


#: Graphs of a job, by name.
SHAPES = {"map": _map, "chains": _chains, "tree": _tree, "array": _array}
#: Jobs, and workers of two threads each.
CROWDS = {0: 20, 1: 20, 2: 20, 10: 100, 200: 500}
#: Tasks of which calls are counted, and functions that are shown.
CALLED, MOST = 600, 60
#: Most jobs where only the cost of a task is measured.
FEW = 10
#: Figures of a cost that are shown.
COSTS = ("ours_us", "plain_us", "ratio", "dispatches")
#: Seconds of a task where its cost is measured.
SHORT = (0.05, 0.15)


def costs(
    policy: str, repetitions: int, seed: int, quick: bool, few: bool = False
) -> dict[str, Any]:
    """Run `cost` with the plugin and without, in turn. Returns medians by number of jobs.

    The first of a pair is the other one in the next pair.

    Up to two jobs run each of the `SHAPES`; more run chains. With `few`, there are at most `FEW`.
    """
    found: dict[str, Any] = {}
    for jobs, workers in CROWDS.items():
        if (quick or few) and jobs > FEW:
            continue
        size = {"workers": min(workers, 50) if quick else workers}
        size["tasks"] = 300 if quick else 1_500 if jobs <= 2 else 40 * workers
        by_shape: dict[str, dict[str, float]] = {}
        for shape in SHAPES if jobs <= 2 and not quick else ("chains",):
            say(f"{jobs} jobs, {shape}")
            cost("none", jobs, shape, seed, **{**size, "tasks": 300})  # which loads what both need
            runs = []
            for i in range(repetitions):
                sides = (policy, "none") if i % 2 == 0 else ("none", policy)
                found_of = {side: cost(side, jobs, shape, seed + i, **size) for side in sides}
                runs.append((found_of[policy], found_of["none"]))
            ours, plain = zip(*runs, strict=True)
            by_shape[shape] = {
                "ours_us": median(run["us"] for run in ours),
                "plain_us": median(run["us"] for run in plain),
                "ratio": median(o["us"] / p["us"] for o, p in runs),
                "dispatches": median(run["dispatches"] for run in ours),
                "empty": median(run["empty"] for run in ours),
            }
        all_shapes = by_shape.values()
        found[str(jobs)] = {
            key: mean(each[key] for each in all_shapes) for key in next(iter(all_shapes))
        }
        found[str(jobs)]["shapes"] = by_shape
    return found


# History


async def history(jobs: int, seed: int) -> dict[str, float]:
    """Measure the MB of one hour of history, and the time to read its slowest piece."""
    async with cluster("max-total", seed) as (scheduler, workers, client):
        await workers.add(THREADS)
        async with AsyncExitStack() as blocks:
            for i in range(jobs):
                await blocks.enter_async_context(job_block("max-total", f"job-{i:03d}", client))
            slaq = scheduler.plugins["slaq"]
            slaq.run_once()
            for _ in range(EPOCHS):
                slaq.jobs.record()
            longest, piece, start = 0.0, {"stop": None}, 0
            while start is not None:
                begin = thread_time()
                piece = slaq.messages.handler("history")(start, piece["stop"])
                longest = max(longest, thread_time() - begin)
                start = piece["next"]
            return {"mb": slaq.jobs.epochs.nbytes / 1e6, "read_ms": 1e3 * longest}


def measure(
    policy: str = "max-total",
    *,
    tasks: int = 100_000,
    jobs: int = 200,
    workers: int = 500,
    seconds: float = 5.0,
    repetitions: int = 3,
    seed: int = 0,
    quick: bool = False,
) -> dict[str, Any]:
    """Run `queue`, `many`, `crowd` and `costs` with the plugin and without, and `history`.

    Returns minima over repetitions, and medians of costs.
    """
    runs: dict[str, list[Any]] = {"queue": [], "queue_plain": [], "crowd": [], "crowd_plain": []}
    for repetition in range(repetitions):
        say(f"repetition {repetition + 1} of {repetitions}")
        given = seed + repetition
        for suffix, side in (("", policy), ("_plain", "none")):
            steps = asyncio.run(queue(side, tasks, given))
            for case, of in MANY.items():
                steps[case] = asyncio.run(many(side, case, min(of, jobs), given))
            runs["queue" + suffix].append(steps)
            runs["crowd" + suffix].append(asyncio.run(crowd(side, jobs, workers, seconds, given)))
    found = {part: _least(many) for part, many in runs.items()}
    ours, plain = found["crowd"], found["crowd_plain"]
    kept = asyncio.run(history(jobs, seed))
    return {
        "longest_step_ms": found["queue"],
        "longest_step_plain_ms": found["queue_plain"],
        "ms_per_task": {"ours": ours["ms_per_task"], "plain": plain["ms_per_task"]},
        "slots_ms": ours["slots_ms"],
        "slots_both_ms": {"ours": ours["slots_ms"], "plain": plain["slots_ms"]},
        "cost": costs(policy, repetitions, seed, quick),
        "history_mb_per_hour": kept["mb"],
        "history_read_ms": kept["read_ms"],
    }


def _least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(run[key] for run in runs) for key in runs[0]}


@click.command()
@click.option("--policy", default="max-total", show_default=True)
@click.option("--repetitions", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the task durations.")
@click.option("--quick", is_flag=True, help="Smaller sizes; takes about a minute.")
@click.option("--costs", "only", is_flag=True, help="Only what a task costs with few jobs.")
@click.option("--calls", "count", is_flag=True, help="Only our calls per task, and of what.")
@json_option
def main(
    policy: str, repetitions: int, seed: int, quick: bool, only: bool, count: bool, output: str
) -> None:
    """Measure event loop steps and scheduler time at scale, with the plugin and without."""
    if count:
        found = calls(policy, seed)
        give(found, output, _calls_table(found))
        return
    if only:
        found = costs(policy, repetitions, seed, quick, few=True)
        give(found, output, _costs_table(found))
        return
    if quick:
        size = {"tasks": 5_000, "jobs": 20, "workers": 50, "seconds": 2.0}
        result = measure(policy, repetitions=1, seed=seed, quick=True, **size)
    else:
        result = measure(policy, repetitions=repetitions, seed=seed)
    give(result, output, _table(result))


def _table(result: dict[str, Any]) -> str:
    steps = [
        [f"longest step, {phase}", ms, result["longest_step_plain_ms"][phase]]
        for phase, ms in result["longest_step_ms"].items()
    ]
    rest = [
        ["a finished task", *result["ms_per_task"].values()],
        ["all slots filled", *result["slots_both_ms"].values()],
        ["history of an hour, MB", result["history_mb_per_hour"], None],
        ["its longest piece, read", result["history_read_ms"], None],
    ]
    return f"{table(['ms', 'with', 'plain'], steps + rest)}\n{_costs_table(result['cost'])}"


def _costs_table(found: dict[str, Any]) -> str:
    rows = [
        [f"{jobs} jobs, {name}", *(row[key] for key in COSTS)]
        for jobs, cost in found.items()
        for name, row in {"all": cost, **cost["shapes"]}.items()
    ]
    return table(["µs per task", "with", "plain", "ratio", "dispatches"], rows)


def _calls_table(found: dict[str, Any]) -> str:
    columns = {
        f"{jobs}, {shape}": by
        for jobs, shapes in found["functions"].items()
        for shape, by in shapes.items()
    }
    total = sum(map(Counter, columns.values()), Counter())
    rows = [["all", *(sum(by.values()) for by in columns.values())]]
    rows += [[f, *(by.get(f, 0.0) for by in columns.values())] for f, _ in total.most_common(MOST)]
    return table(["calls per task: jobs, tasks", *columns], rows)


if __name__ == "__main__":
    main()
