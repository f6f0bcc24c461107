"""Copy a task that runs late to another worker, and take the first result: sooner than plain Dask.

Run it with ``python examples/late_tasks.py``. One worker of four is ten times slower. Dask computes
a key once, so a copy has a key of its own. This needs no plugin. Copy only tasks that may run
twice.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

from distributed import Client, LocalCluster, get_worker

#: A task is late after this many times the usual seconds.
LATE = 3.0


def work(number: int) -> int:
    """Compute for 0.05 s, or for ten times as long on the slow worker."""
    time.sleep(0.5 if get_worker().name == 0 else 0.05)
    return number


def map_with_copies(
    client: Client, function: Callable[..., Any], args: Sequence[Any], late: float = LATE
) -> list[Any]:
    """Return the results of a map. Late tasks run twice once half of the results are there."""
    begin, results, copied = time.monotonic(), {}, False
    runs = list(enumerate(client.map(function, args, pure=False)))
    ends: list[float] = []
    while len(results) < len(args):
        time.sleep(0.01)
        for k, future in runs:
            if k not in results and future.done():
                results[k] = future.result()
                ends.append(time.monotonic() - begin)
        is_known = 2 * len(ends) >= len(args)
        if (
            not copied
            and is_known
            and ends
            and time.monotonic() - begin > late * statistics.median(ends)
        ):
            copied = True
            open_ = [k for k in range(len(args)) if k not in results]
            runs += [(k, client.submit(function, args[k], pure=False)) for k in open_]
    return [results[k] for k in range(len(args))]


if __name__ == "__main__":
    shape = {"n_workers": 4, "threads_per_worker": 2, "processes": False}
    with LocalCluster(dashboard_address=None, **shape) as cluster, Client(cluster) as client:
        for name, late in (("plain Dask", float("inf")), ("with copies", LATE)):
            begin = time.monotonic()
            for _ in range(10):
                assert map_with_copies(client, work, range(8), late) == list(range(8))
            print(f"{name}: {time.monotonic() - begin:.1f} s")
