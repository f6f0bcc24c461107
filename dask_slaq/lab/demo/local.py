"""What the demos share: their cluster on this machine, what they record, and what is compared."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from time import sleep
from typing import Any, NamedTuple

import numpy as np
from distributed import Client, LocalCluster
from distributed.metrics import time

#: Names of ways that are not shown as they are.
NAMES = {"none": "plain Dask"}

Figures = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Options:
    """Options of ``dask slaq demo``, which its ``--help`` describes."""

    count: int = 32
    steps: int = 30
    seconds: float = 32.0
    seed: int = 0
    policies: tuple[str, ...] = ("fair", "max-total")

    def copies(self, seconds: Sequence[float], tasks: int = 1) -> int:
        """Return the copies for each of `tasks` per step; one takes `seconds` on each worker."""
        one = self.count * self.steps * tasks * sum(seconds) / len(seconds)
        return max(1, round(self.seconds * len(seconds) / one))


@dataclass
class DemoTraining:
    """One model, or job, of a run. All times are in Unix seconds."""

    name: str
    #: Time and loss of each step.
    curve: list[tuple[float, float]] = field(default_factory=list)
    #: Address of a worker, start and end of each task or step there.
    spans: list[tuple[str, float, float]] = field(default_factory=list)
    arrived: float = 0.0
    done: float | None = None
    error: str | None = None

    @property
    def losses(self) -> list[float]:
        """Losses, oldest first."""
        return [loss for _, loss in self.curve]

    @property
    def loss(self) -> float:
        """Last loss."""
        return self.curve[-1][1] if self.curve else math.inf


@dataclass
class DemoRun:
    """All trainings in one way, from a start in Unix seconds."""

    way: str
    trainings: list[DemoTraining]
    start: float = field(default_factory=time)

    @property
    def seconds(self) -> float:
        """Time from the start until the last training has ended."""
        return max(training.done or self.start for training in self.trainings) - self.start


class Result(NamedTuple):
    """What a demo is `about`, its runs, and its figures as JSON, first those of each way."""

    about: str
    runs: list[DemoRun]
    figures: dict[str, Any]
    shown: dict[str, str]  # figures of a way, with what to call them
    verdict: str
    ranked: bool = False  # whether the losses of several models say which is best


@contextmanager
def cluster() -> Iterator[Client]:
    """Open two workers of one thread on this machine, and a client."""
    print("Starting two workers ...", flush=True)
    # The scheduler shares this process with the drivers: it must not wait 5 ms for the GIL.
    sys.setswitchinterval(0.0005)
    # The scheduler warns whenever a way has done with its plugin.
    logging.getLogger("dask_slaq").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with (
            LocalCluster(
                n_workers=2,
                threads_per_worker=1,  # also of BLAS, by the environment of Dask's workers
                memory_limit=0,
                dashboard_address=None,
                silence_logs=logging.ERROR,
            ) as cluster,
            Client(cluster) as client,
        ):
            client.run(make_room)
            yield client


def make_room() -> None:
    """Let the scheduler go first, and keep a worker's process from writing to the terminal."""
    if hasattr(os, "nice"):
        os.nice(10)
    warnings.simplefilter("ignore")
    logging.getLogger("dask_slaq").setLevel(logging.ERROR)  # plain models report to nobody
    # Ctrl-C also reaches the workers, but the cluster is to stop them, without tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def on_each_worker(client: Client, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function` with `args` in a task on every worker of `client`, at the same time."""
    workers = client.scheduler_info(n_workers=-1)["workers"]
    return client.gather([client.submit(function, *args, workers=[w], pure=False) for w in workers])


def announced(runs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the way of each of `runs`, and print before it which one it is, in words."""
    for number, (way, words) in enumerate(runs, 1):
        print(f"\nRun {number} of {len(runs)}: {words}", flush=True)
        yield way


def watch(run: DemoRun, look: float = 0.5, period: float = 5.0) -> None:
    """Look at a `run` every so many seconds until it ends, and print a line each `period`."""
    due, ended, count = time(), 0, len(run.trainings)
    while ended < count:
        sleep(look)
        ended = sum(training.done is not None for training in run.trainings)
        if time() >= due or ended == count:
            due += period
            way = NAMES.get(run.way, run.way)
            print(f"{way:>10} {time() - run.start:5.1f} s  {ended} of {count} done", flush=True)


def figures_of(runs: Sequence[DemoRun], measure: Callable[[DemoRun], dict[str, Any]]) -> Figures:
    """Return the figures of each way: means of its runs, and those of each as ``runs``."""
    found: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        found.setdefault(run.way, []).append(measure(run))
    return {way: {**mean_of(each), "runs": each} for way, each in found.items()}


def mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of times in seconds, None if one is, and the rest of the first row."""
    found = dict(rows[0])
    for key in (key for key in found if key.endswith("_s")):
        times = [row[key] for row in rows]
        found[key] = None if None in times else float(np.mean(times))
    return found


def judge(verdict: str, figures: Figures, key: str, alike: float = 0.1) -> str:
    """Return the `verdict`, unless the runs of a way disagree in their times under a `key`.

    They may differ by as much as the ways do, and by the part `alike`.
    """
    times = [[run[key] or np.nan for run in way["runs"]] for way in figures.values()]
    means, spread = np.mean(times, axis=1), np.ptp(times, axis=1)
    if (spread <= np.maximum(alike * means, np.ptp(means))).all():
        return verdict
    return "Not comparable, as the runs disagree: run it again when the machine is idle."


def ratio(figures: Figures, key: str) -> float | None:
    """Return the last of the `figures` under a `key` as a fraction of the first."""
    first, *others = (way.get(key) for way in figures.values())
    return others[-1] / first if others and first and others[-1] is not None else None


def compare(figures: Figures, shown: dict[str, str]) -> list[list[str]]:
    """Return the cells of a comparison: a heading, and the times in `figures` per key `shown`."""
    rows = [["", *(NAMES.get(way, way) for way in figures), "ratio"]]
    for key, label in shown.items():
        times = ["-" if way.get(key) is None else f"{way[key]:.1f} s" for way in figures.values()]
        share = ratio(figures, key)
        rows.append([label, *times, "" if share is None else f"{share:.2f}"])
    return rows
