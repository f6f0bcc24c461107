"""Big models, many tasks each: jobs of futures under one policy after another."""

from __future__ import annotations

import threading
import traceback
from time import process_time, sleep
from typing import Any

import numpy as np
from distributed import Client
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.demo import digits, local, report
from dask_slaq.demo.live import View
from dask_slaq.demo.local import Options, Run, Training
from dask_slaq.simulation.workload import iterations_to

#: Tasks per iteration.
TASKS = 4
#: Time between arrivals, as a fraction of the time that a job alone takes: of twelve jobs, six to
#: seven are there at once.
SPACING = 0.45
MOMENTUM = 0.9
#: With these learning rates a job is at 90 % of its loss reduction at report 10, or 6, of 40.
RATES = (1.2, 4.0)
SHOWN = {
    "t90_mean_s": "mean time to 90 % loss reduction",
    "t95_mean_s": "mean time to 95 % loss reduction",
    "makespan_s": "makespan",
    "in_flight": "jobs at once, on average",
    "busy_fraction": "busy share of the workers",
    "driver_busy": "busy share of drivers and scheduler",
}


def plan(count: int, seed: int) -> list[tuple[str, float, float]]:
    """Return name, rate and arrival of `count` jobs by a `seed`; one alone takes a time of 1."""
    rng = np.random.default_rng(seed)
    rates = np.exp(rng.uniform(*np.log(RATES), count))
    arrivals = SPACING * np.cumsum(rng.uniform(0.7, 1.3, count))
    return [(f"job {n + 1:02}", float(rates[n]), float(arrivals[n])) for n in range(count)]


def jobs(client: Client, options: Options) -> tuple[Any, ...]:
    """Train the same jobs on the cluster of `client` under each policy of the `options`.

    Returns runs, figures, comparison, verdict and page.
    """
    print("Measuring how long a job takes alone ...", flush=True)
    for copies in (1, 20):  # the first one imports
        tasks = local.on_each_worker(client, digits.gradient, 0, np.zeros((65, 10)), TASKS, copies)
    copies = options.copies([(stop - start) / 20 for _, _, (_, start, stop) in tasks], TASKS)
    client.register_plugin(slaq.SlaqPlugin())
    few, start = min(10, options.steps), time()
    train(client, Training("alone"), 1.0, few, copies)
    alone = (time() - start) * options.steps / few
    runs, figures = [], {}
    for policy in options.policies:
        client.register_plugin(slaq.SlaqPlugin(policy=policy))
        moved, cpu = _bytes_moved(client), process_time()
        runs.append(_run(client, policy, options, copies, alone))
        figures[policy] = {
            "driver_busy": (process_time() - cpu) / runs[-1].seconds,
            "bytes_moved": _bytes_moved(client) - moved,
        }
    lowest: dict[str, float] = {}
    for name, loss in (
        (t.name, loss) for run in runs for t in run.trainings for _, loss in t.curve
    ):
        lowest[name] = min(loss, lowest.get(name, loss))
    for run in runs:
        figures[run.way].update(measure(run, lowest, options.seed))
    rows, said = local.compare(figures, SHOWN), verdict(figures)
    about = (
        f"{options.count} jobs (softmax regression on scikit-learn's digits by gradient descent, "
        f"{TASKS} tasks an iteration) train {options.steps} iterations each on two one-thread "
        f"worker processes, under one policy after another (seed {options.seed})."
    )
    page = report.page(about, runs, rows, said, ranked=False)
    return runs, {"policies": figures}, rows, said, page


def train(client: Client, training: Training, rate: float, steps: int, copies: int) -> None:
    """Train a job with `client` for so many `steps`, and put down in `training` what happens.

    Softmax regression with a learning `rate`; `copies` is the work of a task: `digits.gradient`.
    """
    weights = speed = np.zeros((65, 10))
    with slaq.job(training.name, client=client) as job:
        for _ in range(steps):
            work = {"weights": weights, "parts": TASKS, "copies": copies}
            tasks = client.map(digits.gradient, range(TASKS), pure=False, **work)
            losses, gradients, spans = zip(*client.gather(tasks), strict=True)
            job.report(float(np.mean(losses)))
            training.curve.append((time(), float(np.mean(losses))))
            training.spans.extend(spans)
            speed = MOMENTUM * speed - rate * np.mean(gradients, axis=0)
            weights = weights + speed


def _run(client: Client, policy: str, options: Options, copies: int, alone: float) -> Run:
    planned = plan(options.count, options.seed)
    run = Run(policy, [Training(name) for name, _, _ in planned])

    def drive(training: Training, rate: float, arrival: float) -> None:
        sleep(max(0.0, run.start + arrival * alone - time()))
        training.arrived = time()
        try:
            train(client, training, rate, options.steps, copies)
        except BaseException:
            training.error = traceback.format_exc()
        training.done = time()

    for training, (_, *how) in zip(run.trainings, planned, strict=True):
        threading.Thread(target=drive, args=(training, *how), daemon=True).start()
    with View() as view:
        while not all(training.done for training in run.trainings):
            view.update(run)
            sleep(local.LOOK)
        view.update(run, last=True)
    return run


def _bytes_moved(client: Client) -> int:
    return sum(client.run(lambda dask_worker: dask_worker.transfer_outgoing_bytes_total).values())


def measure(run: Run, lowest: dict[str, float], seed: int) -> dict[str, Any]:
    """Return the figures of a `run` with a `seed`; `lowest` has the lowest loss of each job."""
    found: list[dict[str, Any]] = []
    for t in run.trainings:
        found.append({"name": t.name, "seed": seed, "completion_s": (t.done or 0) - t.arrived})
        for key, reduction in (("t90_s", 0.90), ("t95_s", 0.95)):
            losses = [loss for _, loss in t.curve]
            at = iterations_to(losses, reduction, lowest[t.name]) if losses else None
            found[-1][key] = None if at is None else t.curve[at - 1][0] - t.arrived
    spans = [span for t in run.trainings for span in t.spans]
    threads = len({worker for worker, _, _ in spans}) or 1
    return {
        "t90_mean_s": _mean([job["t90_s"] for job in found]),
        "t95_mean_s": _mean([job["t95_s"] for job in found]),
        "makespan_s": run.seconds,
        "in_flight": sum(job["completion_s"] for job in found) / run.seconds,
        "busy_fraction": sum(stop - start for _, start, stop in spans) / (threads * run.seconds),
        "jobs": found,
    }


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def verdict(figures: dict[str, dict[str, Any]]) -> str:
    """Return what was gained; if nothing was, what may be the reason."""
    share, last = local.ratio(figures, "t90_mean_s"), list(figures.values())[-1]
    if share is None:
        return "There is nothing to compare with."
    if share <= local.GAINED:
        return f"Jobs were at 90 % after {share:.2f} of the time."
    return (
        f"Nothing was gained: {last['in_flight']:.1f} jobs were there at once, the process of "
        f"drivers and scheduler was busy for {last['driver_busy']:.0%} of the time, and the "
        f"workers for {last['busy_fraction']:.0%}. It takes several jobs that wait for workers, "
        "and not for their drivers."
    )
