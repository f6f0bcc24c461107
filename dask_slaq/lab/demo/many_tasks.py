"""Big models, many tasks each: jobs of futures under one policy after another."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from time import sleep
from typing import Any

import numpy as np
from distributed import Client, get_worker
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.lab.demo import local
from dask_slaq.lab.demo.local import DemoRun, DemoTraining, Figures, Options
from dask_slaq.lab.demo.search import N_TRAINED, NOISE_DEVIATION, digits
from dask_slaq.lab.simulation.workload import iterations_to

#: Tasks per iteration, and iterations, of a job.
N_TASKS, N_STEPS = 4, 40
SHOWN = {
    "t90_mean_s": "mean time to 90 % loss reduction",
    "t95_mean_s": "mean time to 95 % loss reduction",
    "makespan_s": "makespan",
}


def gradient(part: int, weights: np.ndarray, copies: int) -> tuple[Any, ...]:
    """Compute loss and gradient at (65, 10) `weights` on `copies` of a `part` of the digits.

    One task of a job. Returns loss, gradient, and the span: worker, start and end.
    """
    start = time()
    X, y = (a[part:N_TRAINED:N_TASKS] for a in digits())
    rows, rng = np.arange(len(y)), np.random.default_rng(part)
    loss, slope = 0.0, np.zeros_like(weights)
    for _ in range(copies):
        inputs = np.column_stack([X + rng.normal(0, NOISE_DEVIATION, X.shape), np.ones(len(y))])
        odds = np.exp(inputs @ weights)
        odds /= odds.sum(axis=1, keepdims=True)
        loss -= float(np.log(odds[rows, y]).mean())
        odds[rows, y] -= 1
        slope += inputs.T @ odds / len(y)
    return loss / copies, slope / copies, (get_worker().address, start, time())


def plan(options: Options) -> list[tuple[str, float, float]]:
    """Return name, rate and arrival in seconds of each job of the `options`."""
    rng, alone = np.random.default_rng(options.seed), options.seconds / options.count
    # With these learning rates a job is at 90 % of its loss reduction at report 10, or 6, of 40.
    rate_range = (1.2, 4.0)
    rates = np.exp(rng.uniform(np.log(rate_range[0]), np.log(rate_range[1]), options.count))
    # Time between arrivals, as a fraction of a job's time alone: six or seven of twelve jobs
    # overlap.
    gaps = 0.5 * alone * rng.uniform(0.7, 1.3, options.count)
    arrivals = np.cumsum(gaps) - gaps[0]
    names = [f"job {number + 1:02}" for number in range(options.count)]
    return list(zip(names, rates.tolist(), arrivals.tolist(), strict=True))


def jobs(client: Client, options: Options) -> local.Result:
    """Train the same jobs on the cluster of `client` under each policy of the `options`."""
    print("Measuring how long a task takes ...", flush=True)
    for copies in (1, 100):  # the first one imports
        tasks = local.on_each_worker(client, gradient, 0, np.zeros((65, 10)), copies)
    spans = [span for _, _, span in tasks]
    copies = options.copies([(stop - start) / copies for _, start, stop in spans], N_TASKS)
    runs, moved = [], []
    rates, arrivals = ({name: each[i] for name, *each in plan(options)} for i in (0, 1))

    def fit(training: DemoTraining) -> None:
        train(client, training, rates[training.name], options.steps, copies)

    for policy in local.announced([(each, f"the policy {each}") for each in options.policies]):
        client.register_plugin(slaq.SlaqPlugin(policy=policy))
        before = _bytes_moved(client)
        runs.append(train_all(policy, arrivals, fit))
        moved.append(_bytes_moved(client) - before)
    lowest = lowest_losses(runs)
    figures = local.figures_of(runs, lambda run: measure(run, lowest, options.seed))
    for found, more in zip(figures.values(), moved, strict=True):
        found["bytes_moved"] = more
    about = (
        f"{options.count} jobs (softmax regression on scikit-learn's digits by gradient descent, "
        f"{N_TASKS} tasks per iteration) train {options.steps} iterations each on two one-thread "
        f"worker processes, under one policy after another (seed {options.seed})."
    )
    return local.Result(about, runs, {"policies": figures}, SHOWN, verdict(figures))


def train(client: Client, training: DemoTraining, rate: float, steps: int, copies: int) -> None:
    """Fit softmax regression as a job of `client`, and record its losses in `training`.

    It makes `steps` iterations with a learning `rate`; `copies` is the work of a task.
    """
    weights = speed = np.zeros((65, 10))
    with slaq.job(training.name, client=client) as job:
        for _ in range(steps):
            work: dict[str, Any] = {"weights": weights, "copies": copies, "pure": False}
            tasks = client.map(gradient, range(N_TASKS), **work)
            losses, gradients, spans = zip(*client.gather(tasks), strict=True)
            job.report(float(np.mean(losses)))
            training.curve.append((time(), float(np.mean(losses))))
            training.spans.extend(spans)
            speed = 0.9 * speed - rate * np.mean(gradients, axis=0)
            weights = weights + speed


def train_all(
    way: str, arrivals: Mapping[str, float], train: Callable[[DemoTraining], None]
) -> DemoRun:
    """Train what arrives, each in a thread of its own, and watch until all have ended.

    `arrivals` are in seconds from the start, by name.
    """
    run = DemoRun(way, [DemoTraining(name) for name in arrivals])

    def drive(training: DemoTraining) -> None:
        sleep(max(0.0, run.start + arrivals[training.name] - time()))
        training.arrived = time()
        try:
            train(training)
        except BaseException:
            training.error = traceback.format_exc()
        training.done = time()

    for training in run.trainings:
        threading.Thread(target=drive, args=(training,), daemon=True).start()
    local.watch(run)
    return run


def _bytes_moved(client: Client) -> int:
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def measure(run: DemoRun, lowest: Mapping[str, float], seed: int) -> dict[str, Any]:
    """Return the figures of a `run` with a `seed`; `lowest` has the lowest loss of each job."""
    found: list[dict[str, Any]] = []
    for t in run.trainings:
        found.append({"name": t.name, "seed": seed, "completion_s": (t.done or 0) - t.arrived})
        for key, reduction in (("t90_s", 0.90), ("t95_s", 0.95)):
            at = iterations_to(t.losses, reduction, lowest.get(t.name))
            found[-1][key] = None if at is None else t.curve[at - 1][0] - t.arrived
    means = {}
    for key in ("t90", "t95"):
        known = [job[f"{key}_s"] for job in found if job[f"{key}_s"] is not None]
        means[f"{key}_mean_s"] = float(np.mean(known)) if known else None
    return {**means, "makespan_s": run.seconds, "jobs": found}


def lowest_losses(runs: Sequence[DemoRun]) -> dict[str, float]:
    """Return the lowest loss of each job in any of the `runs`."""
    found: dict[str, float] = {}
    for training in (training for run in runs for training in run.trainings):
        found[training.name] = min([found.get(training.name, np.inf), *training.losses])
    return found


def verdict(figures: Figures, gained: float = 0.95) -> str:
    """Return what was gained; if jobs took more than the part `gained`, what may be the reason."""
    share = local.ratio(figures, "t90_mean_s")
    if share is None:
        return "There is nothing to compare with."
    text = f"Jobs were at 90 % after {share:.2f} of the time."
    if share > gained:
        text = f"Nothing was gained. {text} It takes more jobs at once, or jobs that wait for "
        text += "workers more than for their drivers."
    return text
