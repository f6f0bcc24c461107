"""Main program of the demo: cluster, warm-up, one run per policy, comparison, report."""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from time import sleep

import dask
from dask.system import CPU_COUNT
from distributed import Client, LocalCluster, wait
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.demo import ITERATIONS, ROWS, data, meters, report
from dask_slaq.demo import metrics as compare
from dask_slaq.demo import workload as jobs
from dask_slaq.demo.drivers import Driver
from dask_slaq.demo.live_table import view
from dask_slaq.demo.metrics import Run
from dask_slaq.demo.workload import Training

#: Seconds between updates of the display.
_LOOK = 0.25


@dataclass(frozen=True)
class Options:
    """Options of ``dask slaq demo``, which its ``--help`` describes."""

    policies: Sequence[str] = ("fair", "max-total")
    workers: int | None = None
    threads: int = 1
    jobs: int = 6
    mix: str = "dask-ml"
    iterations: int = ITERATIONS
    rows: int = ROWS
    seed: int = 0
    log: str | None = None

    @property
    def n_workers(self) -> int:
        """Number of workers: `workers`, else one per core, but 2 to 4.

        The drivers and the scheduler need some cores as well.
        """
        return self.workers or max(2, min(4, CPU_COUNT))


def show(options: Options, *, json_file: str | None = None, html_file: str | None = None) -> int:
    """Run the demo, and print and write its results.

    Parameters
    ----------
    options : Options
    json_file : str, optional
        File for the metrics; "-" is stdout.
    html_file : str, optional
        File for the report.

    Returns
    -------
    int
        Exit code: 1 if a job failed, else 0.
    """
    # If the metrics go to stdout as JSON, all other output goes to stderr.
    with redirect_stdout(sys.stderr if json_file == "-" else sys.stdout), _quiet():
        runs = train(options)
        result = compare.figures(runs)
        print("\n" + compare.table(result))
        if html_file:
            Path(html_file).write_text(report.page(runs, result), encoding="utf-8")
            print(f"\nLoss curves and allocation over time: {html_file}")
    text = json.dumps(result, indent=2) + "\n"
    if json_file == "-":
        sys.stdout.write(text)
    elif json_file:
        Path(json_file).write_text(text, encoding="utf-8")
    return _complain(runs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Suppress the warnings of other libraries, which would break up the live table."""
    with warnings.catch_warnings():
        for library in ("dask", "distributed", "dask_glm", "sklearn"):
            warnings.filterwarnings("ignore", module=rf"{library}(\.|$)")
        yield


def train(options: Options) -> list[Run]:
    """Train the same jobs on one cluster, under one policy after another.

    Returns one run per policy.
    """
    if options.log:
        Path(options.log).mkdir(parents=True, exist_ok=True)
    trainings = jobs.plan(
        options.jobs, options.seed, iterations=options.iterations, mix=options.mix
    )
    with _cluster(options) as client:
        _prepare(client, trainings, options)
        return [_run(client, policy, trainings, options) for policy in options.policies]


@contextmanager
def _cluster(options: Options) -> Iterator[Client]:
    print(f"Starting {options.n_workers} workers ...", flush=True)
    # The drivers and the scheduler share this process: they must not wait 5 ms for the GIL.
    sys.setswitchinterval(0.0005)
    with (
        LocalCluster(
            n_workers=options.n_workers,
            threads_per_worker=options.threads,
            memory_limit=0,
            dashboard_address=None,
            silence_logs=logging.ERROR,
        ) as cluster,
        Client(cluster) as client,
    ):
        client.run(_make_room)
        client.register_plugin(meters.ComputeLog())
        yield client


def _make_room() -> None:
    """Lower the priority of a worker's process, and keep it from writing to the terminal.

    The scheduler and the drivers, which have their own machines on a real cluster, get the cores
    first.
    """
    if hasattr(os, "nice"):
        os.nice(10)
    warnings.simplefilter("ignore")
    # Ctrl-C also reaches the workers, but the cluster is to stop them, without tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _prepare(client: Client, trainings: list[Training], options: Options) -> None:
    """Load the shared data and warm up.

    Every kind of job is trained for one iteration, so that the run of the first policy does not
    include imports and compilation.
    """
    print("Making the training data and warming up ...", flush=True)
    # Many tasks per thread and iteration: tasks are never interrupted, so a job with priority waits
    # for running tasks of other jobs. With short tasks the wait is a small part of its time.
    chunks = max(16, 2 * options.n_workers * options.threads)
    for name in sorted({training.data for training in trainings}):
        made = data.load(name, rows=options.rows, chunks=chunks, seed=options.seed)
        held = dask.persist(*made)
        wait(held)
        client.publish_dataset(held, name=name)
    for training in {training.kind: training for training in trainings}.values():
        X, y = client.get_dataset(training.data)
        estimator = training.estimator().set_params(max_iter=1)
        estimator.fit(X) if y is None else estimator.fit(X, y)


def _run(client: Client, policy: str, trainings: list[Training], options: Options) -> Run:
    """Run all jobs under one policy."""
    log = options.log and str(Path(options.log, f"{policy}.jsonl"))
    client.register_plugin(slaq.SlaqPlugin(policy=policy, log=log))
    computed = client.cluster.scheduler.plugins[meters.ComputeLog.name]
    moved = meters.bytes_moved(client)
    start = time() + 0.5
    drivers = [Driver(training, client.scheduler.address, start) for training in trainings]
    computed.take()
    for driver in drivers:
        driver.start()
    _watch(client, policy, drivers, start)
    records = [driver.record for driver in drivers]
    return Run(
        policy=policy,
        seed=options.seed,
        threads=options.n_workers * options.threads,
        start=start,
        stop=max(record.ended or start for record in records),
        records=records,
        computations=computed.take(),
        bytes_moved=meters.bytes_moved(client) - moved,
    )


def _watch(client: Client, policy: str, drivers: list[Driver], start: float) -> None:
    """Show the jobs until the last one ends."""
    records = [driver.record for driver in drivers]
    with view(f"Policy {policy}", start) as shown:
        while any(driver.is_alive() for driver in drivers):
            shown.update(records, slaq.status(client))
            sleep(_LOOK)
        shown.update(records, slaq.status(client))


def _complain(runs: Sequence[Run]) -> int:
    """Print the errors of failed jobs. Returns the exit code."""
    failed = [(run, record) for run in runs for record in run.records if record.error]
    for run, record in failed:
        print(f"\n{record.training.name} failed under {run.policy}:", file=sys.stderr)
        print(record.error, file=sys.stderr)
    return 1 if failed else 0
