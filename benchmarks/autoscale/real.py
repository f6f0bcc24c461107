"""A day of a few minutes on an adaptive `LocalCluster` with real processes.

Two trainings, a search, a batch and a person's cells with pauses. Tasks wait and compute nothing,
so any machine can have the workers. Counted are worker-hours, starts, results that are missing or
wrong, and results that were computed more than once.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from distributed import Client, LocalCluster, SchedulerPlugin

__all__ = ["run_real"]

#: Threads of a worker, most workers, and seconds until one computes, as far as is known before.
THREADS, MAXIMUM, START_UP = 2, 6, 4.0


class Results(SchedulerPlugin):
    """Counts on the scheduler how often each result was computed."""

    def __init__(self) -> None:
        self.computed: Counter[str] = Counter()
        self.erred: set[str] = set()
        self.removed: list[str] = []

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Count a result, or an error."""
        if (start, finish) == ("processing", "memory"):
            self.computed[str(key)] += 1
        elif finish == "erred":
            self.erred.add(str(key))

    def remove_worker(self, scheduler: Any, worker: str, **kwargs: Any) -> None:
        """Note a worker that is gone."""
        self.removed.append(worker)


def run_real(kind: str, minutes: float, seed: int = 0) -> dict[str, Any]:
    """Run the day on Dask's own ``"adaptive"`` number of workers, or by ``"worth"``."""
    import dask_slaq as slaq

    terms = {"price": 0.10, "maximum": MAXIMUM, "start-up": START_UP, "stay": 20.0}
    given = {"scaling": terms} if kind == "worth" else {}
    results = Results()
    with (
        LocalCluster(
            n_workers=0, threads_per_worker=THREADS, processes=True, dashboard_address=None
        ) as cluster,
        Client(cluster) as client,
        _Account(cluster) as account,
    ):
        scheduler = cluster.scheduler
        client.register_plugin(slaq.SlaqPlugin(**given))
        cluster.loop.add_callback(scheduler.add_plugin, results)
        cluster.adapt(minimum=0, maximum=MAXIMUM, interval="1s")
        took, wrong = _people(cluster.scheduler_address, minutes, seed)
        plugin = scheduler.plugins["slaq"]
        failed, gone = plugin.failed or plugin.scaling.failed, len(results.removed)
    twice = {key: n for key, n in results.computed.items() if n > 1}
    return {
        "worker_hours": account.worker_seconds / 3600,
        "starts": account.starts,
        "most": account.most,
        "given_back": gone,
        "completion_mean_s": sum(took.values()) / len(took),
        "took_s": took,
        "results": len(results.computed),
        "computed_twice": len(twice),
        "twice": dict(sorted(twice.items())[:20]),
        "erred": len(results.erred),
        "wrong": wrong,
        "failed": None if not failed else str(failed),
    }


class _Account:
    """Worker-seconds of a cluster, from the request of each worker until it is given back."""

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster, self._ended = cluster, threading.Event()
        self.worker_seconds, self.starts, self.most = 0.0, 0, 0
        self._thread = threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> _Account:
        self._thread.start()
        return self

    def __exit__(self, *args: object) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        seen: set[Any] = set()
        last = time.monotonic()
        while not self._ended.wait(0.05):
            plan, now = set(self._cluster.worker_spec), time.monotonic()
            self.worker_seconds += len(plan) * (now - last)
            self.starts, self.most = self.starts + len(plan - seen), max(self.most, len(plan))
            seen, last = seen | plan, now


def _people(address: str, minutes: float, seed: int) -> tuple[dict[str, float], list[str]]:
    """Let everybody work. Returns the seconds that each waited, and whose results are not right."""
    rng, day = random.Random(f"real-{seed}"), 60.0 * minutes
    took: dict[str, float] = {}
    wrong: list[str] = []

    def person(name: str, start: float, work: Callable[..., float], *given: Any) -> None:
        time.sleep(start)
        begin = time.monotonic()
        try:
            with Client(address, set_as_default=False, name=name) as client:
                thought = work(client, name, *given)
        except Exception as error:
            wrong.append(f"{name}: {type(error).__name__}: {error}")
            thought = 0.0
        took[name] = time.monotonic() - begin - thought

    pauses = [rng.uniform(0.02, 0.12) * day for _ in range(8)]
    plan: list[tuple[str, float, Callable[..., float], Any]] = [
        ("first", 0.02 * day, _training, 30),
        ("second", 0.40 * day, _training, 25),
        ("grid", 0.20 * day, _search, 8),
        ("batch", 0.55 * day, _batch, 80),
        ("cells", 0.05 * day, _cells, pauses),
    ]
    threads = [
        threading.Thread(target=person, args=(name, at, work, given))
        for name, at, work, given in plan
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return took, wrong


def _wait(number: float, seconds: float) -> float:
    time.sleep(seconds)
    return number


def _part(number: int) -> bytes:
    time.sleep(0.3)
    return bytes([number % 256]) * 10**6


def _gradient(part: bytes, seconds: float) -> int:
    time.sleep(seconds)
    return part[0]


def _training(client: Client, name: str, iterations: int) -> float:
    import dask_slaq as slaq

    with slaq.job(name, max_iter=iterations, client=client) as job:
        data = client.map(_part, range(12), key=f"{name}-part", pure=False)
        for k in range(iterations):
            parts = client.map(_gradient, data, seconds=1.0, key=f"{name}-{k}", pure=False)
            total = client.submit(sum, parts, key=f"{name}-sum-{k}", pure=False).result()
            assert total == sum(range(12)), total
            job.report(math.exp(-0.1 * k))
            time.sleep(0.2)
    return 0.0


def _model(number: int) -> int:
    import dask_slaq as slaq

    for step in range(15):
        time.sleep(1.0)
        slaq.report(number + math.exp(-0.2 * step))
    return number


def _search(client: Client, name: str, models: int) -> float:
    import dask_slaq as slaq

    with slaq.search(name, steps=15, client=client):
        futures = client.map(_model, range(models), key=name, pure=False)
        assert client.gather(futures) == list(range(models))
    return 0.0


def _batch(client: Client, name: str, tasks: int) -> float:
    import dask_slaq as slaq

    with slaq.job(name, client=client):
        futures = client.map(_wait, range(tasks), seconds=2.0, key=name, pure=False)
        assert client.gather(futures) == list(range(tasks))
    return 0.0


def _cells(client: Client, name: str, pauses: list[float]) -> float:
    import dask_slaq as slaq

    kept = []  # what the person has in memory
    for k, pause in enumerate(pauses):
        with slaq.job(f"{name}-{k}", client=client):
            futures = client.map(_wait, range(8), seconds=1.0, key=f"{name}-{k}", pure=False)
            kept.append(client.submit(_part, k, key=f"{name}-kept-{k}", pure=False))
            assert client.gather(futures) == list(range(8))
        time.sleep(pause)
    assert [part[0] for part in client.gather(kept)] == list(range(len(pauses)))
    return sum(pauses)
