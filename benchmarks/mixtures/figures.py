"""Figures of one run of a list, and their ratios to plain Dask."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.mixtures.lists import KINDS, LISTS
from benchmarks.never_worse.running import Outcome, run
from benchmarks.never_worse.scenarios import Participant, Scenario

#: Bytes per second that a worker sends.
BANDWIDTH = 1e9
#: Slowdown above which a participant counts as one that lost.
LOST = 1.2


def figures(scenario: Scenario, outcome: Outcome) -> dict[str, Any]:
    """Return the seconds of each participant and those to 90 % of each training, and the bytes.

    Seconds in which a notebook's user thinks do not count. Infinite for what failed.
    """
    took = {}
    for person in scenario.participants:
        name = person.name
        failed = isinstance(outcome.results.get(name, ""), str)
        seconds = math.inf if failed else outcome.ended[name] - outcome.started[name]
        took[name] = seconds - _thinks(person)
    return {
        "took": took,
        "t90": outcome.t90(),
        "makespan": outcome.makespan,
        "bytes": float(outcome.probe.most_bytes),
    }


def _thinks(person: Participant) -> float:
    given = person.parameters
    return float(given.get("pause", 0.0) * given.get("queries", 0))


def compare(plain: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a policy over those of plain Dask."""
    slowdown = {name: ours["took"][name] / seconds for name, seconds in plain["took"].items()}
    kinds: dict[str, list[float]] = {}
    for name, ratio in slowdown.items():
        kinds.setdefault(KINDS[name[0]], []).append(ratio)
    worst = max(slowdown, key=slowdown.__getitem__)
    return {
        "slowdown_mean": float(np.mean(list(slowdown.values()))),
        "slowdown_worst": slowdown[worst],
        "worst": worst,
        "lost": sum(ratio > LOST for ratio in slowdown.values()),
        "t90_training": _mean(ours["t90"]) / _mean(plain["t90"]) if plain["t90"] else None,
        "completion_mean": _mean(ours["took"]) / _mean(plain["took"]),
        "makespan": ours["makespan"] / plain["makespan"],
        "bytes": ours["bytes"] / plain["bytes"] if plain["bytes"] else None,
        "kinds": {kind: float(np.mean(ratios)) for kind, ratios in kinds.items()},
    }


def _mean(values: Mapping[str, float]) -> float:
    return float(np.mean(list(values.values())))


def measure(name: str, policy: str, seed: int) -> dict[str, Any]:
    """Run one list under one policy, and return its figures."""
    scenario = LISTS[name](seed)
    return figures(scenario, run(scenario, policy, BANDWIDTH))
