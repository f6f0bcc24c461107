"""Work that reports nothing keeps its fair share alongside a training, which plain Dask denies it.

Run it with ``python examples/non_ml.py``. One job trains and reports; a second maps a plain
function, a third decomposes matrices with dask.array, and both report nothing. The printed shares
are of the threads' time while all three have tasks waiting, under the policy ``none``, which leaves
everything to Dask, and under ``max-total``.
"""

from __future__ import annotations

import threading
import time

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

import dask_slaq as slaq

WINDOW = 3.0  # seconds


def train(client: Client, stop: threading.Event) -> None:
    """A job whose loss falls and falls."""
    loss = 1.0
    with slaq.job("training", client=client) as job:
        while not stop.is_set():
            client.gather(client.map(work, range(8), pure=False))
            loss *= 0.9
            job.report(loss)


def plain_functions(client: Client, stop: threading.Event) -> None:
    """A map of plain functions."""
    with slaq.job("map", client=client):
        while not stop.is_set():
            client.gather(client.map(work, range(8), pure=False))


def singular_values(client: Client, stop: threading.Event) -> None:
    """Singular value decompositions with dask.array."""
    x = da.random.default_rng(0).standard_normal((60_000, 100), chunks=(5_000, 100))
    with slaq.job("svd", client=client):
        while not stop.is_set():
            client.gather(client.compute([da.linalg.svd(x + i)[1] for i in range(2)]))


def work(i: int) -> float:
    """Some twenty milliseconds of one thread."""
    until = time.thread_time() + 0.02
    while time.thread_time() < until:
        value = float(np.linalg.norm(np.random.default_rng(i).random((60, 60)) @ np.ones(60)))
    return value


def attained(client: Client) -> dict[str, float]:
    """Core-seconds of each job so far."""
    return {name: job["attained"] for name, job in slaq.status(client)["jobs"].items()}


def main() -> None:
    for policy, way in (("none", "plain Dask"), ("max-total", "jobs")):
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster,
            Client(cluster) as client,
        ):
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="100ms"))
            stop = threading.Event()
            people = [
                threading.Thread(target=target, args=(client, stop))
                for target in (train, plain_functions, singular_values)
            ]
            for person in people:
                person.start()
            while len(before := attained(client)) < len(people):
                time.sleep(0.05)
            time.sleep(WINDOW)
            used = {name: seconds - before[name] for name, seconds in attained(client).items()}
            stop.set()
            for person in people:
                person.join()
            shares = {name: seconds / sum(used.values()) for name, seconds in used.items()}
            print(f"{way}:", ", ".join(f"{name} {shares[name]:.0%}" for name in sorted(shares)))


if __name__ == "__main__":
    main()
