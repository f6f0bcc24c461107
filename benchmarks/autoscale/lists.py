"""Lists of people who use a cluster for an hour or two, quiet and busy, by name.

Numbers are drawn from the seed, so every way gets the same work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: Threads of a worker.
THREADS = 2


@dataclass(frozen=True)
class Person:
    """One who begins work at a second of the list. `shape` is in `running.SHAPES`."""

    name: str
    start: float
    shape: str
    parameters: dict[str, Any] = field(default_factory=dict)


def _training(name: str, start: float, rng: random.Random) -> Person:
    """Make a training of 7 to 40 minutes on one thread, which can use 12 to 32."""
    parameters = {
        "n": rng.choice([12, 16, 24, 32]),
        "seconds": round(rng.uniform(1.5, 4.0), 2),
        "iterations": rng.randint(20, 40),
        "decay": rng.choice([0.08, 0.15, 0.3]),
        "gap": 0.2,
    }
    return Person(name, start, "training", parameters)


def _batch(name: str, start: float, rng: random.Random) -> Person:
    parameters = {"n": rng.randint(80, 300), "seconds": round(rng.uniform(3.0, 9.0), 2)}
    return Person(name, start, "batch", parameters)


def _search(name: str, start: float, rng: random.Random) -> Person:
    parameters = {"models": rng.choice([12, 16, 24]), "steps": 20, "seconds": 5.0}
    return Person(name, start, "search", parameters)


def _notebook(name: str, start: float, rng: random.Random) -> Person:
    """Make a notebook of cells of 10 to 80 core-seconds, with pauses of half a minute to three."""
    cells = [
        (rng.randint(8, 32), round(rng.uniform(1.0, 2.5), 2), round(rng.uniform(30, 180), 1))
        for _ in range(rng.randint(6, 10))
    ]
    return Person(name, start, "notebook", {"cells": cells})


def _spread(rng: random.Random, count: int, begin: float, end: float) -> list[float]:
    return sorted(round(rng.uniform(begin, end), 1) for _ in range(count))


def _day(rng: random.Random) -> list[Person]:
    """Make a quiet hour's half, a busy one, and a quiet one again, with work of all kinds."""
    quiet, busy = _spread(rng, 4, 0, 2400), _spread(rng, 8, 2400, 3900)
    people = [_training(f"t{i}", at, rng) for i, at in enumerate([*quiet[:2], *busy[:5]])]
    people += [_batch(f"b{i}", at, rng) for i, at in enumerate([quiet[2], *busy[5:7]])]
    people += [_search("s0", quiet[3], rng), _search("s1", busy[7], rng)]
    people += [_notebook(f"n{i}", at, rng) for i, at in enumerate((300.0, 2700.0))]
    return people


def _trainings(rng: random.Random) -> list[Person]:
    return [_training(f"t{i}", at, rng) for i, at in enumerate(_spread(rng, 9, 0, 4500))]


def _notebooks(rng: random.Random) -> list[Person]:
    starts = _spread(rng, 5, 0, 3600)
    return [_notebook(f"n{i}", at, rng) for i, at in enumerate(starts)]


def _batches(rng: random.Random) -> list[Person]:
    people = [_batch(f"b{i}", at, rng) for i, at in enumerate(_spread(rng, 8, 0, 4500))]
    return [*people, *(_search(f"s{i}", at, rng) for i, at in enumerate((600.0, 3000.0)))]


_MAKERS: dict[str, Callable[[random.Random], list[Person]]] = {
    "day": _day,
    "trainings": _trainings,
    "notebooks": _notebooks,
    "batches": _batches,
}
#: The list for a quick look.
QUICK = ("notebooks",)


#: Functions that make the people of a list from a seed.
LISTS: dict[str, Callable[[int], list[Person]]] = {
    name: (lambda seed, name=name: _MAKERS[name](random.Random(f"autoscale-{name}-{seed}")))  # type: ignore[misc]
    for name in _MAKERS
}
