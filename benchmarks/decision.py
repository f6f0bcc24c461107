"""Decision benchmark: everything the engine does in one epoch, from new reports to new grants.

Each job reports once; the jobs are at all stages of training. `Engine.reallocate` then fits the
curves, calls the policy and places the grants, on one thread. The same decisions by `slaq2017`, the
paper's method, are measured for comparison.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable
from typing import Any
from unittest import mock

import click
import numpy as np
from threadpoolctl import threadpool_limits

from benchmarks.allocation import EPOCH, SIZES
from benchmarks.common.results import give, json_option, say, table
from dask_slaq.core import engine as engine_module
from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import Predictor
from dask_slaq.core.policies import POLICIES, Policy

#: Threads per worker.
THREADS = 16
#: Decisions before the measured ones. By then forecasts have been scored, shares exist, and jobs
#: are refitted at different times, which costs more than the common first fit.
WARM = 12
#: Measured decisions in a full and in a quick run.
DECISIONS, QUICK_DECISIONS = 15, 3
#: The paper's method, most jobs for which it runs, and its decisions before and while measuring:
#: each fits every job, so none differs from the others.
PAPER, PAPER_JOBS, PAPER_WARM, PAPER_DECISIONS = "slaq2017", 4_000, 1, 3


class Training:
    """Synthetic training jobs at different stages, and an engine that schedules them.

    ``seconds`` has the time that each part of the decision took since it was last cleared. Before
    the first step, there are `warm` decisions.
    """

    def __init__(self, jobs: int, cores: int, *, policy: str, seed: int, warm: int = WARM) -> None:
        self.names = [f"job-{i:06d}" for i in range(jobs)]
        self.workers = {
            f"tcp://10.0.{i >> 8}.{i & 255}:8786": THREADS for i in range(cores // THREADS)
        }
        self.seconds: dict[str, float] = defaultdict(float)
        self.engine = Engine(policy, epoch=EPOCH)
        self._watch(self.engine.forecaster)
        self._now = 0.0
        self._draw(np.random.default_rng(seed), cores / jobs)
        self._begin(warm)

    def _watch(self, predictor: Predictor) -> None:
        """Wrap the predictor, the policy and the placement with timers."""
        for method in ("fit", "forecast"):
            setattr(predictor, method, self._timed("fit", getattr(predictor, method)))
        policy = self.engine.policy
        self.engine.policy = _Timed(policy, self._timed("policy", policy))
        self._place = self._timed("place", engine_module.place_all)

    def _timed(self, part: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            try:
                return function(*args, **kwargs)
            finally:
                self.seconds[part] += time.perf_counter() - start

        return timed

    def _draw(self, rng: np.random.Generator, threads: float) -> None:
        """Draw curves of the paper's two families (a third with 1 % noise), sizes and lengths."""
        jobs = len(self.names)
        self._rng = rng
        self._end, self._fall = rng.uniform(0.0, 1.0, jobs), rng.lognormal(0.0, 1.0, jobs)
        self._pace, self._power = rng.lognormal(2.5, 0.8, jobs), rng.uniform(0.5, 3.0, jobs)
        self._geometric = rng.random(jobs) < 0.5
        self._noise = np.where(rng.random(jobs) < 1 / 3, 0.01, 0.0)
        self.work = rng.lognormal(0.0, 1.0, jobs)
        self.width = np.ceil(rng.lognormal(np.log(4.0 * threads), 0.8, jobs)).astype(int)
        self._length = np.exp(rng.uniform(np.log(5), np.log(120), jobs)).astype(int)

    def _loss(self, iteration: np.ndarray) -> list[float]:
        passed = iteration / self._pace
        shape = np.where(self._geometric, np.exp(-passed), (1.0 + passed) ** -self._power)
        loss = self._end + self._fall * shape
        return (loss * (1.0 + self._noise * self._rng.standard_normal(len(loss)))).tolist()

    def _begin(self, warm: int) -> None:
        """Report histories of different lengths, and make the warm-up decisions."""
        for name in self.names:
            self.engine.add_job(name, self._now)
        for k in range(int(self._length.max())):
            losses = self._loss(np.full(len(self.names), float(k)))
            for i in np.flatnonzero(k < self._length).tolist():
                self._work_on(i)
                self.engine.report(self.names[i], losses[i], self._now)
        for _ in range(warm):
            self.step()

    def _work_on(self, i: int) -> None:
        """Observe the tasks of an iteration."""
        name, width = self.names[i], int(self.width[i])
        self.engine.observe_task(name, float(self.work[i]), width)
        self.engine.observe_demand(name, width)

    def step(self) -> dict[str, float]:
        """Simulate one epoch: one report per job, then the decision. Returns seconds by part.

        The parts are ``report``, ``fit``, ``policy``, ``place``, ``rest``; their ``total``, and the
        CPU seconds of the process, ``cpu``.
        """
        self._now += EPOCH
        losses = self._loss(self._length.astype(float))
        self._length += 1
        for i in range(len(losses)):
            self._work_on(i)
        self.seconds.clear()
        with mock.patch.object(engine_module, "place_all", self._place):
            start, cpu = time.perf_counter(), time.process_time()
            for name, loss in zip(self.names, losses, strict=True):
                self.engine.report(name, loss, self._now)
            self.seconds["report"] = time.perf_counter() - start
            self.engine.reallocate(self.workers, self._now)
            total, cpu = time.perf_counter() - start, time.process_time() - cpu
        parts = {part: self.seconds[part] for part in ("report", "fit", "policy", "place")}
        return {**parts, "rest": total - sum(parts.values()), "total": total, "cpu": cpu}


class _Timed:
    """Timed policy; its attributes are those of the original."""

    def __init__(self, policy: Policy, decide: Callable[..., Any]) -> None:
        self._policy, self._decide = policy, decide

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def __call__(self, snapshot: Any) -> Any:
        return self._decide(snapshot)


def measure(
    jobs: int,
    cores: int,
    *,
    policy: str,
    seed: int = 0,
    decisions: int = DECISIONS,
    paper: bool = True,
) -> dict[str, Any]:
    """Measure the median of several decisions at one size, also by the `paper`'s method."""
    training = Training(jobs, cores, policy=policy, seed=seed)
    found = {"jobs": jobs, "cores": cores, **_median(training, decisions)}
    if not paper:
        return {**found, "paper_seconds": None}
    training = Training(jobs, cores, policy=PAPER, seed=seed, warm=PAPER_WARM)
    theirs = _median(training, min(decisions, PAPER_DECISIONS))
    return {**found, "paper_seconds": theirs["seconds"], "paper_parts": theirs["parts"]}


def _median(training: Training, decisions: int) -> dict[str, Any]:
    steps = sorted((training.step() for _ in range(decisions)), key=lambda parts: parts["total"])
    parts = dict(steps[len(steps) // 2])
    seconds, cpu = parts.pop("total"), parts.pop("cpu")
    return {"seconds": seconds, "cpu_seconds": cpu, "parts": parts}


@click.command()
@click.option("--policy", default="max-total", show_default=True, type=click.Choice(POLICIES))
@click.option("--seed", default=0, show_default=True, help="Seed of the synthetic training jobs.")
@click.option("--quick", is_flag=True, help="Fewer decisions, and not the largest size.")
@json_option
def main(policy: str, seed: int, quick: bool, output: str | None) -> None:
    """Measure the time of a whole decision and of its parts, on one thread of this machine."""
    result = []
    with threadpool_limits(1):
        for jobs, cores in SIZES[:-1] if quick else SIZES:
            say(f"{jobs} jobs on {cores} cores")
            decisions = QUICK_DECISIONS if quick else DECISIONS
            how = {"seed": seed, "decisions": decisions, "paper": jobs <= PAPER_JOBS}
            result.append(measure(jobs, cores, policy=policy, **how))
    give(result, output, _table(result))


def _table(result: list[dict[str, Any]]) -> str:
    head = ["jobs", "cores", "ms", "cpu ms", *result[0]["parts"], "paper ms", "ratio"]
    rows = []
    for row in result:
        seconds = [row["seconds"], row["cpu_seconds"], *row["parts"].values()]
        paper = row["paper_seconds"]
        rival = [1e3 * paper, paper / row["seconds"]] if paper else [None, None]
        rows.append([row["jobs"], row["cores"], *(1e3 * each for each in seconds), *rival])
    note = """ms of the median decision; paper: by slaq2017, which fits every job anew
cpu: above it, ms is time in which the machine did something else"""
    return f"{table(head, rows)}\n{note}"


if __name__ == "__main__":
    main()
