"""Faults of real worker processes in real time: SIGKILL, and SIGSTOP for a while."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

import dask

from benchmarks.chaos.outcome import Outcome, replay_log, silence, watch
from benchmarks.chaos.running import CONFIG
from benchmarks.chaos.verdict import Verdict

__all__ = ["run_real"]

#: Kinds of faults with their relative frequencies.
KINDS = {"sigkill": 1, "sigstop": 2}
WORKERS, THREADS = 3, 2
#: Maximum seconds between faults, and maximum seconds that a worker is stopped.
BETWEEN, STOPPED = 0.6, 1.0
#: Seconds after which a result counts as lost.
PATIENCE = 120.0
JOBS = ("a", "b", "c")
#: Models of each search alongside, and steps of each.
MODELS, STEPS = 6, 12


def run_real(faults: int, seed: int) -> Verdict:
    """Run jobs on worker processes while faults occur, and judge the results."""
    verdict, outcome = Verdict(seed), Outcome()
    with silence(), watch(outcome), tempfile.TemporaryDirectory() as directory:
        log = str(Path(directory) / "slaq.jsonl")
        with dask.config.set(CONFIG):
            asyncio.run(_run(faults, random.Random(f"real-{seed}"), log, verdict))
        replay_log(log, outcome)
    verdict.invariants_broken += outcome.broken
    verdict.notes += outcome.notes
    return verdict


async def _run(faults: int, rng: random.Random, log: str, verdict: Verdict) -> None:
    from distributed import Client, LocalCluster

    import dask_slaq as slaq

    over = asyncio.Event()
    async with (
        LocalCluster(
            n_workers=WORKERS, threads_per_worker=THREADS, processes=True, asynchronous=True,
            dashboard_address=None, silence_logs=logging.CRITICAL,
        ) as cluster,
        Client(cluster, asynchronous=True, set_as_default=False) as client,
    ):  # fmt: skip
        await client.register_plugin(slaq.SlaqPlugin("fair", epoch="200ms", log=log))
        drivers = [asyncio.ensure_future(_drive(name, client, over, verdict)) for name in JOBS]
        drivers.append(asyncio.ensure_future(_search(client, over, verdict)))
        for _ in range(faults):
            await asyncio.sleep(rng.uniform(0.1, BETWEEN))
            await _let_happen(cluster, rng, verdict)
        over.set()
        await asyncio.gather(*drivers)
        await _wait_for_nothing(cluster.scheduler)
        plugin = cluster.scheduler.plugins["slaq"]
        verdict.left_over += [f"task {ts}" for ts in cluster.scheduler.tasks.values()]
        verdict.left_over += plugin.pools.left_over()
        if not plugin.failed:
            plugin.pools.check()
        await plugin.close()


async def _wait_for_nothing(scheduler: Any) -> None:
    """Wait until released tasks are forgotten and the grace periods of jobs have ended."""
    for _ in range(50):
        await asyncio.sleep(0.1)
        if not scheduler.tasks:
            break
    await asyncio.sleep(1.5)


async def _let_happen(cluster: Any, rng: random.Random, verdict: Verdict) -> None:
    """Kill or stop the process of a running worker."""
    kind = rng.choices(list(KINDS), list(KINDS.values()))[0]
    while not (pids := _pids(cluster)):
        cluster.scale(WORKERS)  # a nanny gives up if its worker dies while starting
        await asyncio.sleep(0.1)
    pid = rng.choice(pids)
    try:
        if kind == "sigkill":
            os.kill(pid, signal.SIGKILL)
        else:
            os.kill(pid, signal.SIGSTOP)
            asyncio.get_running_loop().call_later(rng.uniform(0.05, STOPPED), _goes_on, pid)
    except ProcessLookupError:
        return
    verdict.faults[kind] += 1


def _pids(cluster: Any) -> list[int]:
    """Return the process ids of the workers that are registered on the scheduler."""
    known = cluster.scheduler.workers
    nannies = [nanny for _, nanny in sorted(cluster.workers.items())]
    return [nanny.pid for nanny in nannies if nanny.pid and nanny.worker_address in known]


def _goes_on(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


async def _drive(name: str, client: Any, over: asyncio.Event, verdict: Verdict) -> None:
    """Compute one sum after another, in job blocks of five iterations each."""
    import dask_slaq as slaq

    block = 0
    while not over.is_set():
        block += 1
        async with slaq.job(f"{name}-{block}", client=client) as job:
            for k in range(5):
                numbers = [(block * 7919 + k * 131 + i * 17) % 1000 for i in range(12)]
                try:
                    found = await asyncio.wait_for(_total(client, numbers), PATIENCE)
                except Exception as error:
                    verdict.lost.append(f"{name}-{block}, iteration {k}: {error!r}")
                    return
                verdict.compared += 1
                if found != sum(2 * n for n in numbers):
                    verdict.different.append(f"{name}-{block}, iteration {k}: {found}")
                job.report(1.0 / (k + 1))


async def _search(client: Any, over: asyncio.Event, verdict: Verdict) -> None:
    """Run one search after another, of models with states, that make each of their steps once."""
    import dask_slaq as slaq

    block = 0
    while not over.is_set():
        block += 1
        async with slaq.search(f"models-{block}", steps=STEPS, client=client):
            models = client.map(_train, range(MODELS), pure=False)
        try:
            found = await asyncio.wait_for(client.gather(models), PATIENCE)
        except Exception as error:
            verdict.lost.append(f"models-{block}: {error!r}")
            return
        verdict.compared += 1
        if found != [list(range(STEPS))] * MODELS:
            verdict.different.append(f"models-{block}: {found}")


def _train(number: int) -> list[int]:
    import dask_slaq as slaq

    made: list[int] = slaq.resume() or []
    while len(made) < STEPS:
        time.sleep(0.02)
        made = [*made, len(made)]
        slaq.report(number + 1 / len(made), state=made)
    return made


async def _total(client: Any, numbers: list[int]) -> int:
    parts = client.map(_double, numbers, pure=False)
    total: int = await client.submit(sum, parts, pure=False)
    return total


def _double(number: int) -> int:
    time.sleep(0.02 + number % 7 / 100)
    return 2 * number
