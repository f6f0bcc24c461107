"""Main program of the demo: its cluster on this machine, and what it prints and writes."""

from __future__ import annotations

import logging
import math
import os
import signal
import sys
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from time import sleep
from typing import Any, NamedTuple

import numpy as np
import psutil
from distributed import Client, LocalCluster, wait
from distributed import TimeoutError as TooLate
from distributed.metrics import time

#: Ratio from which on nothing counts as gained.
GAINED = 0.95
#: Cores that other programs may use, seconds to look at them before, and the part by which runs of
#: a way may differ whatever is gained.
LOADED, IDLE, ALIKE = 0.25, 1.0, 0.1
#: Seconds between two looks at a run, and between plain lines about it; most rows of its table.
LOOK, PERIOD, ROWS = 0.5, 5.0, 14
_STYLES = {"training": "", "waiting": "yellow", "done": "green", "failed": "red", "to come": "dim"}

#: Names of ways that are not shown as they are.
NAMES = {"none": "plain Dask"}
#: What the scheduler warns of whenever a demo has done with a plugin.
EXPECTED = "the plugin was unregistered"

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

    def state(self, waiting: Collection[str]) -> str:
        """Return the state, which is "waiting" for the names in `waiting`."""
        if self.done:
            return "failed" if self.error else "done"
        return "waiting" if self.name in waiting else "training" if self.curve else "to come"


@dataclass
class DemoRun:
    """All trainings in one way, from a start in Unix seconds."""

    way: str
    trainings: list[DemoTraining]
    start: float = field(default_factory=time)
    comparable: bool = True  # whether losses of several trainings are

    @property
    def seconds(self) -> float:
        """Time from the start until the last training has ended."""
        return max(training.done or self.start for training in self.trainings) - self.start


class Result(NamedTuple):
    """What a demo is `about`, its runs, figures, those `shown`, and whether models are `ranked`."""

    about: str
    runs: list[DemoRun]
    #: As JSON; first those of each way.
    figures: dict[str, Any]
    shown: dict[str, str]
    verdict: str
    ranked: bool = False


class Machine:
    """What other programs use of this machine while a demo runs, which makes it incomparable."""

    def __init__(self) -> None:
        self._last, self.load = cpu_seconds(), 0.0  # the most cores between two looks
        sleep(IDLE)
        self.look()

    def look(self) -> None:
        """Look again, as after a run."""
        (then, _, before), self._last = self._last, cpu_seconds()
        now, _, others = self._last
        self.load = max(self.load, (others - before) / (now - then))

    def judge(self, verdict: str, figures: Figures, key: str) -> str:
        """Return the `verdict`, or that the runs of each way in `figures` are not comparable."""
        if self.load > LOADED or disagree(figures, key):
            verdict = "Not comparable, as the machine was busy, or the runs disagree: run it again "
            verdict += "when the machine is idle."
        return f"{verdict} Other programs used {self.load:.1f} cores at most."


def cpu_seconds() -> tuple[float, float, float]:
    """Return the time, and the CPU seconds that this program and others have used."""
    mine, cpu = psutil.Process(), psutil.cpu_times()
    own = [each.cpu_times() for each in (mine, *mine.children(recursive=True))]
    ours = sum(each.user + each.system for each in own)
    return time(), ours, cpu.user + cpu.system + getattr(cpu, "nice", 0.0) - ours


def disagree(figures: Figures, key: str) -> bool:
    """Whether the times under a `key` of runs of a way differ more than the ways and `ALIKE`."""
    ways = [[run[key] or np.nan for run in way["runs"]] for way in figures.values()]
    means, spread = np.mean(ways, axis=1), np.ptp(ways, axis=1)
    return not (spread <= np.maximum(ALIKE * means, np.ptp(means))).all()


def mean_of(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the means of times in seconds, None if one is, and the rest of the first row."""
    found = dict(rows[0])
    for key in (key for key in found if key.endswith("_s")):
        times = [row[key] for row in rows]
        found[key] = None if None in times else float(np.mean(times))
    return found


@contextmanager
def cluster() -> Iterator[Client]:
    """Open two workers of one thread on this machine, and a client."""
    print("Starting two workers ...", flush=True)
    # The scheduler shares this process with the drivers: it must not wait 5 ms for the GIL.
    sys.setswitchinterval(0.0005)
    with warnings.catch_warnings(), _silent("dask_slaq.scheduler.plugin", EXPECTED):
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


@contextmanager
def _silent(name: str, text: str) -> Iterator[None]:
    """Keep records that contain a `text` out of the log with a `name`."""

    def tells(record: logging.LogRecord) -> bool:
        return text not in record.getMessage()

    log = logging.getLogger(name)
    log.addFilter(tells)
    try:
        yield
    finally:
        log.removeFilter(tells)


def make_room() -> None:
    """Let the scheduler go first, and keep a worker's process from writing to the terminal."""
    if hasattr(os, "nice"):
        os.nice(10)
    warnings.simplefilter("ignore")
    logging.getLogger("dask_slaq").setLevel(logging.ERROR)  # plain models report to nobody
    # Ctrl-C also reaches the workers, but the cluster is to stop them, without tracebacks.
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def on_each_worker(client: Client, function: Callable[..., Any], *args: Any) -> list[Any]:
    """Call `function` with `args` in a task on every worker of `client`, at the same time.

    While that lasts, a line is printed now and then.
    """
    workers = client.scheduler_info(n_workers=-1)["workers"]
    tasks = [client.submit(function, *args, workers=[w], pure=False) for w in workers]
    began = time()
    while True:
        try:
            wait(tasks, timeout=PERIOD)
        except TooLate:
            print(f"... {time() - began:.0f} s so far: this machine is slow or busy", flush=True)
        else:
            return client.gather(tasks)


def announced(runs: Sequence[tuple[str, str]]) -> Iterator[str]:
    """Yield the way of each of `runs`, and print before it which one it is, in words."""
    for number, (way, words) in enumerate(runs, 1):
        print(f"\nRun {number} of {len(runs)}: {words}", flush=True)
        yield way


def watch(run: DemoRun, waiting: Callable[[], Collection[str]] = tuple) -> None:
    """Show a `run` until it ends, and who is `waiting`: by rich in a terminal, else in lines."""
    due, live, going = time(), None, True
    with ExitStack() as stack:
        if sys.stdout.isatty():
            try:
                from rich.live import Live
            except ImportError:
                print("For a live table install rich: pip install 'dask-slaq[demo]'")
            else:
                live = stack.enter_context(Live(refresh_per_second=4))
        while going:
            sleep(LOOK)
            held = waiting()
            rows = [(t.state(held), t) for t in run.trainings]
            states = [state for state, _ in rows]
            going = not {"done", "failed"}.issuperset(states)
            count = ", ".join(f"{states.count(s)} {s}" for s in _STYLES if s in states)
            done = (t.loss for state, t in rows if state == "done" and run.comparable)
            best = min(done, default=math.inf)
            title = f"{NAMES.get(run.way, run.way):>10} {time() - run.start:5.1f} s  {count}"
            title += f"; lowest loss done: {best:.3f}" if best < math.inf else ""
            if live:
                live.update(_table(title, rows))
            elif time() >= due or not going:
                due += PERIOD
                print(title, flush=True)


def _table(title: str, rows: list[tuple[str, DemoTraining]]) -> Any:
    from rich.console import Group
    from rich.table import Table

    table = Table("", "step", "loss", "state")
    begun = sorted((row for row in rows if row[1].curve), key=lambda row: row[1].loss)
    for state, training in begun[:ROWS]:
        cells = training.name, str(len(training.curve)), f"{training.loss:.3f}", state
        table.add_row(*cells, style=_STYLES[state])
    return Group(title, table)


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
