"""Graph shapes of participants, as coroutines that submit tasks and return their results.

The arguments of every shape are an asynchronous `client`, a `tag` for the keys, and plain numbers,
so that scenarios can be printed and replayed: `n` tasks, `seconds` of compute and `nbytes` of
result per task. The probe reads a task's kind and participant from its key,
``KIND-WHO.NUMBER-...``.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import random
from collections.abc import Callable, Coroutine
from typing import Any

import dask
from dask import delayed
from distributed import Client, Event, Queue, get_client, get_worker, utils

from benchmarks.never_worse.probe import compute, current, give_up_slot, value_of, who_of

Shape = Callable[..., Coroutine[Any, Any, Any]]


def task(key: str, *inputs: Any, seconds: float, nbytes: int = 0) -> Any:
    """Make a delayed task; see `compute`."""
    call = delayed(compute, pure=False)
    return call(*inputs, name=key, seconds=seconds, nbytes=nbytes, dask_key_name=key)


async def result_of(client: Client, collection: Any, **options: Any) -> Any:
    """Compute delayed objects, and return their results."""
    return await client.gather(client.compute(collection, **options))


def reduce_tree(tag: str, parts: list[Any], fan: int, seconds: float) -> Any:
    """Make a tree of sums over `parts` with `fan` inputs per sum."""
    level = 0
    while len(parts) > 1:
        level += 1
        parts = [
            task(f"sum-{tag}-{level}-{i}", parts[i : i + fan], seconds=seconds)
            for i in range(0, len(parts), fan)
        ]
    return parts[0]


async def roots(client: Client, tag: str, n: int, seconds: float, nbytes: int = 0) -> Any:
    """Run independent tasks."""
    parts = [task(f"map-{tag}-{i}", seconds=seconds, nbytes=nbytes) for i in range(n)]
    return await result_of(client, parts)


async def reduction(
    client: Client,
    tag: str,
    n: int,
    seconds: float,
    nbytes: int,
    fan: int,
    then: float,
    mapped: float = 0.0,
) -> Any:
    """Run root tasks, a task of `mapped` seconds on each, and a tree of sums of `then` seconds."""
    parts = [task(f"root-{tag}-{i}", seconds=seconds, nbytes=nbytes) for i in range(n)]
    if mapped:
        parts = [task(f"map-{tag}-{i}", part, seconds=mapped) for i, part in enumerate(parts)]
    return await result_of(client, reduce_tree(tag, parts, fan, then))


async def load_process(
    client: Client, tag: str, n: int, seconds: float, nbytes: int, then: float
) -> Any:
    """Load on any worker, and process each result on a worker with a GPU in `then` seconds."""
    pairs = []
    for i in range(n):
        load = task(f"root-{tag}-{i}", seconds=seconds, nbytes=nbytes)
        pairs.append(task(f"process-{tag}-{i}", load, seconds=then))
    with dask.annotate(resources=_gpu_to_process):
        futures = client.compute(pairs, optimize_graph=False)
    return await client.gather(futures)


def _gpu_to_process(key: Any) -> dict[str, int]:
    return {"GPU": 1} if str(key).startswith("process-") else {}


async def chains(client: Client, tag: str, n: int, length: int, seconds: float) -> Any:
    """Run `n` chains of `length` dependent tasks."""
    ends = []
    for i in range(n):
        link = task(f"root-{tag}-{i}", seconds=seconds)
        for k in range(1, length):
            link = task(f"link-{tag}-{i}-{k}", link, seconds=seconds)
        ends.append(link)
    return await result_of(client, ends)


async def stencil(
    client: Client, tag: str, sides: list[int], steps: int, seconds: float, nbytes: int
) -> Any:
    """Run steps over a persisted grid of chunks, each of which needs its neighbors."""
    cells = list(itertools.product(*map(range, sides)))
    chunks = client.persist(
        [task(f"root-{tag}-{i}", seconds=seconds, nbytes=nbytes) for i in range(len(cells))]
    )
    for k in range(steps):
        grid = dict(zip(cells, chunks, strict=True))
        chunks = client.persist(
            [
                task(
                    f"step-{tag}-{k}-{i}",
                    *(grid[near] for near in _neighbors(cell, sides)),
                    seconds=seconds,
                    nbytes=nbytes,
                )
                for i, cell in enumerate(cells)
            ]
        )
    return await result_of(client, list(chunks))


def _neighbors(cell: tuple[int, ...], sides: list[int]) -> list[tuple[int, ...]]:
    """Return a cell and the next ones in each direction; the grid is periodic."""
    found = {cell: None}
    for axis, side in enumerate(sides):
        for shift in (-1, 1):
            found[(*cell[:axis], (cell[axis] + shift) % side, *cell[axis + 1 :])] = None
    return list(found)


async def one_input(
    client: Client, tag: str, n: int, seconds: float, nbytes: int, everywhere: bool
) -> Any:
    """Run tasks over one large input, stored on one worker or on all."""
    first = client.persist(task(f"data-{tag}", seconds=0.0, nbytes=nbytes))
    await client.gather(client.compute(task(f"touch-{tag}", first, seconds=0.0)))
    if everywhere:
        await client.replicate(client.compute(first))
    parts = [task(f"use-{tag}-{i}", first, seconds=seconds) for i in range(n)]
    return await result_of(client, parts)


async def one_by_one(client: Client, tag: str, n: int, seconds: float, gap: float) -> Any:
    """Submit tasks one after another, `gap` seconds apart, without waiting for results."""
    futures = []
    for i in range(n):
        futures.append(_submit(client, f"map-{tag}-{i}", seconds))
        await asyncio.sleep(gap)
    return await client.gather(futures)


def _submit(client: Client, key: str, seconds: float, *inputs: Any, **options: Any) -> Any:
    return client.submit(compute, *inputs, name=key, seconds=seconds, key=key, **options)


async def iterating(
    client: Client,
    tag: str,
    n: int,
    seconds: float,
    iterations: int,
    gap: float,
    report: Any,
    nbytes: int = 0,
    decay: float | None = None,
    before: int = 0,
    before_seconds: float = 0.0,
) -> Any:
    """Run a training loop: a map over persisted data, a tree of sums, and a report.

    The loss is ``exp(-decay * k)`` after `k` iterations, or ``1 / (k + 1)`` without `decay`. Some
    tasks may come `before` the first iteration."""
    if before:
        await roots(client, f"{tag}-before", before, before_seconds)
    data = client.persist([task(f"data-{tag}-{i}", seconds=0.01, nbytes=nbytes) for i in range(n)])
    results = []
    for k in range(iterations):
        parts = [task(f"gradient-{tag}-{k}-{i}", d, seconds=seconds) for i, d in enumerate(data)]
        results.append(await result_of(client, reduce_tree(f"{tag}-{k}", parts, 16, 0.001)))
        report(1.0 / (k + 1) if decay is None else math.exp(-decay * k))
        await asyncio.sleep(gap)
    return results


async def asking(
    client: Client, tag: str, queries: int, n: int, seconds: float, pause: float
) -> Any:
    """Ask as a notebook does: a map and its sum, and a `pause` before the next query."""
    results = []
    for k in range(queries):
        parts = [task(f"map-{tag}-{k}-{i}", seconds=seconds) for i in range(n)]
        total = task(f"sum-{tag}-{k}", parts, seconds=0.001)
        results.append(await result_of(client, total))
        await asyncio.sleep(pause)
    return results


async def straggler(client: Client, tag: str, n: int, seconds: float, long: float) -> Any:
    """Run tasks of which one takes `long` seconds, and a sum of all."""
    parts = [task(f"map-{tag}-{i}", seconds=long if i == n // 2 else seconds) for i in range(n)]
    return await result_of(client, task(f"sum-{tag}", parts, seconds=0.001))


async def longer_than_before(client: Client, tag: str, n: int, short: float, long: float) -> Any:
    """Run tasks that take `long` seconds after a first one of the same prefix took `short`."""
    first = await _submit(client, f"grow-{tag}-first", short)
    rest = [_submit(client, f"grow-{tag}-{i}", long) for i in range(n)]
    return [first, *await client.gather(rest)]


async def pinned(client: Client, tag: str, n: int, seconds: float, worker: int) -> Any:
    """Run tasks that the user restricts to one worker."""
    workers = sorted(current[-1].scheduler.workers)
    address = workers[worker % len(workers)]
    futures = [_submit(client, f"pin-{tag}-{i}", seconds, workers=[address]) for i in range(n)]
    return await client.gather(futures)


async def priorities(
    client: Client, tag: str, n: int, seconds: float, levels: tuple[int, ...] = (-1, 0, 1)
) -> Any:
    """Run tasks with different priorities."""
    futures = [
        _submit(client, f"map-{tag}-{i}", seconds, priority=levels[i % len(levels)])
        for i in range(n)
    ]
    return await client.gather(futures)


async def _secede(name: str, seconds: float) -> Any:
    value = await compute(name=name, seconds=seconds)
    await give_up_slot(name)
    await asyncio.sleep(5 * seconds)
    return value


async def seceding(client: Client, tag: str, n: int, seconds: float) -> Any:
    """Run tasks that give up their slot and continue."""
    futures = [
        client.submit(_secede, f"secede-{tag}-{i}", seconds, key=f"secede-{tag}-{i}")
        for i in range(n)
    ]
    return await client.gather(futures)


async def _parent(name: str, n: int, seconds: float) -> Any:
    client = get_client()
    await give_up_slot(name)
    tag = name.split("-", 1)[1]
    children = [_submit(client, f"child-{tag}-{i}", seconds) for i in range(n)]
    return value_of(name, await client.gather(children))


async def nested(client: Client, tag: str, n: int, children: int, seconds: float) -> Any:
    """Run tasks that submit further tasks and wait for them."""
    futures = [
        client.submit(_parent, f"parent-{tag}-{i}", children, seconds, key=f"parent-{tag}-{i}")
        for i in range(n)
    ]
    return await client.gather(futures)


async def _meet(name: str, number: int, of: int) -> Any:
    """Wait until all tasks of the group are running."""
    client = get_client()
    group = name.rsplit("-", 1)[0]
    await Event(f"{group}-{number}", client=client).set()
    for other in range(of):
        await Event(f"{group}-{other}", client=client).wait()
    return value_of(name, ())


async def waiting_for_each_other(client: Client, tag: str, n: int, rounds: int) -> Any:
    """Run groups of tasks that wait for each other, as a gang."""
    results = []
    for k in range(rounds):
        keys = [f"meet-{tag}-{k}-{i}" for i in range(n)]
        call = delayed(_meet, pure=False)
        parts = [call(key, i, n, dask_key_name=key) for i, key in enumerate(keys)]
        results.append(await result_of(client, parts))
    return results


async def _consume(name: str, queue: str) -> Any:
    waiting = await Queue(queue, client=get_client())
    return value_of(name, [await waiting.get()])


async def _produce(name: str, queue: str, seconds: float) -> Any:
    value = await compute(name=name, seconds=seconds)
    waiting = await Queue(queue, client=get_client())
    await waiting.put(value)
    return value


async def waiters(client: Client, tag: str, n: int, seconds: float, later: float) -> Any:
    """Run consumers that wait on a queue, and submit their producers `later` seconds after."""
    queue = await Queue(f"queue-{tag}", client=client)
    futures = []
    for call, kind, more in ((_consume, "consume", ()), (_produce, "produce", (seconds,))):
        for i in range(n):
            key = f"{kind}-{tag}-{i}"
            futures.append(client.submit(call, key, queue.name, *more, key=key))
        await asyncio.sleep(later if call is _consume else 0)
    results = await client.gather(futures)
    return len(results), sorted(results[n:])  # which consumer gets which value is luck


async def shared_keys(client: Client, tag: str, n: int, seconds: float) -> Any:
    """Run tasks with the keys that every participant of this shape uses, and own sums."""
    parts = [task(f"map-shared-{i}", seconds=seconds) for i in range(n)]
    return await result_of(client, reduce_tree(tag, parts, 4, 0.01))


def _partition(part: Any, name: str, seconds: float) -> Any:
    """Compute for some virtual seconds in a thread, and return the partition."""
    run = current[-1].begin(who_of(name))
    utils.sync(get_worker().loop, asyncio.sleep, seconds)
    current[-1].end(run)
    return part


def _sum_of_keys(part: Any, name: str, seconds: float) -> Any:
    return _partition(part, name, seconds)[["key"]].sum()


async def shuffle(client: Client, tag: str, n: int, rows: int, seconds: float) -> Any:
    """Run a P2P shuffle of a DataFrame."""
    import dask.dataframe as dd
    import pandas as pd

    frame = pd.DataFrame({"key": [(i * 7919) % 97 for i in range(n * rows)], "value": 1.0})
    options = {"name": f"part-{tag}", "seconds": seconds}
    with dask.config.set({"dataframe.shuffle.method": "p2p"}):
        frames = dd.from_pandas(frame, npartitions=n)
        parts = frames.map_partitions(_partition, **options, meta=frame)
        sums = parts.shuffle("key").map_partitions(_sum_of_keys, **options, meta=frame["key"])
        return sorted((await client.compute(sums)).tolist())


#: Shapes by name that scenarios draw from.
DRAWN: dict[str, Shape] = {
    shape.__name__: shape
    for shape in (
        roots, reduction, load_process, chains, stencil, one_input, one_by_one, iterating,
        straggler, longer_than_before, pinned, priorities, seceding, nested,
        waiting_for_each_other, waiters, shared_keys, shuffle,
    )
}  # fmt: skip
#: All shapes by name.
SHAPES: dict[str, Shape] = {**DRAWN, "asking": asking}


def draw(name: str, rng: random.Random, threads: int, work: float) -> dict[str, Any]:
    """Draw the parameters of a shape that computes about `work` core-seconds.

    The cluster has some `threads`.
    """
    seconds = round(10 ** rng.uniform(-2.3, -0.5), 4)  # 5 to 316 ms
    n = max(2, min(int(work / seconds), 150))
    nbytes = rng.choice([0, 10**4, 10**6, 5 * 10**7])
    by_name: dict[str, Callable[[], dict[str, Any]]] = {
        "roots": lambda: {"n": n, "seconds": seconds, "nbytes": nbytes},
        "reduction": lambda: {
            "n": n,
            "seconds": seconds,
            "nbytes": nbytes,
            "fan": rng.choice([2, 4, 8]),
            "then": 0.002,
        },
        "load_process": lambda: {
            "n": max(n // 2, 2),
            "seconds": seconds,
            "nbytes": nbytes,
            "then": seconds * rng.uniform(0.5, 3),
        },
        "chains": lambda: {"n": max(n // 10, 1), "length": 10, "seconds": seconds},
        "stencil": lambda: {
            "sides": rng.choice([[min(max(n // 4, 4), 24)], [4, 6], [3, 3, 3]]),
            "steps": 4,
            "seconds": seconds,
            "nbytes": nbytes,
        },
        "one_input": lambda: {
            "n": n,
            "seconds": seconds,
            "nbytes": 4 * 10**7,
            "everywhere": rng.random() < 0.5,
        },
        "one_by_one": lambda: {"n": n, "seconds": seconds, "gap": seconds / threads / 2},
        "iterating": lambda: {
            "n": 2 * threads,
            "seconds": seconds,
            "iterations": max(int(work / seconds / threads / 2), 2),
            "gap": 0.005,
        },
        "straggler": lambda: {"n": n, "seconds": seconds, "long": 10 * seconds},
        "longer_than_before": lambda: {"n": max(int(work / 0.3), 2), "short": 0.001, "long": 0.3},
        "pinned": lambda: {
            "n": min(n, 40),
            "seconds": min(seconds, 0.05),
            "worker": rng.randrange(4),
        },
        "priorities": lambda: {"n": n, "seconds": seconds},
        "seceding": lambda: {"n": min(n, 40), "seconds": min(seconds, 0.05)},
        "nested": lambda: {"n": min(n, 6), "children": 10, "seconds": min(seconds, 0.1)},
        "waiting_for_each_other": lambda: {"n": max(threads // 2, 2), "rounds": 3},
        "waiters": lambda: {"n": max(threads // 4, 1), "seconds": min(seconds, 0.1), "later": 0.3},
        "shared_keys": lambda: {"n": n, "seconds": seconds},
        "shuffle": lambda: {"n": 8, "rows": 20, "seconds": min(seconds, 0.1)},
    }
    return by_name[name]()
