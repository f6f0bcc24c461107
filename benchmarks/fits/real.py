"""Unmodified fits of dask-ml on worker processes, whose tasks last as on larger data, asleep.

Workers compute all tasks, so that fits are as ever. Then they sleep: each task lasts a multiple of
the CPU seconds that a table has for its function and the size of its inputs, the same under every
policy. So a few cores are enough for many workers. Messages, the scheduler and drivers, in
processes of their own, take the time that they take, and data that move are not larger.
"""

from __future__ import annotations

import itertools
import json
import logging
import math
import multiprocessing
import signal
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, NamedTuple

import dask
import numpy as np
import psutil
from dask.sizeof import sizeof
from dask.utils import key_split
from distributed import Client, wait
from distributed.diagnostics.plugin import SchedulerPlugin

from benchmarks.common import cluster as clusters
from benchmarks.common import results
from benchmarks.common.metrics import JobTrace, Run, summarize
from benchmarks.live_jobs import real_fits
from benchmarks.paper.quality import GROUPS, by_group
from dask_slaq.lab.demo.fits import compile_kmeans, estimators, make_data

POLICIES = ["none", "fair", "slaq2017", "first-to-target"]
#: Fits of a process of drivers, and seconds until the first one starts, in which they connect.
PER_DRIVER, LEAD, LEAD_EACH = 4, 1.0, 0.15
#: Cores that other programs may use.
LOADED = 0.25
FIGURES = {
    "t90_mean_s": "t90", "t95_mean_s": "t95", "completion_mean_s": "end", "makespan_s": "makespan",
}  # fmt: skip


@dataclass(frozen=True)
class Setting:
    """What all runs share: `rows` per block, and the `part` of each fit's iterations that it does.

    Times of tasks are read from the file `table`, or measured and written there.
    """

    workers: int = 16
    stretch: float = 100.0
    fits: int = 30
    rows: int = 20_000
    part: float = 0.7
    table: str | None = None


class Spans(SchedulerPlugin):
    """Plugin that notes when tasks computed, by the fit that they are annotated with."""

    name = "demo-spans"
    # Of the class, since a client sends a copy of a plugin to the scheduler, in this process.
    of: ClassVar[dict[str, list[tuple[str, float, float]]]] = defaultdict(list)

    async def start(self, scheduler: Any) -> None:
        """Keep the scheduler."""
        self._scheduler = scheduler

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Note when a task computed."""
        ran = [each for each in kwargs.get("startstops") or () if each["action"] == "compute"]
        fit = (self._scheduler.tasks[key].annotations or {}).get("slaq_demo") if ran else None
        if fit:
            # A key that is computed again on the same worker brings its earlier runs along.
            self.of[fit].append((kwargs["worker"], ran[-1]["start"], ran[-1]["stop"]))


def cpu_seconds() -> tuple[float, float, float]:
    """Return the time, and the CPU seconds that this program and others have used."""
    mine, cpu = psutil.Process(), psutil.cpu_times()
    own = [each.cpu_times() for each in (mine, *mine.children(recursive=True))]
    ours = sum(each.user + each.system for each in own)
    return time.time(), ours, cpu.user + cpu.system + getattr(cpu, "nice", 0.0) - ours


class Measured(NamedTuple):
    """A run, the cores that this benchmark and others used, and core-seconds of `GROUPS`."""

    run: Run
    cores: float
    others: float
    groups: np.ndarray


class Stretched(ThreadPoolExecutor):
    """Executor of a worker, in which tasks last `stretch` times their seconds in a `table`.

    Those that it lacks last as many times their own CPU seconds. Nothing sleeps if `stretch` is 0.
    """

    def __init__(self) -> None:
        super().__init__(1)
        self.table: Mapping[str, float] = {}
        self.stretch = 0.0
        self.seen: dict[str, list[float]] = defaultdict(list)

    def __reduce__(self) -> Any:
        return Stretched, ()

    def submit(self, run: Any, /, task: Any, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run a task, or rather what is called with its inputs in its place."""
        return super().submit(run, partial(self._last, task), *args, **kwargs)

    def _last(self, task: Any, inputs: Mapping[Any, Any]) -> Any:
        size = sum(map(sizeof, inputs.values()))
        kind = f"{key_split(task.key)} {round(2 * math.log2(size + 1))}"
        begin, cpu = time.perf_counter(), time.thread_time()
        result = task(inputs)
        cpu = time.thread_time() - cpu
        self.seen[kind].append(cpu)
        lasts = self.stretch * self.table.get(kind, cpu)
        time.sleep(max(begin + lasts - time.perf_counter(), 0.0))
        return result


def stretch_tasks(client: Client, table: Mapping[str, float], stretch: float) -> None:
    """Let tasks last as a table says from now on."""

    def change(dask_worker: Any) -> None:
        pool = dask_worker.executors["default"]
        pool.table, pool.stretch = table, stretch

    client.run(change)


def calibrate(client: Client, setting: Setting) -> dict[str, float]:
    """Return the CPU seconds of tasks by kind, as in the fits by themselves."""
    path = Path(setting.table) if setting.table else None
    if path is not None and path.exists():
        found: dict[str, float] = json.loads(path.read_text())
        return found
    stretch_tasks(client, {}, 0.0)
    seen: dict[str, list[float]] = defaultdict(list)
    models = estimators(0, setting.part)
    with _data(client, {name: data for name, (data, _) in models.items()}, 0, setting.rows):
        for name, (_, model) in models.items():
            with client.as_current():
                model.fit(*client.get_dataset(name))
    for rows in client.run(lambda dask_worker: dask_worker.executors["default"].seen).values():
        for kind, seconds in rows.items():
            seen[kind] += seconds
    found = {kind: float(np.median(seconds)) for kind, seconds in sorted(seen.items())}
    if path is not None:
        path.write_text(json.dumps(found, indent=1) + "\n")
    return found


@contextmanager
def _data(client: Client, kinds: Mapping[str, str], seed: int, rows: int) -> Iterator[None]:
    """Publish data of their own for fits, as long as the block lasts."""
    arrays = {
        name: make_data(kind, 1000 * seed + i, rows) for i, (name, kind) in enumerate(kinds.items())
    }
    with client.as_current():
        held = dict(zip(arrays, dask.persist(*arrays.values()), strict=True))
        wait(list(held.values()))
    for name, data in held.items():
        client.publish_dataset(data, name=name)
    try:
        yield
    finally:
        for name in held:
            client.unpublish_dataset(name)


def make_list(setting: Setting, gap: float, seed: int) -> list[tuple[JobTrace, str, Any]]:
    """Return an empty trace, the name of the data, and the estimator of each fit of a list.

    They arrive at random, `gap` seconds after each other in the mean.
    """
    rng = np.random.default_rng([11, seed])
    found: list[tuple[str, str, Any]] = []
    for again in itertools.count():
        models = estimators(100 * seed + again, setting.part)
        for name in rng.permutation(list(models)).tolist():
            found.append((f"{name}.{again}", *models[name]))
        if len(found) >= setting.fits:
            break
    gaps = gap * rng.exponential(size=setting.fits)
    arrivals = (np.cumsum(gaps) - gaps[0]).tolist()
    return [
        (JobTrace(name, at), data, model)
        for at, (name, data, model) in zip(arrivals, found, strict=False)
    ]


class _Fit(real_fits.Fit):
    """Thread that runs one fit, whose tasks bear its name."""

    def train(self, client: Client, data: Any) -> None:
        with dask.annotate(slaq_demo=self.name):
            super().train(client, data)


def _prepare() -> None:
    """Import in a process what its first fits would otherwise wait for, and keep it quiet."""
    warnings.simplefilter("ignore")
    logging.getLogger("distributed").setLevel(logging.CRITICAL)  # as of ends of connections
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    compile_kmeans()
    estimators(0)


def _drive(pipe: Connection, address: str) -> None:
    """Run the fits that come by a pipe, each in a thread with a client of its own.

    Sends None when it is ready, and then traces.
    """
    _prepare()
    dask.config.set(clusters.QUIET)
    place = SimpleNamespace(scheduler_address=address, loop=None)
    pipe.send(None)
    with suppress(EOFError):  # the program has ended
        while True:
            policy, begin, fits = pipe.recv()
            drivers = [_Fit(trace, policy, place, begin, trace.name, m) for trace, m in fits]
            pipe.send(real_fits.run_threads(drivers, policy))


#: Runs by gap and policy.
Runs = dict[str, dict[str, list[Measured]]]


@dataclass
class _Place:
    """Cluster, and pipes to the processes of drivers."""

    cluster: Any
    client: Client
    drivers: list[Connection]
    table: dict[str, float]

    def run(self, setting: Setting, policy: str, gap: float, seed: int) -> Measured:
        """Run a list under a policy."""
        client, fits = self.client, make_list(setting, gap, seed)
        stretch_tasks(client, {}, 0.0)
        with _data(client, {t.name: data for t, data, _ in fits}, seed, setting.rows):
            stretch_tasks(client, self.table, setting.stretch)
            clusters.register(client, policy)
            Spans.of.clear()
            meter, moved = clusters.meter(self.cluster), clusters.bytes_moved(client)
            lead = LEAD + LEAD_EACH * setting.fits
            begin, zero = time.perf_counter() + lead, time.time() + lead
            for i, pipe in enumerate(self.drivers):
                some = [(trace, model) for trace, _, model in fits[i :: len(self.drivers)]]
                pipe.send((policy, begin, some))
            time.sleep(max(begin - time.perf_counter(), 0.0))
            cpu, look = time.process_time(), cpu_seconds()
            with clusters.Lateness() as late:
                traces = [trace for pipe in self.drivers for trace in pipe.recv()]
            cpu, ended = time.process_time() - cpu, cpu_seconds()
            moved = clusters.bytes_moved(client) - moved
            self.cluster.scheduler.remove_plugin(meter.name)
            if policy != "none":
                client.unregister_scheduler_plugin("slaq")
        order = {t.name: i for i, (t, _, _) in enumerate(fits)}
        traces.sort(key=lambda trace: order[trace.name])
        run = Run(seed, traces, moved, meter.seconds, setting.workers, late.mean, cpu)
        _, ours, others = (np.array(ended) - look) / (ended[0] - look[0])
        return Measured(run, float(ours), float(others), cores(traces, Spans.of, zero))


def cores(traces: Sequence[JobTrace], spans: Mapping[str, Any], zero: float) -> np.ndarray:
    """Return the core-seconds of each group of jobs by normalized loss, from spans of tasks."""
    seconds, found = np.arange(max(t.completion for t in traces) + 1), np.zeros(len(GROUPS))
    used = {}
    for trace in traces:
        begin, end = np.array([span[1:] for span in spans[trace.name]]).T[:, :, None] - zero
        lasts = np.minimum(end, seconds + 1) - np.maximum(begin, seconds)
        used[trace.name] = np.clip(lasts, 0.0, None).sum(axis=0)
    for at in range(len(seconds)):
        active = [t for t in traces if t.arrival <= at < t.completion]
        if active:
            found += by_group([_left(t, at) for t in active], [used[t.name][at] for t in active])
    return found


def _left(trace: JobTrace, now: float) -> float:
    """Return the part of the fall of a loss that is left."""
    known = int(np.searchsorted(trace.times, now, "right"))
    if not known or min(trace.losses) == trace.losses[0]:
        return 1.0
    first, last = trace.losses[0], min(trace.losses)
    return (min(trace.losses[:known]) - last) / (first - last)


@contextmanager
def _started(setting: Setting, say: Callable[[str], None]) -> Iterator[_Place]:
    """Start a cluster and drivers, with a table of times."""
    context, drivers = multiprocessing.get_context("spawn"), []
    with ExitStack() as stack:
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        logging.getLogger("dask_slaq").setLevel(logging.ERROR)  # it tells that it was unregistered
        cluster, client = stack.enter_context(
            clusters.local_cluster(
                setting.workers,
                processes=True,
                executor=Stretched(),
                silence_logs=logging.ERROR,  # Dask warns of keys that dask-ml's graphs share
            )
        )
        for _ in range(0, setting.fits, PER_DRIVER):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_drive, args=(theirs, cluster.scheduler_address), daemon=True
            )
            process.start()
            theirs.close()
            stack.callback(process.terminate)
            drivers.append(ours)
        client.run(_prepare)
        for pipe in drivers:
            pipe.recv()
        client.register_plugin(Spans())
        table = calibrate(client, setting)
        say(
            f"{setting.workers} workers, {len(drivers)} processes of drivers, "
            f"{len(table)} kinds of tasks"
        )
        yield _Place(cluster, client, drivers, table)


def measure(
    setting: Setting, policies: list[str], gaps: Sequence[float], seeds: Sequence[int],
    repeat: int, say: Callable[[str], None], found: Runs,
) -> None:  # fmt: skip
    """Run all lists under all policies, and put what is measured so far into `found` by gap.

    Within a list, policies run in turn, and each other time in the opposite order; who begins
    changes from list to list.
    """
    with _started(setting, say) as place:
        for turn, (gap, seed) in enumerate(itertools.product(gaps, seeds)):
            runs = found.setdefault(f"{gap:g}s", {})
            shift = turn % len(policies)
            order = policies[shift:] + policies[:shift]
            for policy in itertools.chain(*([order, order[::-1]] * repeat)[:repeat]):
                done = place.run(setting, policy, gap, seed)
                runs.setdefault(policy, []).append(done)
                t90 = results.cell(summarize([done.run])["t90_mean_s"])
                say(f"a fit every {gap:g} s, seed {seed}, {policy}: t90 {t90} s, "
                    f"makespan {done.run.makespan:.1f} s, busy {done.run.utilization:.2f}, "
                    f"{done.cores:.2f} cores, {done.others:.2f} of other programs"
                    + ": not comparable" * (done.others > LOADED))  # fmt: skip
            say(show(f"{gap:g}s", compare(runs)))


def compare(runs: Mapping[str, Sequence[Measured]]) -> dict[str, dict[str, Any]]:
    """Return the figures of each policy, and their ratios to those of plain Dask if it ran.

    `cores` are those that the run used, and `load` those of other programs, at most. `worst` is the
    largest time of a fit over the same fit's under plain Dask.
    """
    found: dict[str, dict[str, Any]] = {}
    for policy, done in runs.items():
        row = summarize([each.run for each in done])
        groups = np.sum([each.groups for each in done], axis=0)
        row |= {
            "busy": row["utilization"],
            "cores": float(np.mean([each.cores for each in done])),
            "load": max(each.others for each in done),
            "by_group": dict(zip(GROUPS, (groups / groups.sum()).tolist(), strict=True)),
        }
        found[policy] = row
    times = {policy: ends(row["jobs"]) for policy, row in found.items()}
    for policy, row in found.items():
        if "none" in found:
            plain = found["none"]
            row["over_none"] = {
                key: row[key] / plain[key] if row[key] and plain[key] else None for key in FIGURES
            }
            both = times[policy].keys() & times["none"].keys()
            row["worst"] = max((times[policy][k] / times["none"][k] for k in both), default=None)
    return found


def ends(jobs: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], float]:
    """Return the mean time of each fit."""
    found = defaultdict(list)
    for job in jobs:
        found[job["name"], job["seed"]].append(job["completion_s"])
    return {key: float(np.mean(each)) for key, each in found.items()}


def show(gap: str, rows: Mapping[str, Mapping[str, Any]]) -> str:
    """Format the figures of lists with a gap between arrivals as a table."""
    names = list(FIGURES.values())
    head = [f"every {gap}", *(f"{name}/s" for name in names), "busy", "scheduler/s", "moved/MB",
            *(f"{name}/none" for name in names), "worst", *GROUPS]  # fmt: skip
    cells = []
    for policy, row in rows.items():
        over = row.get("over_none", {})
        cells.append([
            policy, *(row[key] for key in FIGURES), row["busy"], row["charged_s"],
            row["bytes_moved"] / 1e6, *(over.get(key) for key in FIGURES), row.get("worst"),
            *(f"{part:.0%}" for part in row["by_group"].values()),
        ])  # fmt: skip
    busy = any(row["load"] > LOADED for row in rows.values())
    said = "\nOther programs were busy: not comparable." if busy else ""
    return results.table(head, cells) + said
