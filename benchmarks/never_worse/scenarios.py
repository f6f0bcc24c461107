"""Random scenarios: a cluster, its participants, their work, and events while they compute."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from benchmarks.never_worse.shapes import DRAWN, draw

#: Families of scenarios with their relative frequencies.
FAMILIES = {"alone": 3, "shared": 6, "newcomers": 4, "steady": 4, "paused": 1, "loads": 1}


@dataclass
class Participant:
    """One client that computes, from some virtual seconds after the start of the run.

    Kinds: tasks in a job block ("job"), unowned tasks ("stray"), a single unowned task
    ("newcomer"), a job block without tasks ("idle"). One that leaves early leaves its block while
    tasks are in flight. Its job is `announced` with further arguments of `slaq.job`, by default
    its iterations. One that does its work more than once opens a block for each `repeat`.
    """

    name: str
    kind: str
    start: float
    shape: str = "roots"
    parameters: dict[str, Any] = field(default_factory=dict)
    early: bool = False
    announced: dict[str, Any] | None = None
    repeat: int = 1


@dataclass
class Event:
    """Event at a virtual second: the job of the first participant is paused, or goes on."""

    kind: str  # job_pauses or job_resumes
    at: float


@dataclass
class Scenario:
    """A family of `FAMILIES`, the threads of each worker, participants and events."""

    seed: int
    family: str
    threads: list[int]
    participants: list[Participant]
    events: list[Event] = field(default_factory=list)


def make_scenario(seed: int) -> Scenario:
    """Make the scenario of a seed."""
    rng = random.Random(f"never-worse-{seed}")
    family = rng.choices(list(FAMILIES), list(FAMILIES.values()))[0]
    threads = rng.choice([[1] * 4, [2, 2], [4], [1] * 8, [2] * 4, [1, 2, 3], [8, 1]])
    return _MAKERS[family](seed, rng, threads)


def _participant(
    name: str, rng: random.Random, total: int, start: float, seconds: float, kind: str = "job"
) -> Participant:
    """Draw a participant that would keep the whole cluster busy for the given seconds."""
    shape = rng.choice(list(DRAWN))
    early = kind == "job" and shape in ("roots", "reduction", "chains") and rng.random() < 0.15
    parameters = draw(shape, rng, total, seconds * total)
    return Participant(name, kind, start, shape, parameters, early)


def _alone(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    job = _participant("a", rng, sum(threads), 0.5, rng.uniform(0.5, 2))
    others = [Participant("idle", "idle", 0.2)] if rng.random() < 0.5 else []
    return Scenario(seed, "alone", threads, [job, *others])


def _shared(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    total = sum(threads)
    count = rng.choice([2, 2, 3, 4])
    people = [
        _participant(
            "abcd"[i],
            rng,
            total,
            round(rng.uniform(0.2, 2.0), 3),
            rng.uniform(0.4, 1.3),
            "stray" if rng.random() < 0.25 else "job",
        )
        for i in range(count)
    ]
    return Scenario(seed, "shared", threads, people)


def _newcomers(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    scenario = _shared(seed, rng, threads)
    scenario.family = "newcomers"
    for i in range(3):
        single = {"n": 1, "seconds": round(rng.uniform(0.005, 0.1), 3)}
        start = round(rng.uniform(0.5, 4.0), 3)
        scenario.participants.append(Participant(f"n{i}", "newcomer", start, "roots", single))
    return scenario


def _steady(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    threads = rng.choice([[1] * 4, [2, 2], [4], [1, 2], [3]])
    total = sum(threads)
    people = []
    for i in range(rng.choice([2, 2, 3])):
        seconds = round(10 ** rng.uniform(-1.7, -0.4), 3)
        if rng.random() < 0.5:
            iterations = max(int(7 * total / seconds / (4 * total)), 4)
            parameters = {
                "n": 4 * total,
                "seconds": seconds,
                "iterations": iterations,
                "gap": 0.005,
            }
            people.append(Participant("abc"[i], "job", 0.2, "iterating", parameters))
        else:
            parameters = {"n": int(7 * total / seconds), "seconds": seconds}
            people.append(Participant("abc"[i], "job", 0.2, "roots", parameters))
    return Scenario(seed, "steady", threads, people)


def _paused(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    """Draw jobs that share keys, the first of which is paused for a while."""
    total = sum(threads)
    people = []
    for i in range(rng.choice([2, 2, 3])):
        parameters = draw("shared_keys", rng, total, rng.uniform(1, 3) * total)
        people.append(
            Participant("abc"[i], "job", round(0.2 + 0.2 * i, 3), "shared_keys", parameters)
        )
    at = round(rng.uniform(0.3, 1.5), 3)
    events = [Event("job_pauses", at), Event("job_resumes", at + 10.0)]
    return Scenario(seed, "paused", threads, people, events)


def _loads(seed: int, rng: random.Random, threads: list[int]) -> Scenario:
    """Draw many jobs that load large data and reduce it."""
    total, count = sum(threads), rng.choice([4, 6, 8])
    people = []
    for i in range(count):
        parameters = draw("reduction", rng, total, rng.uniform(0.5, 1) * total)
        parameters |= {"nbytes": 5 * 10**7, "then": rng.choice([0.002, 0.05])}
        parameters["mapped"] = rng.choice([0.0, 0.05])
        people.append(Participant("abcdefgh"[i], "job", 0.2, "reduction", parameters))
    return Scenario(seed, "loads", threads, people)


_MAKERS = {
    "alone": _alone,
    "shared": _shared,
    "newcomers": _newcomers,
    "steady": _steady,
    "paused": _paused,
    "loads": _loads,
}
