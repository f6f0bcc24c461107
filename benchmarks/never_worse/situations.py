"""Named situations that a user would notice, each with figures and their bounds.

A situation is a scenario that is not drawn. Its figures under a policy are compared with those
under plain Dask, or, where plain Dask promises nothing, with the bound itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter
from statistics import fmean
from typing import Any

from benchmarks.never_worse.running import Outcome, run
from benchmarks.never_worse.scenarios import Event, Participant, Scenario

#: Bytes per second that a worker sends.
BANDWIDTH = 1e9


@dataclass(frozen=True)
class Figure:
    """One figure of the outcome of a run.

    `bounds` has the largest allowed ratio to plain Dask by policy, or, if `absolute`, the largest
    allowed figure. Other policies have no bound.
    """

    name: str
    of: Callable[[Outcome], float]
    bounds: Mapping[str, float] = field(default_factory=dict)
    absolute: bool = False


@dataclass(frozen=True)
class Situation:
    """Scenario with figures."""

    scenario: Scenario
    figures: Sequence[Figure]


def measure(
    names: Sequence[str], policies: Sequence[str], pool: Executor, *, half: bool = False
) -> Iterator[dict[str, Any]]:
    """Run situations under plain Dask and under policies, and yield a row per figure and policy.

    At `half` the size, each has half of its workers and tasks. ``ratio`` is None where the figure
    itself is judged, ``ok`` without a bound. A figure is infinite if a participant failed or its
    result is wrong.
    """
    pairs = [(name, policy) for name in names for policy in ("none", *policies)]
    calls = zip(*pairs, strict=True)
    measured = dict(zip(pairs, pool.map(partial(_measure, half), *calls), strict=True))
    for name, policy in pairs:
        if policy == "none":
            continue
        (plain, expected), (ours, found) = measured[name, "none"], measured[name, policy]
        for figure, before, now in zip(SITUATIONS[name].figures, plain, ours, strict=True):
            now = now if found == expected else math.inf
            bound = figure.bounds.get(policy)
            ratio = None if figure.absolute else now / before
            yield {
                "situation": name,
                "figure": figure.name,
                "policy": policy,
                "plain": before,
                "ours": now,
                "ratio": ratio,
                "bound": bound,
                "ok": None if bound is None else (now if ratio is None else ratio) <= bound,
            }


def _measure(half: bool, name: str, policy: str) -> tuple[list[float], dict[str, Any]]:
    """Return the figures of one run, and its results."""
    situation = SITUATIONS[name]
    scenario = _half(situation.scenario) if half else situation.scenario
    outcome = run(scenario, policy, BANDWIDTH)
    failed = any(isinstance(result, str) for result in outcome.results.values())
    figures = [math.inf if failed else figure.of(outcome) for figure in situation.figures]
    return figures, outcome.results


def _half(scenario: Scenario) -> Scenario:
    """Return a scenario with half of the workers, and half of the tasks of each participant."""
    participants = []
    for one in scenario.participants:
        size = dict(one.parameters)
        if "n" in size:
            size["n"] = max(size["n"] // 2, 1)
        if "sides" in size:
            *sides, last = size["sides"]
            size["sides"] = [*sides, last // 2]
        participants.append(replace(one, parameters=size))
    return replace(scenario, threads=scenario.threads[::2], participants=participants)


def _time(name: str, less: float = 0.0) -> Callable[[Outcome], float]:
    """Return the time from start to end of a participant, without the first seconds."""
    return lambda outcome: outcome.ended[name] - outcome.started[name] - less


def _most_bytes(outcome: Outcome) -> float:
    return outcome.probe.most_bytes


def _t90(outcome: Outcome) -> float:
    """Return the mean over the training jobs."""
    return fmean(outcome.t90().values())


def _inequality(outcome: Outcome) -> float:
    """Return the ratio of the core-seconds of two jobs while both run, the larger on top."""
    begin = outcome.begin + max(outcome.started.values())
    end = outcome.begin + min(outcome.ended.values())
    less, more = sorted(outcome.probe.core_seconds(name, begin, end) for name in outcome.ended)
    return more / max(less, 1e-9)


def _when_alone(outcome: Outcome) -> float:
    """Return the time per iteration of the job that is left alone by the other."""
    name = max(outcome.ended, key=outcome.ended.__getitem__)
    times = [when for when, _ in outcome.reports[name] if when > min(outcome.ended.values())]
    return (times[-1] - times[0]) / (len(times) - 1)


def _situation(
    threads: list[int],
    people: Sequence[Participant],
    *figures: Figure,
    events: Sequence[Event] = (),
) -> Situation:
    return Situation(Scenario(1, "situation", threads, list(people), list(events)), figures)


def _job(name: str, start: float, shape: str, **parameters: Any) -> Participant:
    return Participant(name, "job", start, shape, parameters)


def _urgent(name: str, priority: int) -> Participant:
    parameters = {"n": 40, "seconds": 0.1, "levels": (priority,)}
    return Participant(name, "stray", 1.0, "priorities", parameters)


def _training(name: str, start: float, **other: Any) -> Participant:
    default = {"n": 16, "seconds": 0.1, "iterations": 25, "gap": 0.01, "nbytes": 10**6}
    return _job(name, start, "iterating", **{**default, **other})


def _loads(name: str, n: int, start: float = 0.2, **other: Any) -> Participant:
    default = {"seconds": 0.2, "nbytes": 5 * 10**7, "fan": 2, "then": 0.05}
    return _job(name, start, "reduction", n=n, **{**default, **other})


def _both(bound: float) -> dict[str, float]:
    return {"fair": bound, "max-total": bound}


def _waiters(batch_at: float, seconds: float, pipeline_at: float) -> Situation:
    return _situation(
        [1] * 4,
        [
            _job("batch", batch_at, "roots", n=200, seconds=seconds),
            _job("pipeline", pipeline_at, "waiters", n=3, seconds=0.1, later=4.0),
        ],
        Figure("time from producers", _time("pipeline", less=4.0), _both(1.5)),
    )


#: Situations by name.
SITUATIONS: dict[str, Situation] = {
    "mixed": _situation(
        [2] * 8,
        [
            *(
                _training(f"t{i}", 0.2, seconds=(0.05, 0.2)[i % 2], decay=(None, 0.15, 0.4)[i % 3])
                for i in range(6)
            ),
            *(_job(f"b{i}", 0.2, "roots", n=200, seconds=0.2) for i in range(3)),
            *(_loads(f"l{i}", 60, seconds=0.3, fan=4) for i in range(3)),
        ],
        Figure("t90", _t90, {"max-total": 1.0}),
        Figure("makespan", attrgetter("makespan")),
    ),
    "waiters": _waiters(0.2, 0.05, 0.7),
    "waiters-first": _waiters(0.5, 0.1, 0.2),
    "shared": _situation(
        [2] * 4,
        [_job(name, at, "shared_keys", n=80, seconds=0.1) for name, at in (("a", 0.2), ("b", 0.4))],
        Figure("time of b", _time("b"), _both(1.1)),
        events=[Event("job_pauses", 0.6), Event("job_resumes", 20.0)],
    ),
    "many-loads": _situation(
        [1] * 8,
        [_loads(f"l{i}", 60) for i in range(8)],
        Figure("most bytes", _most_bytes, _both(2.0)),
    ),
    "many-loads-mapped": _situation(
        [1] * 4,
        [_loads(f"l{i}", 60, seconds=0.1, then=0.01, mapped=0.05) for i in range(8)],
        Figure("most bytes", _most_bytes, _both(2.0)),
    ),
    "loads-training": _situation(
        [2] * 4,
        [
            _training("t", 0.2),
            _loads("l", 48, 0.5, seconds=0.5, nbytes=2 * 10**8, fan=4, then=0.1, mapped=0.3),
        ],
        Figure("most bytes", _most_bytes, _both(1.2)),
    ),
    "stencil": _situation(
        [2] * 4,
        [
            _training("t", 0.2),
            _job("grid", 0.5, "stencil", sides=[4, 4, 4], steps=6, seconds=0.1, nbytes=10**7),
        ],
        Figure("time of stencil", _time("grid"), _both(1.15)),
    ),
    "long-brief": _situation(
        [1] * 8,
        [
            _training("long", 0.2, n=32, seconds=0.2, iterations=10),
            _training("brief", 0.2, n=32, seconds=0.02, iterations=100),
        ],
        Figure("core-s, more : less", _inequality, {"fair": 1.5}, absolute=True),
    ),
    "long-brief-silent": _situation(
        [1] * 4,
        [
            _job("long", 0.2, "roots", n=200, seconds=0.2),
            _job("brief", 0.2, "roots", n=2000, seconds=0.02),
        ],
        Figure("core-s, more : less", _inequality, _both(1.5), absolute=True),
    ),
    "priority": _situation(
        [2] * 4,
        [
            *(_job(name, 0.2, "roots", n=200, seconds=0.1) for name in ("a", "b")),
            _urgent("urgent", 100),
            _urgent("other", 0),
        ],
        Figure("time, priority 100", _time("urgent")),
        Figure("time, priority 0", _time("other")),
    ),
    "left-alone": _situation(
        [1] * 8,
        [
            _training("short", 0.2, iterations=8, nbytes=10**8),
            _training("left", 1.0, iterations=40, nbytes=10**8),
        ],
        Figure("iteration when alone", _when_alone, _both(1.05)),
    ),
    "stagger": _situation(
        [1] * 8,
        [
            _training(
                f"t{i}", 0.2 + 3 * i, seconds=(0.1, 0.2)[i % 2], decay=(None, 0.2)[i // 2 % 2]
            )
            for i in range(6)
        ],
        Figure("t90", _t90, {"max-total": 0.9}),
        Figure("makespan", attrgetter("makespan"), {"max-total": 1.02}),
    ),
}
