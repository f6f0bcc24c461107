"""Figures 10b and 10c: CPU time of iterations by workers, and time of decisions, measured here."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import xarray as xr
from threadpoolctl import threadpool_limits

from benchmarks import decision
from benchmarks.common.cluster import local_cluster
from benchmarks.paper.datasets import Row, by_name, dataset, variable
from benchmarks.paper.study import OURS, Study

#: Blocks of the data, each of so many rows and columns.
BLOCKS, ROWS, COLUMNS = 16, 2_000, 50
WAYS = (OURS, "slaq2017")


def _gradient(block: Any, model: Any) -> Any:
    """Return the part of the gradient of one block; the part of the model that it uses is fixed."""
    slope = np.zeros(len(model))
    for _ in range(50):
        slope[:COLUMNS] = block.T @ np.tanh(block @ model[:COLUMNS])
    return slope


def _step(model: Any, *slopes: Any) -> Any:
    return model - 1e-6 * sum(slopes)


def _cpu(client: Any) -> float:
    return time.process_time() + sum(client.run(time.process_time).values())


def iterations(study: Study) -> xr.Dataset:
    """Figure 10b: CPU seconds of an iteration, by number of workers and size of the model."""
    workers, sizes, count = study.scale.workers, study.scale.model_bytes, study.scale.iterations
    found = np.empty((len(sizes), len(workers)))
    rng = np.random.default_rng(study.seed)
    with local_cluster(max(workers), processes=True) as (_, client), threadpool_limits(1):
        every = sorted(client.scheduler_info()["workers"])
        for j, n in enumerate(workers):
            places = [every[i % n] for i in range(BLOCKS)]
            some = [rng.standard_normal((ROWS, COLUMNS)) for _ in places]
            data = [client.scatter(x, workers=[w]) for x, w in zip(some, places, strict=True)]
            for i, size in enumerate(sizes):
                model = client.scatter(np.zeros(size // 8), workers=[every[0]])
                for k in range(count + 1):
                    if k == 1:  # the first one loads modules
                        start = _cpu(client)
                    slopes = [
                        client.submit(_gradient, x, model, workers=[w], pure=False)
                        for x, w in zip(data, places, strict=True)
                    ]
                    model = client.submit(_step, model, *slopes, workers=[every[0]], pure=False)
                    model.traceback()  # waits for it
                found[i, j] = (_cpu(client) - start) / count
    return dataset(
        {"cpu": variable(("size", "workers"), found, "CPU time of an iteration", "s")},
        {
            "size": ([_words(size) for size in sizes], "model", ""),
            "workers": (workers, "workers", "1"),
        },
        figure="10b",
        title="CPU time of an iteration",
        setting=f"measured here: gradient descent on {BLOCKS} blocks of {ROWS} rows in worker "
        "processes with one thread each, on one machine; CPU time of all processes, with what "
        "moving the model takes",
    )


def _words(size: int) -> str:
    return f"{size // 1_000_000} MB" if size >= 1_000_000 else f"{size // 1000} KB"


def iterations_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 10b."""
    cpu = data["cpu"]
    most, least = cpu.isel(workers=-1), cpu.isel(workers=0)
    n = f"CPU time of an iteration, {int(cpu.workers[-1])} workers over {int(cpu.workers[0])}"
    differs = "A model is sent to each worker; CPU time of other programs on the machine is noise."
    return [Row(n, "flat", by_name(most / least), "", differs)]


def decisions(study: Study) -> xr.Dataset:
    """Figure 10c: time per decision by jobs and cores."""
    jobs, cores = study.scale.decision_jobs, study.scale.decision_cores
    with threadpool_limits(1):
        found = [
            [decision.measure(n, c, policy=OURS, seed=study.seed, decisions=3) for c in cores]
            for n in jobs
        ]
    keys = ("seconds", "paper_seconds")
    seconds = [[[each[key] for each in row] for row in found] for key in keys]
    return dataset(
        {"seconds": variable(("way", "jobs", "cores"), seconds, "time of a decision", "s")},
        {
            "way": (list(WAYS), "policy", ""),
            "jobs": (jobs, "jobs", "1"),
            "cores": (cores, "cores", "1"),
        },
        figure="10c",
        title="Time of a decision",
        setting="measured here, on one thread: reports, fits, policy and placement, with a report "
        "of every job since the last decision",
    )


def decisions_rows(data: xr.Dataset) -> list[Row]:
    """Return the row of Figure 10c: the largest size."""
    jobs, cores = int(data["jobs"].max()), int(data["cores"].max())
    values = by_name(data["seconds"].sel(jobs=jobs, cores=cores))
    measured = f"time of a decision, {jobs} jobs on {cores} cores"
    return [Row(measured, "hundreds of ms to a few s", values, "s")]
