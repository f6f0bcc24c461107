"""Lists of participants that share a cluster, by name.

Numbers are drawn from the seed of a list, so every policy gets the same work.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.never_worse.scenarios import Participant, Scenario

#: Kind of work by the first letter of the name of a participant.
KINDS = {
    "t": "training",
    "l": "late report",
    "n": "notebook",
    "b": "batch",
    "c": "chains",
    "r": "reduction",
    "u": "urgent",
    "p": "nested",
    "s": "short blocks",
    "d": "dribble",
}


def _training(name: str, rng: random.Random, start: float = 0.2, **other: Any) -> Participant:
    """Make a training of 15 to 40 iterations, of which the first ones lower its loss most."""
    iterations = rng.randint(15, 40)
    parameters = {
        "n": 16,
        "seconds": round(rng.uniform(0.05, 0.15), 3),
        "iterations": iterations,
        "gap": 0.01,
        "nbytes": 10**6,
        "decay": rng.choice([None, 0.1, 0.2, 0.4]),
        **other,
    }
    announced = {"max_iter": parameters["iterations"]}
    return Participant(name, "job", start, "iterating", parameters, announced=announced)


def _trainings(count: int, rng: random.Random, apart: float = 0.0, **other: Any) -> Any:
    return [_training(f"t{i}", rng, 0.2 + apart * i, **other) for i in range(count)]


def _unannounced(count: int, rng: random.Random, **other: Any) -> list[Participant]:
    """Make trainings that do not say how many iterations they will make."""
    return [replace(each, announced={}) for each in _trainings(count, rng, **other)]


def _batch(name: str, n: int, seconds: float, start: float = 0.2, kind: str = "job") -> Participant:
    return Participant(name, kind, start, "roots", {"n": n, "seconds": seconds})


def _chains(name: str, n: int, length: int, seconds: float, start: float = 0.2) -> Participant:
    parameters = {"n": n, "length": length, "seconds": seconds}
    return Participant(name, "job", start, "chains", parameters)


def _reduction(name: str, n: int, seconds: float, start: float = 0.2) -> Participant:
    parameters = {"n": n, "seconds": seconds, "nbytes": 10**7, "fan": 4, "then": seconds / 4}
    return Participant(name, "job", start, "reduction", parameters)


def _notebook(name: str, kind: str = "stray") -> Participant:
    parameters = {"queries": 5, "n": 40, "seconds": 0.03, "pause": 1.0}
    return Participant(name, kind, 0.7, "asking", parameters)


def _urgent(name: str) -> Participant:
    return Participant(
        name, "stray", 1.0, "priorities", {"n": 40, "seconds": 0.1, "levels": (100,)}
    )


def _nested(name: str) -> Participant:
    return Participant(name, "stray", 0.7, "nested", {"n": 4, "children": 10, "seconds": 0.1})


def _blocks(name: str, count: int) -> Participant:
    """Make a client that opens short job blocks one after the other."""
    return Participant(name, "job", 0.5, "roots", {"n": 6, "seconds": 0.05}, repeat=count)


def _mixed(rng: random.Random) -> list[Participant]:
    """Make 12 jobs of about 20 to 60 core-seconds that arrive within a second."""
    people = []
    for i in range(12):
        start, work = round(rng.uniform(0.2, 1.2), 2), rng.uniform(20.0, 60.0)
        seconds = round(rng.uniform(0.06, 0.16), 3)
        shape = "tbtrtc"[i % 6]
        name = f"{shape}{i}"
        if shape == "t":
            tasks = rng.choice([24, 32])
            iterations = max(int(work / tasks / seconds), 8)
            people.append(
                _training(name, rng, start, n=tasks, seconds=seconds, iterations=iterations)
            )
        elif shape == "b":
            people.append(_batch(name, int(work / seconds), seconds, start))
        elif shape == "r":
            people.append(_reduction(name, int(0.8 * work / seconds), seconds, start))
        else:
            people.append(_chains(name, 4, max(int(work / seconds / 8), 2), seconds, start))
    return people


def _slow_to_report(name: str, rng: random.Random) -> Participant:
    """Make a training that runs 200 tasks of .2 s before its first report."""
    return _training(name, rng, before=200, before_seconds=0.2, iterations=10)


#: What each list has, by name, with its workers' threads.
_MAKERS: dict[str, tuple[list[int], Callable[[random.Random], list[Participant]]]] = {
    "trainings": ([1] * 8, lambda rng: _trainings(6, rng, apart=2.0)),
    "notebook": ([1] * 4, lambda rng: [*_unannounced(5, rng, n=4, iterations=60), _notebook("n")]),
    "notebook-block": ([1] * 4, lambda rng: [*_trainings(5, rng), _notebook("n", "job")]),
    "urgent": ([2] * 4, lambda rng: [*_trainings(3, rng), _batch("b", 200, 0.1), _urgent("u")]),
    "nested": ([2] * 4, lambda rng: [*_trainings(4, rng), _nested("p")]),
    "late": (
        [1] * 8,
        lambda rng: [*_unannounced(4, rng, iterations=50), _slow_to_report("l", rng)],
    ),
    "blocks": (
        [1] * 4,
        lambda rng: [_batch("b", 400, 0.1), *(_blocks(f"s{i}", 50) for i in range(4))],
    ),
    "batches": (
        [1] * 8,
        lambda rng: [*_trainings(3, rng), *(_batch(f"b{n}", n, 0.15) for n in (60, 150, 300))],
    ),
    "chains": (
        [1] * 8,
        lambda rng: [*_trainings(4, rng), _chains("c0", 1, 60, 0.1), _chains("c1", 3, 60, 0.1)],
    ),
    "reductions": (
        [2] * 4,
        lambda rng: [*_trainings(3, rng), *(_reduction(f"r{i}", 80, 0.15) for i in range(3))],
    ),
    "eight-reductions": ([2] * 4, lambda rng: [_reduction(f"r{i}", 64, 0.1) for i in range(8)]),
    "dribble": (
        [1] * 8,
        lambda rng: [
            *_trainings(4, rng),
            Participant("d", "job", 0.5, "one_by_one", {"n": 300, "seconds": 0.1, "gap": 0.01}),
            _batch("b", 300, 0.1, 0.5),
        ],
    ),
    "silent": (
        [1] * 8,
        lambda rng: [
            *(_batch(f"b{n}", n, 0.1) for n in (100, 400)),
            _batch("bs", 150, 0.1, 1.0, "stray"),
            _chains("c", 2, 50, 0.1),
            _reduction("r", 120, 0.1),
            _notebook("n"),
        ],
    ),
    "everything": (
        [2] * 8,
        lambda rng: [
            *_trainings(4, rng, apart=1.0),
            _slow_to_report("l", rng),
            _notebook("n"),
            _batch("b", 300, 0.15),
            _chains("c", 2, 50, 0.1),
            _reduction("r", 150, 0.1),
            _urgent("u"),
            _nested("p"),
            _blocks("s", 30),
        ],
    ),
    **{f"mixed-{k}": ([1] * 16, _mixed) for k in range(1, 14)},
}

#: Ten lists of twelve mixed jobs, which ran when no constant was chosen.
FRESH = tuple(f"mixed-{k}" for k in range(4, 14))

#: Lists that show most, for a quick look.
QUICK = ("notebook", "chains", "late")


def _made(name: str, seed: int) -> Scenario:
    threads, people = _MAKERS[name]
    return Scenario(1, "mixture", threads, people(random.Random(f"mixtures-{name}-{seed}")))


#: Functions that make the scenario of a list from a seed.
LISTS: dict[str, Callable[[int], Scenario]] = {
    name: (lambda seed, name=name: _made(name, seed))  # type: ignore[misc]
    for name in _MAKERS
}
