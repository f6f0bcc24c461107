"""Figure 5: time per iteration against cores, true and predicted by the runtime model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import xarray as xr

from benchmarks.live_jobs.emulated import EmulatedJob
from benchmarks.live_jobs.real_time import run_emulated
from benchmarks.paper.datasets import NOT_STATED, Row, dataset, variable
from benchmarks.paper.study import Study
from dask_slaq.core.job_arrays import FloatArray
from dask_slaq.core.runtime.observed import Runtimes
from dask_slaq.simulation.workload.runtime_laws import SCALINGS, law
from dask_slaq.simulation.workload.simulated_jobs import make_jobs

__all__ = ["iterations", "iterations_rows"]


#: Tasks of an emulated iteration.
TASKS = 16
#: Thread counts that the model observes for a simulated job, and those that it predicts.
SEEN = (8, 32, 128)
ASKED = np.unique(np.round(np.geomspace(4, 256, 25)))
#: Core-seconds of a simulated iteration, and its parallel tasks.
WORK, PARTITIONS = 64.0, 256.0


def iterations(study: Study) -> xr.Dataset:
    """Figure 5: times measured on small clusters, and times of the simulator's runtime laws."""
    s = study.scale
    measured = np.array([[_measure(study, n, each) for n in s.workers] for each in s.task_seconds])
    tried = s.workers[::2]
    expected = [_predicted(tried, row[::2], np.array(s.workers, float), TASKS) for row in measured]
    laws, foreseen = zip(*(_law(name, study) for name in SCALINGS), strict=True)
    size = 1e3 * np.array(s.task_seconds) * TASKS
    return dataset(
        {
            "measured": variable(("model", "workers"), measured, "time of an iteration", "s"),
            "expected": variable(("model", "workers"), expected, "predicted time", "s"),
            "true": variable(("law", "cores"), laws, "time of an iteration", "s"),
            "predicted": variable(("law", "cores"), foreseen, "predicted time", "s"),
        },
        {
            "model": (size, "compute of an iteration", "ms"),
            "workers": (s.workers, "cores (one-thread workers)", "1"),
            "law": (list(SCALINGS), "law of running times", ""),
            "cores": (ASKED, "cores", "1"),
        },
        figure="5",
        title="Time of an iteration against cores",
        shows="time of an iteration against the number of cores, for models of several sizes",
        setting=f"left: a real Dask scheduler and in-process workers, {TASKS} tasks an iteration "
        "whose compute is a sleep (so that cores need not be there), median iteration; predicted "
        f"from the runs on {', '.join(map(str, tried))} workers. Right: the simulator's laws, "
        f"predicted from iterations on {', '.join(map(str, SEEN))} cores",
    )


def _measure(study: Study, workers: int, task: float) -> float:
    """Measure the seconds per iteration on a real cluster."""
    loss = np.linspace(1.0, 0.0, study.scale.iterations)
    seconds = np.full((len(loss), TASKS), task)
    job = EmulatedJob("model", "line", 0.0, loss, loss, seconds)
    found = run_emulated([job], "none", seed=study.seed, workers=workers, partition_bytes=1024)
    return float(np.median(np.diff(found.traces[0].times)))


def _law(name: str, study: Study) -> tuple[FloatArray, FloatArray]:
    """Return the true and predicted seconds (n_asked,) of one job under a runtime law."""
    [job] = make_jobs(study.job_curves, study.seed, jobs=1)
    truth = law(name, [replace(job, work=WORK, partitions=PARTITIONS)], study.seed)
    every = np.zeros(1, dtype=np.int64)
    true = np.array([truth.seconds(every, np.array([n]))[0] for n in ASKED])
    seen = [float(truth.seconds(every, np.array([float(n)]))[0]) for n in SEEN]
    return true, _predicted(SEEN, seen, ASKED, int(PARTITIONS))


def _predicted(
    threads: Sequence[int], seconds: Sequence[float], asked: FloatArray, width: int
) -> FloatArray:
    """Return the runtime model's predictions (n_asked,) after the given observations."""
    model = Runtimes()
    rows = np.array([model.acquire()])
    for n, each in zip(threads, seconds, strict=True):
        model.grant(rows, np.array([float(n)]), np.zeros(1))
        for _ in range(4):
            model.advance(rows, each)
            model.observe_task(int(rows[0]), n * each, width)
            model.end_iteration(int(rows[0]))
            model.observe_iterations()
            model.learn(rows)
    speeds = model.speeds(rows)
    return np.array([1.0 / speeds(np.array([float(n)]))[0] for n in asked])


def _error(predicted: xr.DataArray, true: xr.DataArray) -> float:
    return 100.0 * float(np.abs(predicted / true - 1.0).mean())


def iterations_rows(data: xr.Dataset) -> list[Row]:
    """Return the rows of Figure 5: errors of the predictions."""
    new = data.isel(workers=slice(1, None, 2))
    setting = data.attrs["setting"]
    measured = {"mean of the models": _error(new["expected"], new["measured"])}
    laws = {
        str(name): _error(data["predicted"].sel(law=name), data["true"].sel(law=name))
        for name in data["law"].values
    }
    name = "error of the predicted time of an iteration"
    return [
        Row("5", f"{name}, measured on cores not tried", NOT_STATED, measured, "%", setting),
        Row("5", f"{name}, laws of the simulator", NOT_STATED, laws, "%", setting),
    ]
