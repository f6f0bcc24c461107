"""Overhead benchmark: throughput of trivial tasks, the plugin against plain Dask.

Both sides run the same client code, annotations included, each on an in-process cluster.
The sides alternate, and the order within a pair changes, so that warm-up and drift
of the machine favor neither. A ratio is the median over pairs.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from contextlib import ExitStack
from typing import Any

import click
import dask
from distributed import Client, wait

from benchmarks.common.cluster import local_cluster, register
from benchmarks.common.results import give, json_option, say, table

#: Number of jobs, and whether the scheduler knows that their tasks are short, by name.
CASES = {"0": (0, False), "10": (10, False), "10-known": (10, True), "100": (100, False)}


def nothing(x: int) -> int:
    """Do nothing: a trivial task."""
    return x


def measure(
    jobs: int,
    *,
    tasks: int = 1_000,
    repetitions: int = 25,
    workers: int = 4,
    policy: str = "max-total",
    known: bool = False,
    seed: int = 0,
) -> dict[str, list[float]]:
    """Time trivial tasks in pairs, under plain Dask and with the plugin.

    `jobs` share the tasks; with 0 the tasks are unowned. `known`: the scheduler knows before the
    clock starts that these tasks are short. If not, jobs hold their tasks in pools, which is the
    most expensive case. Returns wall and CPU seconds of each side.
    """
    names = [f"job-{i}" for i in range(jobs)]
    seconds: dict[str, list[float]] = {
        k: [] for k in ("plain", "plugin", "plain_cpu", "plugin_cpu")
    }
    first = random.Random(seed).random() < 0.5
    with (
        local_cluster(workers) as (_, plain),
        local_cluster(workers) as (_, plugin),
        ExitStack() as blocks,
    ):
        register(plugin, policy)
        blocks.enter_context(plugin.as_current())  # until the jobs have ended, not only begun
        _open_jobs(blocks, names, plugin)
        for client in (plain, plugin):  # which also makes `same` known
            _run(client, names, tasks, "same")
        for repetition in range(repetitions):
            sides = [("plain", plain), ("plugin", plugin)]
            key = "same" if known else f"fresh{repetition}"
            for side, client in sides if (repetition % 2 == 0) == first else reversed(sides):
                wall, cpu = _run(client, names, tasks, key)
                seconds[side].append(wall)
                seconds[f"{side}_cpu"].append(cpu)
    return seconds


def _run(client: Client, names: list[str], tasks: int, key: str) -> tuple[float, float]:
    """Run the tasks once. Returns wall and CPU seconds.

    Dask takes tasks whose keys start alike for alike; durations under a new key are unknown.
    """
    with client.as_current():
        # A full collection of what was there before takes as long as a hundred tasks.
        gc.collect()
        gc.freeze()
        wall, cpu = time.perf_counter(), time.process_time()
        futures = _submit(client, names, tasks, key)
        wait(futures)
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        gc.unfreeze()
        if any(f.status != "finished" for f in futures):
            raise RuntimeError(f"not every task finished with {len(names)} jobs")
        del futures
        while client.run_on_scheduler(_known_tasks):
            time.sleep(0.01)
    return wall, cpu


def _known_tasks(dask_scheduler: Any) -> int:
    """Return the number of tasks that the scheduler has not forgotten."""
    return len(dask_scheduler.tasks)


def _open_jobs(blocks: ExitStack, names: list[str], client: Client) -> None:
    """Open all jobs, with enough reports each for a forecast."""
    import dask_slaq as slaq

    for name in names:
        job = blocks.enter_context(slaq.job(name, client=client))
        for k in range(6):
            job.report(1.0 / (1 + k))


def _submit(client: Client, names: list[str], tasks: int, key: str) -> list[Any]:
    """Submit the tasks, unowned or spread over the jobs with one `map` per job."""
    if not names:
        return client.map(nothing, range(tasks), key=key, pure=False)
    futures = []
    for i, name in enumerate(names):
        with dask.annotate(slaq_job=name):
            futures += client.map(
                nothing, range(i, tasks, len(names)), key=f"{key}-{i}", pure=False
            )
    return futures


def paired_ratio(seconds: dict[str, list[float]], suffix: str = "") -> tuple[float, float]:
    """Compute the ratio of the throughput with the plugin to that without it.

    Returns the median over pairs and its standard error. The suffix ``"_cpu"`` is for CPU seconds.
    """
    pairs = zip(seconds["plain" + suffix], seconds["plugin" + suffix], strict=True)
    ratios = [plain / plugin for plain, plugin in pairs]
    error = 1.25 * statistics.stdev(ratios) / len(ratios) ** 0.5 if len(ratios) > 1 else 0.0
    return statistics.median(ratios), error


@click.command()
@click.option("--tasks", default=1_000, show_default=True, type=click.IntRange(1))
@click.option("--repetitions", default=25, show_default=True, type=click.IntRange(1))
@click.option("--workers", default=4, show_default=True, help="One-thread workers, in-process.")
@click.option("--policy", default="max-total", show_default=True)
@click.option("--seed", default=0, show_default=True, help="Seed of the order within pairs.")
@click.option("--quick", is_flag=True, help="Fewer tasks and pairs; takes under a minute.")
@json_option
def main(
    tasks: int, repetitions: int, workers: int, policy: str, seed: int, quick: bool,
    output: str | None,
) -> None:  # fmt: skip
    """Compare the throughput of trivial tasks with plain Dask, for 0, 10 and 100 jobs."""
    if quick:
        repetitions = min(repetitions, 6)
    keys = ("throughput_ratio", "throughput_error", "cpu_ratio", "cpu_error", "seconds")
    result: dict[str, Any] = {key: {} for key in keys}
    for case, (jobs, known) in CASES.items():
        say(f"{case} jobs: {repetitions} pairs of {tasks} tasks")
        seconds = measure(
            jobs, tasks=tasks, repetitions=repetitions, workers=workers, policy=policy,
            known=known, seed=seed,
        )  # fmt: skip
        found = (*paired_ratio(seconds), *paired_ratio(seconds, "_cpu"), seconds)
        for key, value in zip(keys, found, strict=True):
            result[key][case] = value
    give(result, output, _table(result))


def _table(result: dict[str, Any]) -> str:
    rows = []
    for case, seconds in result["seconds"].items():
        row: list[Any] = [case, *(statistics.median(seconds[side]) for side in ("plain", "plugin"))]
        for kind in ("throughput", "cpu"):
            ratio, error = (result[f"{kind}_{what}"][case] for what in ("ratio", "error"))
            row.append(f"{ratio:.3f} ± {error:.3f}")
        rows.append(row)
    return "\n".join([
        table(["jobs", "plain s", "plugin s", "throughput", "by CPU"], rows),
        "medians over pairs, ± a standard error; throughput of the plugin over plain Dask",
        "10-known: the scheduler has seen before that the tasks are short",
    ])  # fmt: skip


if __name__ == "__main__":
    main()
