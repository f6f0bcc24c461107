"""Driver of the jobs of a trace on the virtual clock: attempts that fail and come back.

Every attempt has a client and a job block of its own, as a training program that is started again.
What an attempt computes is recorded where it is computed, also under plain Dask.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

from distributed import Client, get_worker, wait

from benchmarks import virtual
from benchmarks.chaos.outcome import silence
from benchmarks.common import cluster as clusters
from benchmarks.live_jobs.graphs import Compute, iteration, load
from benchmarks.live_jobs.philly import Attempt, TraceJob
from benchmarks.live_jobs.virtual_time import (
    GRADIENT_BYTES,
    PATIENCE,
    PATIENCE_EACH,
    partition,
    total,
)

__all__ = ["AGAIN", "REPLACED", "Ledger", "Place", "Span", "run_trace"]

#: Seconds until a failed job is submitted again, and until a dead worker is replaced. These are
#: assumptions; in the first, the scheduler hears that the client of the attempt is gone.
AGAIN, REPLACED = 1.0, 2.0


class AttemptFailed(Exception):
    """A task failed, a worker died, or the user interrupted the training."""


class Place(NamedTuple):
    """Iteration of an attempt of a job."""

    job: str
    attempt: int
    iteration: int


class Span(NamedTuple):
    """Time in which a task computed on a worker, in seconds since the start of the run."""

    place: Place
    worker: str
    start: float
    stop: float


@dataclass
class Ledger:
    """Records of one run. Times are in seconds since its start.

    `submitted` has the times since which iterations wait, and `reported` those at which
    their losses were published; `down` the times without a dead worker. `promises` has the start,
    the promised end, which is known when a fifth of the work is done, and the end of attempts.
    """

    begin: float
    spans: list[Span] = field(default_factory=list)
    submitted: dict[Place, float] = field(default_factory=dict)
    reported: dict[Place, float] = field(default_factory=dict)
    down: list[tuple[str, float, float]] = field(default_factory=list)
    completion: dict[str, float] = field(default_factory=dict)
    promises: dict[tuple[str, int], tuple[float, float, float]] = field(default_factory=dict)
    bytes_moved: int = 0
    #: How iterations are to fail, and a future of the worker on which they do.
    faults: dict[Place, tuple[str, asyncio.Future[Any]]] = field(default_factory=dict)

    def now(self) -> float:
        """Return the seconds since the start of the run."""
        return virtual.now() - self.begin


#: Functions of the tasks that load the data of an attempt.
LOAD = Compute(partition, virtual.work, total)
#: Records of the run that is going on, for its tasks: they run in this process.
_ledger: list[Ledger] = []


async def _gradient(place: Place, chunk: Any, seconds: float) -> Any:
    """Emulate the compute of one partition. The first one of a failing iteration stops halfway."""
    ledger, worker = _ledger[-1], get_worker().address
    fault = ledger.faults.pop(place, None)
    start = ledger.now()
    try:
        await asyncio.sleep(seconds / 2)
        if fault is not None:
            how, failed = fault
            failed.set_result(worker)
            if how == "task":
                raise AttemptFailed(f"a task of {place.job} fails")
        await asyncio.sleep(seconds / 2)
    except asyncio.CancelledError:
        if fault is not None and not fault[1].done():  # another job's failure killed the worker
            ledger.faults[place] = fault
        raise
    finally:
        ledger.spans.append(Span(place, worker, start, ledger.now()))
    return await virtual.work(nbytes=GRADIENT_BYTES)


def run_trace(
    jobs: Sequence[TraceJob],
    policy: str,
    *,
    seed: int,
    workers: int,
    partition_bytes: int = 2**20,
    **settings: Any,
) -> Ledger:
    """Run all jobs under `policy` on a fresh virtual cluster of one-thread workers.

    `settings` are arguments of `SlaqPlugin`. Raises AssertionError if the scheduler keeps anything
    of an attempt that has ended.
    """
    plugin = clusters.plugin(policy, **settings)

    async def main() -> Ledger:
        async with (
            virtual.Cluster(threads=[1] * workers) as cluster,
            cluster.client() as client,
        ):
            if plugin is not None:
                await client.register_plugin(plugin)
            ledger = Ledger(virtual.now())
            _ledger.append(ledger)
            try:
                await _Replay(cluster, policy, partition_bytes, ledger).run(jobs)
            finally:
                _ledger.remove(ledger)
            return ledger

    compute = sum(len(job.attempts) * float(job.seconds.sum()) for job in jobs)
    with silence():
        return virtual.run(main, seed=seed, limit=PATIENCE + PATIENCE_EACH * compute)


class _Replay:
    """Run of the jobs of a trace on a cluster."""

    def __init__(
        self, cluster: virtual.Cluster, policy: str, partition_bytes: int, ledger: Ledger
    ) -> None:
        self.cluster, self.policy, self.ledger = cluster, policy, ledger
        self.partition_bytes = partition_bytes
        self._all = list(cluster.workers)
        self._replacing: list[asyncio.Task[None]] = []

    async def run(self, jobs: Sequence[TraceJob]) -> None:
        await asyncio.gather(*map(self._drive, jobs))
        await asyncio.gather(*self._replacing)
        sent = [worker.transfer_outgoing_bytes_total for worker in self._all]
        self.ledger.bytes_moved = int(sum(sent))
        if plugin := self.cluster.scheduler.plugins.get("slaq"):
            assert plugin.failed is None, plugin.failed
            assert not plugin.pools.left_over(), plugin.pools.left_over()
            assert not plugin.engine.jobs, list(plugin.engine.jobs)

    async def _drive(self, job: TraceJob) -> None:
        """Wait for the arrival of a job, and make its attempts one after the other."""
        await asyncio.sleep(job.arrival)
        for number, attempt in enumerate(job.attempts):
            keys: set[Any] = set()
            async with self.cluster.client() as client:
                try:
                    await self._train(client, job, number, attempt, keys)
                except AttemptFailed:
                    assert attempt.how != "done", f"{job.name} failed without a cause"
                else:
                    assert attempt.how == "done", f"{job.name} did not fail"
                self.ledger.completion[job.name] = self.ledger.now()
            await asyncio.sleep(AGAIN)
            self._check_nothing_left(job.name, client.id, keys)

    async def _train(
        self, client: Client, job: TraceJob, number: int, attempt: Attempt, keys: set[Any]
    ) -> None:
        """Train until the attempt ends. Adds to `keys` those of its tasks when it fails."""
        ledger, opened, name = self.ledger, self.ledger.now(), f"{job.name}.{number}"
        left, kind = len(job.loss) - attempt.begin, {"name": job.curve}
        async with clusters.job_block(
            self.policy, job.name, client, left, kind, gang=True
        ) as block:
            data = load(client, LOAD, name, job.gpus, self.partition_bytes)
            with client.as_current():
                await wait(data)
            for k in range(attempt.begin, len(job.loss)):
                place = Place(job.name, number, k)
                failed = asyncio.get_running_loop().create_future()
                if k == attempt.end:
                    ledger.faults[place] = attempt.how, failed
                # The first iteration waits from the start, since to load takes no time by itself.
                ledger.submitted[place] = opened if k == attempt.begin else ledger.now()
                compute = Compute(partition, partial(_gradient, place), total)
                future = client.compute(iteration(compute, name, k, data, job.seconds[k]))
                try:
                    if k == attempt.end and attempt.how != "task":
                        worker = await failed
                        if attempt.how == "worker":
                            self._replacing.append(asyncio.ensure_future(self._replace(worker)))
                        raise AttemptFailed(f"{attempt.how} of {place}")
                    await future
                except AttemptFailed:
                    keys |= _keys_of(self.cluster.scheduler, client.id)
                    raise
                block.report(float(job.loss[k]))
                ledger.reported[place] = ledger.now()
                self._note_promise(job.name, number, opened)
        if (job.name, number) in ledger.promises:
            promise = ledger.promises[job.name, number]
            ledger.promises[job.name, number] = (*promise[:2], ledger.now())

    async def _replace(self, address: str) -> None:
        """Kill a worker, and start another one some seconds later."""
        dead = [worker for worker in self.cluster.workers if worker.address == address]
        for worker in dead:
            start = self.ledger.now()
            await self.cluster.kill_worker(worker)
            await asyncio.sleep(REPLACED)
            self._all.append(await self.cluster.add_worker())
            self.ledger.down.append((address, start, self.ledger.now()))

    def _note_promise(self, job: str, number: int, opened: float) -> None:
        """Note when an attempt is promised to end, as soon as a fifth of its work is done."""
        plugin = self.cluster.scheduler.plugins.get("slaq")
        if plugin is None or (job, number) in self.ledger.promises or job not in plugin.engine.jobs:
            return
        ends = plugin.engine.end_of(job, monotonic())
        if ends is not None and math.isfinite(ends["before"]):
            promised = self.ledger.now() + ends["before"]
            self.ledger.promises[job, number] = opened, promised, math.nan

    def _check_nothing_left(self, job: str, client: str, keys: set[Any]) -> None:
        """Raise AssertionError if the scheduler keeps anything of an attempt that failed."""
        scheduler = self.cluster.scheduler
        left = [key for key in keys if key in scheduler.tasks]
        assert not left, f"{job}: {left} of its failed attempt are left"
        assert client not in scheduler.clients, f"{job}: the client of its attempt is left"
        if plugin := scheduler.plugins.get("slaq"):
            plugin.pools.check()
            pools = [pool.name for pool in plugin.pools.pools.values() if pool.client == client]
            assert not pools, f"{job}: pools {pools} of its attempt are left"
            known = (plugin.engine.jobs, plugin.jobs.reports, plugin.memory.following)
            assert all(job not in some for some in known), f"{job} runs still"
            assert not keys & plugin.pools.tracker.owner.keys(), f"{job} owns tasks still"


def _keys_of(scheduler: Any, client: str) -> set[Any]:
    """Return the keys of the tasks that a client wants, and of those that they need."""
    found: set[Any] = set()
    ahead = list(scheduler.clients[client].wants_what)
    while ahead:
        ts = ahead.pop()
        if ts.key not in found:
            found.add(ts.key)
            ahead += ts.dependencies
    return found
