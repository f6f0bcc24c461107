"""Jobs of four owners on four threads, of all shapes, whose ends are asked while they run.

They announce what they are: their iterations, or tasks that can be counted. One owner has a limit
of threads, one label a limit of tasks. Some report first after many tasks, some start tasks
together, some come at once. While they arrive, they want a `load` of the threads.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dask
from dask import delayed

from benchmarks import virtual

#: Terms of the owners, limits of labels, and threads of the cluster.
OWNERS = {"ann": {"weight": 2}, "bob": {}, "cat": {"max-threads": 2}, "dan": {}}
LIMITS = {"io": 1}
THREADS = 4
#: Share of the threads that the jobs want from the first arrival to the last, if not said.
LOAD = 0.8
#: Jobs of a run, and seconds between two looks at them.
COUNT, EACH = 20, 0.5
#: Shapes of the jobs, in turn.
SHAPES = (
    *("training", "chain", "late", "training", "gang"),
    *("batch", "training", "labelled", "late", "batch"),
)


@dataclass(frozen=True)
class OwnedJob:
    """A job: `tasks` of some `seconds` in each iteration, and `first` in the first one."""

    name: str
    owner: str
    shape: str
    arrival: float
    iterations: int
    tasks: int
    seconds: float
    first: int

    @property
    def work(self) -> float:
        """Core-seconds of the whole job."""
        return (self.first + (self.iterations - 1) * self.tasks) * self.seconds


@dataclass
class Watched:
    """What a run showed: looks at jobs, and when they came, reported first, and ended.

    A look has the time, the part of the work that was done, whether the job had reported, and what
    was shown of its end.
    """

    looks: dict[str, list[tuple[float, float, bool, dict[str, Any] | None]]] = field(
        default_factory=dict
    )
    came: dict[str, float] = field(default_factory=dict)
    first: dict[str, float] = field(default_factory=dict)
    ended: dict[str, float] = field(default_factory=dict)


def make_owned_jobs(seed: int, count: int = COUNT, load: float = LOAD) -> list[OwnedJob]:
    """Make the jobs of a seed: four fifths of them come one by one, the others at once."""
    rng = random.Random(f"owned-{seed}")
    shapes = [SHAPES[i % len(SHAPES)] for i in range(count)]
    rng.shuffle(shapes)
    jobs = []
    for i, shape in enumerate(shapes):
        seconds = round(rng.uniform(0.1, 0.3), 3)
        tasks = 1 if shape == "chain" else 3 if shape == "gang" else rng.randint(4, 10)
        work = rng.uniform(8, 50)
        first = rng.randint(25, 60) if shape == "late" else tasks
        iterations = max(round((work / seconds - first) / tasks) + 1, 5)
        owner = rng.choice(list(OWNERS))
        jobs.append(OwnedJob(f"job-{i:02d}", owner, shape, 0.0, iterations, tasks, seconds, first))
    span = sum(job.work for job in jobs) / (load * THREADS)
    burst = rng.uniform(0.2, 0.7) * span
    times = [burst if i % 5 == 4 else rng.uniform(0, span) for i in range(count)]
    return [
        OwnedJob(**{**vars(job), "arrival": round(at, 3)})
        for job, at in zip(jobs, times, strict=True)
    ]


def run_owned(jobs: list[OwnedJob], policy: str, seed: int) -> Watched:
    """Run `jobs` under `policy` on the virtual clock."""
    import dask_slaq as slaq

    watched = Watched()

    async def main() -> None:
        async with virtual.Cluster([1] * THREADS) as cluster, cluster.client() as client:
            plugin = slaq.SlaqPlugin(policy=policy, owners=OWNERS, limits=LIMITS)
            await client.register_plugin(plugin)
            begin = virtual.now()
            watching = asyncio.ensure_future(_watch(cluster.scheduler, jobs, begin, watched))
            await asyncio.gather(*(_drive(cluster, job, begin, watched) for job in jobs))
            watching.cancel()

    virtual.run(main, seed=seed, limit=60 + 20 * sum(job.work for job in jobs))
    return watched


async def _watch(scheduler: Any, jobs: list[OwnedJob], begin: float, watched: Watched) -> None:
    from dask_slaq.scheduler.views import status_of_jobs

    work = {job.name: job.work for job in jobs}
    while True:
        await asyncio.sleep(EACH)
        plugin, now = scheduler.plugins["slaq"], virtual.now() - begin
        for name, row in status_of_jobs(plugin.jobs).items():
            if name in work and name not in watched.ended:
                done = plugin.engine.jobs[name].attained / work[name]
                look = now, min(done, 1.0), name in watched.first, row["ends"]
                watched.looks.setdefault(name, []).append(look)


async def _drive(cluster: Any, job: OwnedJob, begin: float, watched: Watched) -> None:
    import dask_slaq as slaq

    await asyncio.sleep(begin + job.arrival - virtual.now())
    async with cluster.client() as client:
        watched.came[job.name] = virtual.now() - begin
        async with slaq.job(
            job.name,
            owner=job.owner,
            max_iter=None if job.shape == "batch" else job.iterations,
            gang=job.shape == "gang",
            client=client,
        ) as block:
            run = _batch if job.shape == "batch" else _train
            await run(client, block, job, lambda: virtual.now() - begin, watched)
    watched.ended[job.name] = virtual.now() - begin


async def _train(
    client: Any, block: Any, job: OwnedJob, now: Callable[[], float], watched: Watched
) -> None:
    """Report after each iteration. A chain is submitted task by task."""
    for k in range(job.iterations):
        count = job.first if k == 0 else job.tasks
        label = {"slaq_limit": "io"} if job.shape == "labelled" and k % 2 == 0 else {}
        with dask.annotate(**label):
            futures = _tasks(client, job, count)
        await client.gather(futures)
        watched.first.setdefault(job.name, now())
        block.report(0.5 ** (8 * k / job.iterations))


async def _batch(
    client: Any, block: Any, job: OwnedJob, now: Callable[[], float], watched: Watched
) -> None:
    """Run all tasks at once, and report nothing."""
    await client.gather(_tasks(client, job, job.first + (job.iterations - 1) * job.tasks))


def _tasks(client: Any, job: OwnedJob, count: int) -> list[Any]:
    one = delayed(virtual.work, pure=False)
    return client.compute([one(seconds=job.seconds) for _ in range(count)])  # type: ignore[no-any-return]
