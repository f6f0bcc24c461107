"""Owners benchmark: shares of two owners with weights 1 and 3, by the kind of their work.

Both owners always want all threads. Steps sleep, on a cluster of one-thread workers in this
process, and count themselves, so the shares do not rely on what the plugin says of itself.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from typing import Any

import click
import dask
from distributed import Client, LocalCluster, as_completed

import dask_slaq as slaq
from benchmarks.common.cluster import another_client, local_cluster, register
from benchmarks.common.results import Names, give, json_option, table

WEIGHTS = {"ann": 1, "bob": 3}
DESERVED = WEIGHTS["bob"] / sum(WEIGHTS.values())
WORKERS, STEP = 8, 0.1
#: Seconds before the measurement starts, in which jobs arrive.
ARRIVAL = 5.0
#: Seconds that each step spent on a worker, by owner.
SPENT: Counter[str] = Counter()
#: Where the tasks of a training wait for each other.
GANGS: dict[tuple[str, int], threading.Barrier] = {}
#: The configuration is that of the process, so clients are made in turn.
_ONE_AT_A_TIME = threading.Lock()


def step(owner: str, steps: int = 1, report: bool = False) -> None:
    """Sleep `steps` times, and count the seconds to `owner`."""
    for k in range(steps):
        begin = time.perf_counter()
        time.sleep(STEP)
        SPENT[owner] += time.perf_counter() - begin
        if report:
            slaq.report(0.9**k)


def elastic(owner: str, client: Client, over: threading.Event) -> None:
    """Train a job that reports after every four tasks per worker, and always has as many more."""
    with slaq.job(f"{owner}-elastic", owner=owner, client=client) as job:
        for k in _always_busy(owner, client, over):
            job.report(0.9**k)


def unowned(owner: str, client: Client, over: threading.Event) -> None:
    """Map outside of any job."""
    for _ in _always_busy(owner, client, over):
        pass


def _always_busy(owner: str, client: Client, over: threading.Event) -> Iterator[int]:
    """Keep eight tasks per worker on the scheduler, and yield after every four per worker."""
    some = 4 * WORKERS
    tasks = as_completed(client.map(step, [owner] * 2 * some, pure=False), loop=client.loop)
    for done, _ in enumerate(tasks):
        if over.is_set():
            return
        tasks.add(client.submit(step, owner, pure=False))
        if done % some == 0:
            yield done // some


def boosting(owner: str, client: Client, over: threading.Event) -> None:
    """Train with one pinned task per worker, which wait for each other, again and again."""
    addresses = list(client.scheduler_info(n_workers=-1)["workers"])
    for k in itertools.count():
        gang = {"slaq_gang": f"{owner}-{k}", "slaq_gang_size": WORKERS}
        with slaq.job(f"{owner}-boosting", owner=owner, client=client), dask.annotate(**gang):
            GANGS[owner, k] = threading.Barrier(WORKERS)
            client.gather(
                [client.submit(together, owner, k, workers=[a], pure=False) for a in addresses]
            )
        if over.is_set():
            return


def together(owner: str, k: int) -> None:
    """Wait for the other tasks of the training, then take ten steps."""
    GANGS[owner, k].wait(60)
    step(owner, 10)


def search(owner: str, client: Client, over: threading.Event) -> None:
    """Search among models of 50 steps."""
    with slaq.search(f"{owner}-search", owner=owner, steps=50, client=client):
        models = client.map(step, [owner] * 400, steps=50, report=True, pure=False)
    over.wait()
    client.cancel(models)


KINDS: dict[str, Callable[[str, Client, threading.Event], None]] = {
    work.__name__: work for work in (elastic, boosting, search, unowned)
}


def measure(ann: list[str], bob: list[str], seconds: float) -> float:
    """Return bob's share of the thread-seconds, from the kinds of both owners' work."""
    over = threading.Event()
    with local_cluster(WORKERS) as (cluster, client):
        register(client, "first-to-target", owners={o: {"weight": w} for o, w in WEIGHTS.items()})
        drivers = [
            threading.Thread(target=_drive, args=(KINDS[kind], owner, cluster, over), daemon=True)
            for owner, kinds in (("ann", ann), ("bob", bob))
            for kind in kinds
        ]
        for driver in drivers:
            driver.start()
        time.sleep(ARRIVAL)
        before = Counter(SPENT)
        time.sleep(seconds)
        spent = {owner: SPENT[owner] - before[owner] for owner in WEIGHTS}
        over.set()
        for driver in drivers:
            driver.join(60)
    return spent["bob"] / sum(spent.values())


def _drive(work: Any, owner: str, cluster: LocalCluster, over: threading.Event) -> None:
    said = {"slaq.owner": owner, "distributed.client.preload": ["dask_slaq"]}
    with _ONE_AT_A_TIME, dask.config.set(said):
        client = another_client(cluster)
    with client, contextlib.suppress(CancelledError):
        work(owner, client, over)


@click.command()
@click.option("--kinds", type=Names("kind", KINDS), default=",".join(KINDS), show_default=True)
@click.option("--seconds", default=60.0, show_default=True, help="Length of each measurement.")
@click.option("--quick", is_flag=True, help="Two seconds of one kind.")
@json_option
def main(kinds: list[str], seconds: float, quick: bool, output: str | None) -> None:
    """Measure the shares of two owners with weights 1 and 3."""
    kinds, seconds = (kinds[:1], 2.0) if quick else (kinds, seconds)
    cases = [([k], ["elastic"]) for k in kinds] + [(["elastic"], [k]) for k in kinds[1:]]
    if len(kinds) > 1:
        cases.append((kinds, kinds))
    found, rows = [], []
    for ann, bob in cases:
        share = measure(ann, bob, seconds)
        found.append({"ann": ann, "bob": bob, "share": share})
        print(ann, bob, f"{share:.3f}", file=sys.stderr, flush=True)
        rows.append(["+".join(ann), "+".join(bob), f"{share:.3f}", f"{share / DESERVED:.3f}"])
    give(found, output, table(["ann (1)", "bob (3)", "bob gets", "of his share"], rows))


if __name__ == "__main__":
    from benchmarks import owners  # so that tasks count in the module, not in a copy of __main__

    owners.main()
