"""Workers of unlike speed: plain Dask, and the plugin with and without what it learns of them.

Trainings arrive one after another on eight one-thread workers of the virtual clock. "off" is the
plugin that learns no speeds. In "one slow" a worker takes three times as long as the others, in
"half slow" four of eight do, and in "slows down" these four do from some time on. In "kinds" half
of the workers are like those without a GPU: gradients take four times as long there, and all else
does not. In "alike" all are alike, and "on" is to equal "off". In "chains" two chains of short
tasks run alongside three trainings on four workers, of which one is slow.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import click
import numpy as np
from distributed import get_worker

from benchmarks import virtual
from benchmarks.common.results import (
    Names,
    give,
    json_option,
    mean,
    parallel_option,
    say,
    seeds_options,
)
from benchmarks.live_jobs.drivers import run_emulated
from benchmarks.live_jobs.emulated import EmulatedJob, make_jobs
from benchmarks.live_jobs.graphs import Compute
from dask_slaq.lab.simulation.workload.curves import make_curves

WORKERS, JOBS, SCALE, EPOCH = 8, 6, 0.3, "1s"
#: Factor of slow workers, and of those that do not have the fast kind of hardware.
SLOW, UNFIT = 3.0, 4.0
#: Seconds after the begin at which workers of "slows down" do.
HALF_WAY = 15.0
#: Seconds of a link of a chain, links, and chains of a job.
LINK, LINKS, CHAINS = 0.04, 40, 2
WAYS = ("plain", "off", "on")


@dataclass(frozen=True)
class Case:
    """Workers of unlike speed: the first `slow` take `factor` times as long from `since` on.

    With a `kind`, they do so for tasks of this kind only.
    """

    slow: int = 0
    factor: float = SLOW
    since: float = 0.0
    kind: str | None = None
    chains: bool = False

    def seconds(self, kind: str, seconds: float) -> float:
        """Return the seconds that a task of a kind takes on the worker that runs it."""
        number = int(str(get_worker().name).rpartition("-")[2])
        slow = number <= self.slow and virtual.now() >= virtual.BEGINNING + self.since
        return seconds * self.factor if slow and self.kind in (None, kind) else seconds


CASES = {
    "one slow": Case(1),
    "half slow": Case(WORKERS // 2),
    "slows down": Case(WORKERS // 2, since=HALF_WAY),
    "kinds": Case(WORKERS // 2, UNFIT, kind="gradient"),
    "alike": Case(),
    "chains": Case(1, chains=True),
}


class _Tasks:
    """Functions of the tasks of a case: each takes as long as its worker makes it."""

    def __init__(self, case: Case) -> None:
        self.case = case

    async def partition(self, nbytes: int) -> Any:
        """Make a partition, which takes as long as a gradient does."""
        return await virtual.work(seconds=self.case.seconds("partition", 0.1), nbytes=nbytes)

    async def gradient(self, chunk: Any, seconds: float) -> Any:
        """Emulate the compute of one partition."""
        return await virtual.work(seconds=self.case.seconds("gradient", seconds), nbytes=512)

    async def total(self, parts: list[Any]) -> Any:
        """Emulate a sum of gradients."""
        return await virtual.work(seconds=self.case.seconds("total", 0.001), nbytes=512)


def jobs_of(case: Case, seed: int, scale: float, count: int) -> list[EmulatedJob]:
    """Make the jobs of a case."""
    jobs = make_jobs("staggered", make_curves(seed), seed, count=count, scale=scale)
    if not case.chains:
        # As many per worker and second as in `benchmarks.live`, on half the workers.
        return [replace(job, arrival=2 * job.arrival) for job in jobs]
    links, none = np.full((LINKS, CHAINS), LINK), np.zeros(0)
    chains = EmulatedJob("chains", "none", 0.0, none, none, links, shape="chains")
    return [chains, *(replace(job, arrival=0.0) for job in jobs[:3])]


def run(case: str, way: str, policy: str, seed: int, scale: float, count: int) -> dict[str, Any]:
    """Return the times of the jobs of a case in one way, in virtual seconds."""
    what = CASES[case]
    tasks = _Tasks(what)
    plugins: list[Any] = []

    def prepare(cluster: virtual.Cluster) -> None:
        plugins.extend(p for name, p in cluster.scheduler.plugins.items() if name == "slaq")
        for plugin in plugins if way == "off" else ():
            if hasattr(plugin, "speeds"):
                plugin.speeds.observe = lambda *task: None  # it learns nothing

    done = run_emulated(
        jobs_of(what, seed, scale, count),
        "none" if way == "plain" else policy,
        seed=seed,
        workers=4 if what.chains else WORKERS,
        compute=Compute(tasks.partition, tasks.gradient, tasks.total),
        prepare=prepare,
        epoch=EPOCH,
    )
    assert all(plugin.failed is None for plugin in plugins), "the plugin fell back to plain Dask"
    trained = [trace.time_to(0.9) for trace in done.traces if trace.losses]
    chains = [t.completion - t.arrival for t in done.traces if not t.losses]
    found = {"t90_s": mean(trained), "makespan_s": done.makespan}
    return {**found, "chains_s": mean(chains)} if chains else found


def measure(
    cases: list[str], policy: str, seeds: range, scale: float, count: int, parallel: int | None
) -> dict[str, dict[str, dict[str, float]]]:
    """Return the mean times over some seeds by case and way."""
    plan = [(case, way, policy, s, scale, count) for case in cases for way in WAYS for s in seeds]
    rows: dict[tuple[str, str], list[dict[str, float]]] = {}
    for (case, way, *_), row in virtual.run_all(run, plan, parallel):
        rows.setdefault((case, way), []).append(row)
        say(f"{case}, {way}: {show_row(row)}")
    found: dict[str, dict[str, dict[str, float]]] = {}
    for (case, way), each in rows.items():
        found.setdefault(case, {})[way] = {k: mean([row[k] for row in each]) for k in each[0]}
    return found


def show_row(row: Mapping[str, float]) -> str:
    """Format the times of one run."""
    return ", ".join(f"{name.removesuffix('_s')} {seconds:.2f} s" for name, seconds in row.items())


def show(found: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Format the times of all cases, and what they are of those of plain Dask."""
    lines = []
    for case, ways in found.items():
        for way, row in ways.items():
            of_plain = ", ".join(f"{row[name] / ways['plain'][name]:.2f}" for name in row)
            lines.append(f"{case:12}{way:8}{show_row(row)}  (of plain {of_plain})")
    return "\n".join(lines)


@click.command(help=__doc__)
@click.option("--cases", type=Names("case", CASES), help="Comma-separated.  [default: all]")
@click.option("--policy", default="max-total", show_default=True)
@seeds_options
@parallel_option
@click.option("--quick", is_flag=True, help="One seed and short jobs.")
@virtual.latency_option
@json_option
def main(
    cases: list[str] | None,
    policy: str,
    seeds: int,
    seed: int,
    parallel: int | None,
    quick: bool,
    output: str | None,
) -> None:
    """Run the benchmark."""
    scale, count = (SCALE / 3, 3) if quick else (SCALE, JOBS)
    each = range(seed, seed + (1 if quick else seeds))
    found = measure(cases or list(CASES), policy, each, scale, count, parallel)
    give(found, output, show(found))


if __name__ == "__main__":
    main()
