"""Models of searches, with and without states, for tests of what happens to them."""

import threading
import time
from collections.abc import Callable
from typing import ClassVar

from driving import inside, until

import dask_slaq as slaq

STEPS = 24
#: Offset of a model and its step, for each that `train` made, in their order.
RUN: list[tuple[float, int]] = []


def descend(offset: float, steps: int = 30, seconds: float = 0.005) -> float:
    """A model without a state."""
    for k in range(steps):
        time.sleep(seconds)
        slaq.report(offset + 1 / (k + 1))
    return offset


def train(offset: float, steps: int = STEPS, seconds: float = 0.01) -> list[int]:
    """Return the steps that were made, over all runs of the task."""
    step, made = slaq.resume() or (0, [])
    while step < steps:
        time.sleep(seconds)
        step += 1
        made = [*made, step]
        RUN.append((offset, step))
        slaq.report(offset + 1 / step, state=(step, made))
    return made


def killing(killer: int, at: int, states: bool = False) -> Callable[[int], int]:
    """A model to train, which ends its worker in its step `at` if it is the `killer`."""

    def train(number: int) -> int:
        import os
        import time

        import dask_slaq as slaq

        for k in range(slaq.resume() or 0 if states else 0, 20):
            time.sleep(0.02)
            if number == killer and k == at:
                os._exit(1)
            slaq.report(number + 1 / (k + 1), **({"state": k + 1} if states else {}))
        return number

    return train


class AtOnce:
    """Counts how many steps are made at once, in this process."""

    lock = threading.Lock()
    begun: ClassVar[list[int]] = []  # how many there were, at the begin of each
    now = 0

    @classmethod
    def make(cls, seconds: float) -> None:
        with cls.lock:
            cls.now += 1
            cls.begun.append(cls.now)
        time.sleep(seconds)
        with cls.lock:
            cls.now -= 1

    @classmethod
    def forget(cls) -> None:
        cls.now = 0
        cls.begun.clear()


def check(results) -> None:
    """Each model has made each step once."""
    for made in results:
        assert made == list(range(1, STEPS + 1))


def count_kept(search) -> int:
    return sum(trial.checkpoint.reports for trial in search.trials.alive.values())


async def begin(client, plugin, model=train):
    """A search of which some models have states and wait: the plugin's record, and futures."""
    async with slaq.search("grid", client=client, steps=STEPS):
        futures = client.map(model, range(9), pure=False)
    search = inside(plugin).search("grid")
    await until(lambda: sum(bool(t.checkpoint.reports) for t in search.trials.alive.values()) >= 4)
    return search, futures


async def let_some_leave(client, plugin, worker) -> None:
    """Pause the search, and retire a worker: what leaves it goes nowhere."""
    await slaq.pause("grid", client=client)
    await client.retire_workers([worker.address])
    await until(lambda: inside(plugin).migrating)
