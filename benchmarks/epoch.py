"""Epoch benchmark: what one whole epoch costs the scheduler's event loop.

An epoch consists of one report per job, the decision, passing the grants to the pools, the history,
and one dispatch that fills the free slots. Scheduler, plugin and messages are real; the workers
speak Dask's protocol and compute nothing. Times are CPU times of the scheduler's thread. The
minimum over several epochs counts, since noise only adds.
"""

from __future__ import annotations

import asyncio
import math
from time import thread_time
from typing import Any

import click
import dask

from benchmarks.common.protocol_cluster import cluster, first, until
from benchmarks.common.results import give, json_option, say, table
from dask_slaq.scheduler.owners.identity import Sender

#: Reports per job before the first measured epoch.
HISTORY = 8
#: Jobs and threads per worker.
JOBS_PER_WORKER, THREADS = 8, 2
FEWEST_WORKERS = 16
#: Slots that a dispatch fills: about as many tasks as end within a few milliseconds.
SLOTS = 16
#: Tasks per thread and epoch. More than one, because some tasks end between the epochs.
TASKS = 2.5
#: Epochs of one second in an hour.
HOUR = 3600
#: Kinds of jobs, whose losses fall at different rates.
KINDS = 7


def measure(jobs: int, *, epochs: int = 7, policy: str = "max-total", seed: int = 0) -> dict:
    """Measure epochs of a scheduler whose jobs report once per epoch; the fastest counts.

    ``decision_ms`` is the engine alone, and ``grants_ms`` the rest of `SlaqPlugin.run_once`;
    ``tasks`` were sent by the dispatch.
    """
    return asyncio.run(_measure(jobs, epochs, policy, seed))


async def _measure(jobs: int, epochs: int, policy: str, seed: int) -> dict[str, Any]:
    names = [f"job-{i:04d}" for i in range(jobs)]
    async with cluster(policy, seed) as (scheduler, workers, client):
        for _ in range(max(FEWEST_WORKERS, jobs // JOBS_PER_WORKER)):
            await workers.add(THREADS)
        slaq = scheduler.plugins["slaq"]
        per_job = math.ceil(TASKS * (epochs + 2) * scheduler.total_nthreads / jobs)
        sender = Sender(client.id, "", scheduler.client_comms[client.id].comm)
        for i, name in enumerate(names):
            await slaq.messages.open(sender, name, kind={"name": f"kind {i % KINDS}"})
        with dask.annotate(slaq_job=_job_of):
            futures = client.map(
                first,
                range(per_job * jobs),
                key=[f"{name}:{i}" for i in range(per_job) for name in names],
            )
        await until(lambda: len(scheduler.tasks) == len(futures))
        engine = _Timed(slaq.jobs.engine)
        slaq.jobs.engine = engine
        for k in range(HISTORY):
            _report(slaq, names, sender, k)
            slaq.run_once()
        await asyncio.sleep(0.1)  # what the plugin put off to later steps
        found = []
        for k in range(epochs):
            # A few threads are always idle, between a finished task and the next.
            await until(lambda: workers.running() >= 0.9 * scheduler.total_nthreads)
            found.append(_epoch(slaq, workers, engine, names, sender, HISTORY + k))
        least = min(found, key=lambda epoch: epoch["epoch_ms"])
        for _ in range(HOUR):
            slaq.jobs.record()
        futures.clear()
        return {
            "jobs": jobs, **least, "history_mb_per_hour": slaq.jobs.epochs.nbytes / 1e6
        }  # fmt: skip


def _job_of(key: Any) -> str:
    return str(key).partition(":")[0]


class _Timed:
    """Engine that times its last decision."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.seconds = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)

    def reallocate(self, *args: Any, **kwargs: Any) -> Any:
        begin = thread_time()
        try:
            return self._engine.reallocate(*args, **kwargs)
        finally:
            self.seconds = thread_time() - begin


def _report(slaq: Any, names: list[str], sender: Sender, k: int) -> None:
    """Send the loss of iteration `k` of every job. The curves fall at different rates."""
    for i, name in enumerate(names):
        slaq.messages.report(sender, job=name, loss=_loss(k, 0.2 + i % KINDS))


def _loss(k: Any, rate: float) -> Any:
    return 1.0 / (1.0 + k * rate)


def _epoch(
    slaq: Any, workers: Any, engine: _Timed, names: list[str], sender: Sender, k: int
) -> dict[str, Any]:
    for _ in range(SLOTS):  # not timed here, but in `benchmarks.scale`
        workers.finish_next()
    pools = slaq.pools
    pools.wakes.soon()  # the dispatch is timed separately: none is made in the epoch
    before = len(pools.sent)
    begin = thread_time()
    _report(slaq, names, sender, k)
    reported = thread_time()
    slaq.run_once()
    decided = thread_time()
    pools.dispatch()
    end = thread_time()
    return {
        "epoch_ms": 1e3 * (end - begin),
        "reports_ms": 1e3 * (reported - begin),
        "decision_ms": 1e3 * engine.seconds,
        "grants_ms": 1e3 * (decided - reported - engine.seconds),
        "dispatch_ms": 1e3 * (end - decided),
        "tasks": len(pools.sent) - before,
    }


@click.command()
@click.option(
    "--jobs", default="100,1000,4000", show_default=True, help="Numbers of jobs, comma-separated."
)
@click.option("--epochs", default=7, show_default=True, type=click.IntRange(1))
@click.option("--policy", default="max-total", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the task durations.")
@click.option("--quick", is_flag=True, help="Fewer jobs; takes under half a minute.")
@json_option
def main(jobs: str, epochs: int, policy: str, seed: int, quick: bool, output: str | None) -> None:
    """Measure whole epochs: reports, decision, grants, history and one dispatch."""
    counts = [20, 100] if quick else [int(count) for count in jobs.split(",")]
    result = []
    for count in counts:
        say(f"{count} jobs")
        result.append(measure(count, epochs=epochs, policy=policy, seed=seed))
    give(result, output, table(list(result[0]), [list(row.values()) for row in result]))


if __name__ == "__main__":
    main()
