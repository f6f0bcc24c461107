"""A worker is killed half-way: plain ``client.map`` against a search whose models keep states."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from time import sleep
from typing import Any

from distributed import Client, get_worker
from distributed.metrics import time

import dask_slaq as slaq
from dask_slaq.demo.local import LOOK

__all__ = ["run"]

#: Seconds after which a run is given up.
PATIENCE = 600.0
#: Seconds in which the killed worker's process is restarted.
RESTART = 60.0


def train(
    model: Any, one_step: Callable[..., float], copies: int, steps: int, topic: str, keeps: bool
) -> float:
    """Train a `model`, and tell of each step. Returns its last loss."""
    for _ in slaq.steps(steps, model) if keeps else range(steps):
        loss = one_step(model, copies)
        get_worker().log_event(topic, 1)
        if keeps:
            slaq.report(loss)
    return loss


def run(
    client: Client, way: str, models: list[Any], one_step: Callable[..., float], **work: int
) -> dict[str, Any]:
    """Train `models` in a `way`, and kill a worker once half of the steps are made.

    `work` has the ``copies`` and ``steps`` of a model. Returns the seconds until all are ready,
    and the steps that were made more than once.
    """
    print(f"{way:>10}, a worker is killed half-way: {len(models)} models", flush=True)
    topic, made, start = f"killed {way}", [], time()
    client.subscribe_topic(topic, made.append)
    pids = client.run(os.getpid)
    searches = way == "search"
    block: Any = slaq.search("killed", steps=work["steps"], client=client)
    half, total = len(models) * work["steps"] // 2, len(models) * work["steps"]
    with block if searches else nullcontext(), _lost_states_untold():
        futures = client.map(
            train, models, one_step=one_step, topic=topic, keeps=searches, pure=False, **work
        )
        while len(made) < half and time() - start < PATIENCE:
            sleep(LOOK / 5)
        os.kill(next(iter(pids.values())), signal.SIGKILL)
        # A result that went with the worker is ready, then lost, and ready again.
        killed = time()
        while _is_awaited(futures) and time() - killed < PATIENCE:
            sleep(LOOK / 5)
    seconds = time() - start
    client.unsubscribe_topic(topic)
    with suppress(TimeoutError):  # what comes next then runs on fewer, as the table shows
        client.wait_for_workers(len(pids), timeout=RESTART)
    if any(future.status != "finished" for future in futures):
        return {"killed_s": None, "again": None}
    return {"killed_s": seconds, "again": max(len(made) - total, 0)}


@contextmanager
def _lost_states_untold() -> Iterator[None]:
    """Leave out Dask's error about states on the killed worker: their replicas are elsewhere."""

    def is_told(record: logging.LogRecord) -> bool:
        return "slaq-state" not in record.getMessage()

    logger = logging.getLogger("distributed.scheduler")
    logger.addFilter(is_told)
    try:
        yield
    finally:
        logger.removeFilter(is_told)


def _is_awaited(futures: list[Any]) -> bool:
    return any(future.status in ("pending", "lost") for future in futures)
