"""``python -m benchmarks.memory_crashes``: kill a scheduler while runs end, and look at its store.

Each round starts a scheduler process on the same store, ends jobs as fast as it can, kills the
process (SIGKILL) at a random moment, and checks that the store opens, is sound, and has every run
that the scheduler said is safe. Then the size of a full store and its opening time are measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import click
import numpy as np

from benchmarks.common.results import give, json_option
from dask_slaq.core.memory import Kind, PastRun
from dask_slaq.memory import MEMORY_TOPIC, RunStore, StoreError, read_runs

#: Jobs that run at once, and iterations of each.
AT_ONCE, ITERATIONS = 4, 12
#: Longest time in seconds from the first job to the kill, and for anything else to happen.
LONGEST, PATIENCE = 0.7, 60.0
#: Runs that are queued at once when a store is filled.
QUEUED = 5_000


@dataclass
class Crashes:
    """What was found in all rounds."""

    kills: int = 0
    acknowledged: int = 0
    stored: int = 0
    lost: list[str] = field(default_factory=list)
    unusable: list[str] = field(default_factory=list)


def crash(folder: Path, kills: int, seed: int = 0) -> Crashes:
    """Kill a scheduler several times at random moments while runs end; its store is in a folder."""
    found, rng, path = Crashes(), random.Random(seed), folder / "runs.db"
    known: set[str] = set()
    for number in range(kills):
        with _quiet():
            known |= asyncio.run(_one_round(path, number, rng.uniform(0.0, LONGEST)))
        found.kills += 1
        _look(path, known, found)
    found.acknowledged = len(known)
    return found


async def _one_round(path: Path, number: int, lasts: float) -> set[str]:
    """Return the jobs whose runs are safe, as the scheduler said before it was killed."""
    from distributed import Client

    safe: set[str] = set()
    with _scheduler(path) as (process, file):
        client = Client(
            scheduler_file=file, asynchronous=True, set_as_default=False, timeout=PATIENCE
        )
        await asyncio.wait_for(client, PATIENCE)
        client.subscribe_topic(MEMORY_TOPIC, lambda event: safe.add(event[1]["job"]))
        drivers = [asyncio.ensure_future(_drive(client, f"{number}.{n}")) for n in range(AT_ONCE)]
        await asyncio.sleep(lasts)
        process.kill()
        process.wait()
        for _ in range(2):  # the end of a job block waits for its scheduler, unless cancelled too
            for driver in drivers:
                driver.cancel()
            await asyncio.wait(drivers, timeout=0.1)
        with contextlib.suppress(Exception):
            await asyncio.wait_for(client.close(timeout=0.5), 2)
    return safe


async def _drive(client: Any, name: str) -> None:
    """End one job after another."""
    import dask_slaq as slaq

    number = 0
    while True:
        number += 1
        kind = {"name": f"kind-{number % 5}", "C": 0.1 * number}
        async with slaq.job(f"{name}.{number}", client=client, kind=kind) as job:
            for k in range(ITERATIONS):
                job.report(0.5**k)


@contextmanager
def _scheduler(path: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """Start a scheduler process. Yields it, and the file that tells its address."""
    file = path.with_name("scheduler.json")
    file.unlink(missing_ok=True)
    options = ["--no-dashboard", "--port", "0", "--host", "127.0.0.1", "--scheduler-file", file]
    slaq = ["--preload", "dask_slaq", "--memory", path]
    with open(path.with_name("scheduler.log"), "ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "dask", "scheduler", *options, *slaq], stdout=log, stderr=log
        )
        try:
            yield process, str(file)
        finally:
            process.kill()
            process.wait()


def _look(path: Path, known: set[str], found: Crashes) -> None:
    """Open a store as its next scheduler will, and compare it with the runs known to be safe."""
    try:
        runs = {run.job for run in read_runs(path)} if path.exists() else set()
        if path.exists():
            with closing(sqlite3.connect(path)) as connection:
                (said,) = connection.execute("PRAGMA integrity_check").fetchone()
            if said != "ok":
                found.unusable.append(f"after kill {found.kills}: {said}")
    except (StoreError, sqlite3.Error) as error:
        found.unusable.append(f"after kill {found.kills}: {error}")
        return
    if aside := list(path.parent.glob(f"{path.name}.aside-*")):
        found.unusable.append(f"after kill {found.kills}: set aside as {aside[0].name}")
    found.stored = len(runs)
    found.lost += sorted(known - runs)


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence what clients log of a scheduler that is gone."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def fill(path: Path, runs: int, seed: int = 0) -> dict[str, Any]:
    """Fill a new store, and measure it.

    Returns ``runs``, ``megabytes``, and in seconds: ``write_s`` (all runs), ``open_s`` (a new
    process would be ready to write), ``load_s`` (the newest runs of one kind).
    """
    rng = np.random.default_rng(seed)
    at = np.unique(np.geomspace(1, 2000, 80).astype(int))[:64]
    store, begin = RunStore(path), time.perf_counter()
    for number in range(runs):
        numbers = {"rows": 5.0, "columns": 2.0, "chunks": 1.0, "lamduh": float(rng.normal())}
        kind = Kind(f"dask_glm.admm/Logistic/l2/{number % 100}", tuple(sorted(numbers.items())))
        loss = rng.random(len(at))
        run = PastRun(
            f"logreg-C0.1-{number}", kind, at, loss, 2000, work=3.0, tasks=8.0, ended=begin
        )
        store.add(f"{number:032x}", run)
        if number % QUEUED == QUEUED - 1:
            store.flush(PATIENCE)
    store.flush(PATIENCE)
    wrote = time.perf_counter() - begin
    store.close()
    begin = time.perf_counter()
    again = RunStore(path)
    again.flush(PATIENCE)
    opened = time.perf_counter() - begin
    begin = time.perf_counter()
    again.load("dask_glm.admm/Logistic/l2/7", 64)
    loaded = time.perf_counter() - begin
    again.close()
    size = os.path.getsize(path) / 1e6
    return {
        "runs": store.stored, "megabytes": size, "write_s": wrote, "open_s": opened,
        "load_s": loaded,
    }  # fmt: skip


@click.command()
@click.option("--kills", default=100, show_default=True, type=click.IntRange(1))
@click.option("--runs", default=100_000, show_default=True, help="Runs of the full store.")
@click.option("--seed", default=0, show_default=True)
@click.option("--quick", is_flag=True, help="3 kills and 1,000 runs.")
@json_option
def main(kills: int, runs: int, seed: int, quick: bool, output: str | None) -> None:
    """Kill a scheduler while runs end, look at its store, and measure a full store."""
    if quick:
        kills, runs = 3, 1_000
    with tempfile.TemporaryDirectory() as folder:
        found = crash(Path(folder), kills, seed)
        full = fill(Path(folder, "full.db"), runs, seed)
    lines = [
        f"{found.kills} kills; {found.acknowledged} runs were said to be safe, "
        f"{len(found.lost)} of them are lost; the store has {found.stored}",
        f"it could not be used {len(found.unusable)} times",
        f"{full['runs']} runs: {full['megabytes']:.0f} MB, opened in {1e3 * full['open_s']:.0f} ms,"
        f" the newest runs of a kind read in {1e3 * full['load_s']:.0f} ms,"
        f" {full['runs'] / full['write_s']:.0f} runs written a second",
        *found.lost[:20],
        *found.unusable[:20],
    ]
    give({**asdict(found), "full": full}, output, "\n".join(lines))
    sys.exit(bool(found.lost or found.unusable))


if __name__ == "__main__":
    main()
