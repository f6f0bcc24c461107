"""One list on one kind of cluster, on the virtual clock: Dask's scheduler, workers and `Adaptive`.

All ways have the plugin, and differ only in how many workers there are.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from benchmarks import virtual
from benchmarks.autoscale.elastic import Elastic
from benchmarks.autoscale.lists import LISTS, THREADS, Person
from benchmarks.common.model import train

#: Seconds until a worker that is asked for computes; most workers; price of one for an hour.
START_UP, MAXIMUM, PRICE = 30.0, 16, 0.10
#: Virtual seconds after which a list counts as stuck.
LIMIT = 6 * 3600.0


class Way(NamedTuple):
    """How many workers there are: `fixed`, Dask's own `adaptive` number, or by `worth`."""

    kind: str
    workers: int = MAXIMUM  # of a fixed cluster; of others, at most
    target_duration: float = 5.0  # seconds, of Dask's own
    wait_count: int = 3  # of Dask's own

    @property
    def label(self) -> str:
        """Its settings in words."""
        if self.kind == "fixed":
            return f"{self.workers} workers"
        if self.kind == "adaptive":
            return f"target-duration {self.target_duration:g} s, wait-count {self.wait_count}"
        return "default"


def run(name: str, seed: int, way: Way) -> dict[str, Any]:
    """Run a list on a kind of cluster, and return its figures."""
    return virtual.run(_run, LISTS[name](seed), way, seed=seed, limit=LIMIT)


async def _run(people: list[Person], way: Way) -> dict[str, Any]:
    from distributed.deploy import Adaptive

    import dask_slaq as slaq

    scaling = {"price": PRICE, "maximum": way.workers, "start-up": START_UP}
    took: dict[str, float] = {}
    t90: dict[str, float] = {}
    first = way.workers if way.kind == "fixed" else 0
    async with virtual.Cluster([THREADS] * first) as cluster, cluster.client() as client:
        given = {"scaling": scaling} if way.kind == "worth" else {}
        await client.register_plugin(slaq.SlaqPlugin(**given))
        elastic = Elastic(cluster, START_UP, THREADS)
        adaptive = None
        if way.kind != "fixed":
            adaptive = Adaptive(
                elastic,
                interval=1.0,
                minimum=0,
                maximum=way.workers,
                wait_count=way.wait_count,
                target_duration=way.target_duration,
            )
        begin = virtual.now()
        await asyncio.gather(*(_take_part(p, cluster, took, t90) for p in people))
        makespan = virtual.now() - begin
        seconds = way.workers * makespan if way.kind == "fixed" else elastic.worker_seconds()
        plugin = cluster.scheduler.plugins["slaq"]
        failed = plugin.failed or plugin.scaling.failed
        if adaptive is not None:
            adaptive.stop()
        await elastic.close()
    assert not failed, failed
    return {
        "worker_hours": seconds / 3600,
        "t90_mean_s": float(np.mean(list(t90.values()))) if t90 else None,
        "completion_mean_s": float(np.mean(list(took.values()))),
        "starts": first + elastic.starts,
        "makespan_s": makespan,
    }


async def _take_part(
    person: Person, cluster: Any, took: dict[str, float], t90: dict[str, float]
) -> None:
    await asyncio.sleep(person.start)
    async with cluster.client(name=f"client-{person.name}") as client:
        begin = virtual.now()
        done = await SHAPES[person.shape](client, person.name, **person.parameters)
        took[person.name] = virtual.now() - begin - done.get("thought", 0.0)
        if "t90" in done:
            t90[person.name] = done["t90"]


async def _training(
    client: Any, name: str, n: int, seconds: float, iterations: int, decay: float, gap: float
) -> dict[str, float]:  # fmt: skip
    import dask_slaq as slaq

    begin, at = virtual.now(), []
    async with slaq.job(name, max_iter=iterations, client=client) as job:
        data = client.map(_data, range(n), pure=False, key=f"{name}-data")
        for k in range(iterations):
            parts = client.map(
                _gradient, data, seconds=seconds, pure=False, key=f"{name}-gradient-{k}"
            )
            await client.submit(_total, parts, pure=False, key=f"{name}-total-{k}")
            job.report(math.exp(-decay * k))
            at.append(virtual.now() - begin)
            await asyncio.sleep(gap)
    enough = 1.0 - 0.9 * (1.0 - math.exp(-decay * (iterations - 1)))
    return {"t90": next(at[k] for k in range(iterations) if math.exp(-decay * k) <= enough)}


async def _data(number: int) -> Any:
    return await virtual.work(seconds=0.5, nbytes=10**7)


async def _gradient(chunk: Any, seconds: float) -> Any:
    return await virtual.work(seconds=seconds, nbytes=1000)


async def _total(parts: list[Any]) -> Any:
    return await virtual.work(seconds=0.01)


async def _batch(client: Any, name: str, n: int, seconds: float) -> dict[str, float]:
    import dask_slaq as slaq

    async with slaq.job(name, client=client):
        await client.gather(client.map(_one, [seconds] * n, pure=False, key=f"{name}-map"))
    return {}


async def _one(seconds: float) -> Any:
    return await virtual.work(seconds=seconds)


async def _notebook(
    client: Any, name: str, cells: list[tuple[int, float, float]]
) -> dict[str, float]:
    import dask_slaq as slaq

    thought = 0.0
    for k, (n, seconds, pause) in enumerate(cells):
        async with slaq.job(f"{name}-{k}", client=client):
            futures = client.map(_one, [seconds] * n, pure=False, key=f"{name}-cell-{k}")
            await client.gather(futures)
        await asyncio.sleep(pause)
        thought += pause
    return {"thought": thought}


async def _search(
    client: Any, name: str, models: int, steps: int, seconds: float
) -> dict[str, float]:
    import dask_slaq as slaq

    async with slaq.search(name, steps=steps, client=client) as search:
        futures = [
            client.submit(model, f"{name}-{i}", search._run, i, steps, seconds, key=f"{name}-{i}")
            for i in range(models)
        ]
        await client.gather(futures)
    return {}


async def model(key: str, run: str, number: int, steps: int, seconds: float) -> int:
    """Train a model of a search."""
    await train(key, run, [number % 7 + math.exp(-0.2 * step) for step in range(steps)], seconds)
    return number


SHAPES: dict[str, Callable[..., Any]] = {
    "training": _training,
    "batch": _batch,
    "notebook": _notebook,
    "search": _search,
}
