"""Means of large tables, from samples that grow: seconds to 1 % as jobs and under plain Dask.

Run it with ``python examples/sampling_aggregation.py``. Two queries read partitions in random
order, a few in each iteration, until the mean of a column is known to 1 %. Each reports how far it
may be off: half the width of the 95 % confidence interval, relative to the mean. The scheduler
gives threads to the query that gets there first. The wide table varies more, and takes more.
"""

from __future__ import annotations

import math
import threading
from time import sleep, time

import numpy as np
from distributed import Client, LocalCluster
from scipy import stats

import dask_slaq as slaq

SMALL = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
PARTITIONS, ROWS, BATCH = 200, 5_000, 8
WANTED = 0.01
MEAN = 3.0
TABLES = (("narrow", 0.0025), ("wide", 0.02))


def partition(spread: float, number: int) -> np.ndarray:
    """One partition of a table, as if it were read; partitions differ from each other."""
    random = np.random.default_rng(number)
    return random.gamma(2.0, MEAN / 2, size=ROWS) * random.gamma(1 / spread, spread)


def mean_of(spread: float, number: int) -> float:
    sleep(0.03)
    return float(partition(spread, number).mean())


def interval(means: list[float]) -> tuple[float, float]:
    """Mean, and half the width of its 95 % confidence interval, of a sample of the partitions."""
    n = len(means)
    unseen = 1 - n / PARTITIONS
    error = math.sqrt(unseen * np.var(means, ddof=1) / n)
    return float(np.mean(means)), float(stats.t.ppf(0.975, n - 1)) * error


def query(client: Client, name: str, spread: float, said: dict[str, str]) -> None:
    """Aggregate one table as one job."""
    begin = time()
    order = np.random.default_rng(0).permutation(PARTITIONS)
    means: list[float] = []
    with slaq.job(name, client=client) as job:
        for start in range(0, PARTITIONS, BATCH):
            tasks = [
                client.submit(mean_of, spread, int(k), pure=False)
                for k in order[start : start + BATCH]
            ]
            means += client.gather(tasks)
            mean, half = interval(means)
            job.report(half / mean)
            if half <= WANTED * mean:
                break
    said[name] = (
        f"{name}: {mean:.3f} +- {half:.3f} from {len(means)} of {PARTITIONS} partitions "
        f"after {time() - begin:.1f} s"
    )


def main() -> None:
    for policy, way in (("none", "plain Dask"), ("first-to-target", "jobs")):
        with LocalCluster(**SMALL) as cluster, Client(cluster) as client:
            client.register_plugin(slaq.SlaqPlugin(policy=policy, epoch="100ms"))
            said: dict[str, str] = {}
            queries = [
                threading.Thread(target=query, args=(client, name, spread, said))
                for name, spread in TABLES
            ]
            for one in queries:
                one.start()
            for one in queries:
                one.join()
            print(f"{way}: {said['narrow']}; {said['wide']}")
    for name, spread in TABLES:
        true = np.mean([partition(spread, k).mean() for k in range(PARTITIONS)])
        print(f"{name}, all partitions: {true:.3f}")


if __name__ == "__main__":
    main()
