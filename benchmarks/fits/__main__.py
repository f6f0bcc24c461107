"""``python -m benchmarks.fits``: recorded fits of dask-ml on the virtual clock, with latency.

Each fit of a recording is a job: per iteration its driver computes, then sends a graph of four
chains of tasks on four blocks of data and their sum, with the recorded seconds, and reports the
recorded loss. Lists: six at once; all over time, one every two seconds on average; long ones, of
which most comes after 90 % of the fall, one every four seconds. `none` is plain Dask; the oracle
serves the least work left to 90 % of the fall first, without a promise. With ``--record FILE``,
real fits are recorded, and nothing runs.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import sys
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any

import click
import numpy as np
from dask import delayed

from benchmarks import virtual
from benchmarks.common import cluster as clusters
from benchmarks.common.metrics import JobTrace, Run, summarize
from benchmarks.common.results import Names, give, json_option
from benchmarks.fits.recording import Fit, lengthen, read, record
from benchmarks.virtual.latency import parse
from dask_slaq.core.policies import Allocation, Snapshot

#: Blocks of data per fit, their bytes, those of results, and worker threads.
BLOCKS, BLOCK_BYTES, RESULT_BYTES, WORKERS = 4, 10_000_000, 200_000, 2
#: Virtual seconds of a task where none was recorded, and the timeout of a run.
SHORTEST, LIMIT = 0.0005, 5000.0
LISTS = ("six", "twelve", "long")
POLICIES = ["none", "fair", "max-total", "first-to-target", "oracle"]
FIGURES = ("t90_mean_s", "t95_mean_s", "completion_mean_s", "makespan_s", "busy")


class Oracle:
    """Policy that knows the core-seconds left by name: to 90 % of the fall, or to the end."""

    name = "oracle"
    needs: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.left: dict[str, tuple[bool, float]] = {}

    def __call__(self, snapshot: Snapshot) -> Allocation:
        """Give all threads to the first job."""
        order = sorted(range(len(snapshot.jobs)), key=lambda i: self.left[snapshot.jobs[i]])
        index, share = np.zeros(len(order)), np.zeros(len(order))
        index[order] = np.arange(len(order), 0, -1)
        share[order[:1]] = snapshot.capacity
        return Allocation(share, index)


def make_list(name: str, fits: Mapping[str, Fit], seed: int) -> dict[str, tuple[float, Fit]]:
    """Return the arrival in seconds and the fit of each job of a list."""
    rng = np.random.default_rng([3, seed])
    names = [list(fits)[i] for i in rng.permutation(len(fits))]
    if name == "six":
        return {each: (0.0, fits[each]) for each in names[:6]}
    gap, times = (2.0, 1) if name == "twelve" else (4.0, 4)
    at = np.cumsum(rng.exponential(gap, len(names)))
    made = (lengthen(fits[each], times) for each in names)
    return dict(zip(names, zip((at - at[0]).tolist(), made, strict=True), strict=True))


def graph(name: str, k: int, data: list[Any], seconds: list[float]) -> Any:
    """Return four chains of tasks on four blocks of data, and their sum."""
    ends = []
    for p in range(BLOCKS):
        last = data[p]
        for i, each in enumerate(seconds[p:-1:BLOCKS] or [SHORTEST]):
            key = (f"t{i}-{name}-{k}", p)
            last = delayed(virtual.work)(last, seconds=each, nbytes=RESULT_BYTES, dask_key_name=key)
        ends.append(last)
    total = seconds[-1] if seconds else SHORTEST
    return delayed(virtual.work)(*ends, seconds=total, nbytes=512, dask_key_name=f"sum-{name}-{k}")


def run(which: str, path: str | None, policy: str, seed: int, latency: float, charge: float) -> Run:
    """Run a list under one policy."""
    jobs = make_list(which, read(path), seed)
    traces = {name: JobTrace(name, arrival) for name, (arrival, _) in jobs.items()}
    oracle = Oracle() if policy == "oracle" else None
    plugin = clusters.plugin(policy if oracle is None else "fair", epoch="1s")
    if oracle is not None:
        from dask_slaq import SlaqPlugin

        plugin = SlaqPlugin(policy=oracle, epoch="200ms", promise=0)
    virtual.set_latency(latency)

    async def drive(client: Any, name: str, data: list[Any], begin: float) -> None:
        (arrival, fit), trace = jobs[name], traces[name]
        goal = fit.reports_to(0.9)
        await asyncio.sleep(begin + arrival - virtual.now())
        if oracle is not None:
            oracle.left[name] = False, fit.seconds(0, goal)
        async with clusters.job_block(policy, name, client, len(fit.losses) - 1) as block:
            for k, (gap, seconds) in enumerate(fit.iterations):
                await asyncio.sleep(gap)
                future = client.compute(graph(name, k, data, seconds))
                await future
                del future
                if oracle is not None:
                    past = k + 1 >= goal
                    oracle.left[name] = past, fit.seconds(k + 1, None if past else goal)
                if k < len(fit.losses):
                    trace.record(virtual.now() - begin, fit.losses[k])
                    block.report(fit.losses[k])
        trace.completion = virtual.now() - begin

    async def main() -> Run:
        async with virtual.Cluster(threads=[1] * WORKERS) as cluster, AsyncExitStack() as stack:
            stack.enter_context(virtual.charge_scheduler(cluster.scheduler, charge))
            clients = {n: await stack.enter_async_context(cluster.client()) for n in jobs}
            if plugin is not None:
                await next(iter(clients.values())).register_plugin(plugin)
            at, data = itertools.cycle(list(cluster.scheduler.workers)), {}
            for name, client in clients.items():
                data[name] = [
                    client.submit(
                        virtual.work, nbytes=BLOCK_BYTES, key=f"data-{name}-{p}",
                        workers=[next(at)], pure=False,
                    )
                    for p in range(BLOCKS)
                ]  # fmt: skip
                await asyncio.gather(*data[name])
            begin, meter = virtual.now(), clusters.meter(cluster)
            await asyncio.gather(*(drive(clients[n], n, data[n], begin) for n in jobs))
            data.clear()
            return Run(seed, list(traces.values()), 0, meter.seconds, WORKERS)

    return virtual.run(main, seed=seed, limit=LIMIT)


def figures(runs: list[Run]) -> dict[str, float | None]:
    """Return the figures of one policy."""
    found = summarize(runs)
    return {key: found["utilization" if key == "busy" else key] for key in FIGURES}


def models() -> dict[str, tuple[str, Any]]:
    """Return the fits that are recorded: the name of the data, and the estimator."""
    from dask_ml.cluster import KMeans
    from dask_ml.linear_model import LinearRegression, LogisticRegression, PoissonRegression

    from benchmarks.live_jobs.real_fits import estimators

    def glm(kind: Any, solver: str, max_iter: int, **given: Any) -> Any:
        return kind(solver=solver, max_iter=max_iter, tol=0.0, **given)

    return estimators(0, 0.7) | {
        "logistic-newton": ("classes", glm(LogisticRegression, "newton", 8)),
        "logistic-1": ("classes", glm(LogisticRegression, "lbfgs", 20, C=1.0)),
        "linear-lbfgs": ("amounts", glm(LinearRegression, "lbfgs", 15)),
        "poisson-gd": ("counts", glm(PoissonRegression, "gradient_descent", 15)),
        "linear-l1": ("amounts", glm(LinearRegression, "proximal_grad", 20, penalty="l1")),
        "kmeans-20": ("clusters", KMeans(20, init="random", tol=0.0, max_iter=12, random_state=1)),
    }


@click.command(help=__doc__)
@click.option("--fits", "path", type=click.Path(exists=True), help="Recording; by default ours.")
@click.option("--lists", type=Names("list", LISTS), default=",".join(LISTS), show_default=True)
@click.option(
    "--latency", default="0,4ms", show_default=True, callback=parse, help="Comma-separated."
)
@click.option("--policies", type=Names("policy"), default=",".join(POLICIES), show_default=True)
@click.option("--seeds", default=2, show_default=True, type=click.IntRange(1), help="Number.")
@click.option("--seed", default=0, show_default=True, help="First seed.")
@click.option(
    "--charge",
    default=1.0,
    show_default=True,
    help="Virtual seconds per CPU second of the scheduler.",
)
@click.option("--processes", default=os.cpu_count() or 1, type=click.IntRange(1))
@click.option("--quick", is_flag=True, help="Six fits, one seed, two policies.")
@click.option("--record", "target", help="Record real fits to this file, and run nothing.")
@click.option(
    "--rows", default=100_000, show_default=True, help="Rows per block of what is recorded."
)
@json_option
def main(path: str | None, lists: list[str], latency: list[float], policies: list[str], seeds: int,
         seed: int, charge: float, processes: int, quick: bool, target: str | None, rows: int,
         output: str | None) -> None:  # fmt: skip
    """Run the benchmark."""
    if target is not None:
        with open(target, "w") as file:
            json.dump(record(models(), rows), file)
        return
    if quick:
        lists, policies, seeds = ["six"], ["none", "first-to-target"], 1
    plan = [
        (which, path, policy, each, seconds, charge)
        for which in lists for seconds in latency for policy in policies
        for each in range(seed, seed + seeds)
    ]  # fmt: skip
    found: dict[str, Any] = {}
    with virtual.pool(processes) as pool:
        done = zip(plan, pool.map(run, *zip(*plan, strict=True)), strict=True)
        for (which, seconds, policy), group in itertools.groupby(
            done, lambda pair: (pair[0][0], pair[0][4], pair[0][2])
        ):
            row = figures([each for _, each in group])
            found.setdefault(which, {}).setdefault(_name(seconds), {})[policy] = row
            print(_line(which, seconds, policy, row), file=sys.stderr, flush=True)
    lines = [
        _line(which, seconds, policy, found[which][_name(seconds)][policy])
        for which in lists for seconds in latency for policy in policies
    ]  # fmt: skip
    give(found, output, "\n".join(lines))


def _name(seconds: float) -> str:
    return f"{seconds * 1000:g}ms" if seconds else "0"


def _line(which: str, seconds: float, policy: str, row: Mapping[str, Any]) -> str:
    shown = "  ".join(f"{key.removesuffix('_s')} {row[key]:6.2f}" for key in FIGURES)
    return f"{which:8} {_name(seconds):>5} {policy:16} {shown}"


if __name__ == "__main__":
    main()
