"""Scale benchmark: what large queues, many jobs and many workers cost the scheduler.

The scheduler and its graph are real and run in real time. Only the workers are stand-ins, which
speak Dask's protocol without computing (`protocol_workers`). Times are CPU times of the scheduler's
thread, given alongside those of plain Dask for the same tasks. The minimum over repetitions counts,
since noise only adds. Python's garbage collector is off during measurements. So is work stealing,
because the stand-ins do not answer its requests.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import AsyncExitStack
from time import perf_counter, thread_time
from typing import Any

import click
from distributed import Scheduler

from benchmarks.common.cluster import job_block
from benchmarks.common.protocol_cluster import cluster, settled, submit, until
from benchmarks.common.protocol_workers import ProtocolWorkers, Steps
from benchmarks.common.results import give, json_option

__all__ = ["main", "measure"]

#: Workers and their threads in `queue`, and threads per worker in `crowd`.
QUEUE_WORKERS, QUEUE_THREADS, THREADS = 16, 4, 2
#: Tasks of the second job.
SECOND = 300
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
    print(f"    {1e3 * steps.longest:8.2f} ms {steps.what}", file=sys.stderr)
    return 1e3 * steps.longest


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
                piece = slaq.messages.history(start, piece["stop"])
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
) -> dict[str, Any]:
    """Run `queue` and `crowd` with the plugin and without, and `history`.

    Returns minima over repetitions.
    """
    runs: dict[str, list[Any]] = {"queue": [], "queue_plain": [], "crowd": [], "crowd_plain": []}
    for repetition in range(repetitions):
        print(f"repetition {repetition + 1} of {repetitions}", file=sys.stderr, flush=True)
        given = seed + repetition
        for suffix, side in (("", policy), ("_plain", "none")):
            runs["queue" + suffix].append(asyncio.run(queue(side, tasks, given)))
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
        "history_mb_per_hour": kept["mb"],
        "history_read_ms": kept["read_ms"],
    }


def _least(runs: list[dict[str, float]]) -> dict[str, float]:
    return {key: min(run[key] for run in runs) for key in runs[0]}


@click.command()
@click.option("--policy", default="max-total", show_default=True)
@click.option("--repetitions", default=3, show_default=True, type=click.IntRange(1))
@click.option("--seed", default=0, show_default=True, help="Seed of the task durations.")
@click.option("--quick", is_flag=True, help="Smaller sizes; takes under half a minute.")
@json_option
def main(policy: str, repetitions: int, seed: int, quick: bool, output: str | None) -> None:
    """Measure event loop steps and scheduler time at scale, with the plugin and without."""
    if quick:
        size = {"tasks": 5_000, "jobs": 20, "workers": 50, "seconds": 2.0}
        result = measure(policy, repetitions=1, seed=seed, **size)
    else:
        result = measure(policy, repetitions=repetitions, seed=seed)
    give(result, output, _table(result))


def _table(result: dict[str, Any]) -> str:
    lines = [f"{'ms':<28}{'with':>10}{'plain':>10}"]
    rows = [
        (f"longest step, {phase}", ms, result["longest_step_plain_ms"][phase])
        for phase, ms in result["longest_step_ms"].items()
    ]
    rows.append(("a finished task", *result["ms_per_task"].values()))
    rows.append(("all slots filled", *result["slots_both_ms"].values()))
    lines += [f"{name:<28}{ours:>10.3f}{plain:>10.3f}" for name, ours, plain in rows]
    lines.append(
        f"history of an hour: {result['history_mb_per_hour']:.1f} MB; "
        f"its longest piece is read in {result['history_read_ms']:.1f} ms"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
