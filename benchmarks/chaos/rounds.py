"""Random rounds: participants, their work, and the faults that occur meanwhile."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from benchmarks.never_worse.shapes import draw

#: Shapes whose results depend only on their parameters, whatever happens to workers.
SHAPES = (
    "roots", "reduction", "load_process", "chains", "stencil", "one_by_one", "iterating",
    "straggler", "longer_than_before", "priorities", "one_input",
)  # fmt: skip
FAULTS_PER_ROUND = 20
#: Kinds of faults with their relative frequencies.
KINDS = {
    "worker_dies": 3, "worker_pauses": 2, "worker_retires": 2, "worker_comes": 1,
    "model_kills_worker": 1,
    "client_closes": 1, "client_loses_connection": 1, "client_suspended": 2,
    "restart": 0.5, "cancel": 2, "release": 2, "retry": 2,
    "part_raises": 3, "entry_raises": 2,
    "loop_stalls": 2,
    "report_stray": 2, "report_malformed": 1, "hostile_client": 2,
    "plugin_registered_twice": 1, "second_plugin": 1, "plugin_unregistered": 0.7,
    "seam_overridden": 2,
}  # fmt: skip


@dataclass
class Person:
    """Client that computes one thing after another, each in a job block of its own.

    A stray one computes unowned tasks, outside of job blocks. A thing is a shape and its
    parameters.
    """

    name: str
    start: float
    stray: bool
    things: list[tuple[str, dict[str, Any]]]


@dataclass
class Fault:
    """Fault of a kind in `KINDS`, at some virtual seconds after the start of the round.

    The random number selects the victim and the variant.
    """

    kind: str
    at: float
    number: int


@dataclass
class Round:
    """Participants and faults of a round, and the settings of its plugin."""

    seed: int
    policy: str
    lend: bool
    threads: list[int]
    people: list[Person]
    faults: list[Fault] = field(default_factory=list)


def make_round(seed: int, faults: int = FAULTS_PER_ROUND) -> Round:
    """Make the round of a seed with the given number of faults."""
    rng = random.Random(f"chaos-{seed}")
    threads = rng.choice([[1] * 4, [2, 2, 2], [4, 1], [1, 2, 3], [2] * 4])
    total = sum(threads)
    people = [
        Person(
            "abcd"[i],
            round(rng.uniform(0.1, 1.0), 3),
            rng.random() < 0.2,
            [_thing(rng, total) for _ in range(rng.choice([2, 3]))],
        )
        for i in range(rng.choice([2, 3, 4]))
    ]
    policy = rng.choice(["fair", "max-total", "first-to-target"])
    made = Round(seed, policy, rng.random() < 0.8, threads, people)
    kinds, weights = list(KINDS), list(KINDS.values())
    made.faults = sorted(
        (
            Fault(kind, round(rng.uniform(0.2, 5.0), 4), rng.randrange(10**6))
            for kind in rng.choices(kinds, weights, k=faults)
        ),
        key=lambda fault: fault.at,
    )
    return made


def _thing(rng: random.Random, total: int) -> tuple[str, dict[str, Any]]:
    shape = rng.choice(SHAPES)
    parameters = draw(shape, rng, total, rng.uniform(0.3, 0.8) * total)
    if shape == "one_input":
        parameters["everywhere"] = False  # `replicate` raises if a worker dies meanwhile
    return shape, parameters
