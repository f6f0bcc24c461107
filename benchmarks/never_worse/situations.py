"""Named situations that a user would notice, each with a figure and its bound.

A situation is a scenario that is not drawn. Its figures under a policy are compared with those
under plain Dask, or, where plain Dask promises nothing, with the bound itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from benchmarks.never_worse.running import Outcome, run
from benchmarks.never_worse.scenarios import Event, Participant, Scenario
from dask_slaq.simulation import virtual

__all__ = ["SITUATIONS", "Row", "measure"]

#: Bytes per second that a worker sends.
BANDWIDTH = 1e9


@dataclass(frozen=True)
class Figure:
    """One figure of a situation.

    Attributes
    ----------
    name : str
    of : callable
        Function of the outcome of a run.
    bounds : mapping of str to float
        Largest allowed ratio to plain Dask, by policy. Other policies have no bound.
    absolute : bool
        Whether the bound holds for the figure itself instead of its ratio to plain Dask.
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


@dataclass(frozen=True)
class Row:
    """One figure under one policy.

    `ratio` is that to plain Dask, None where the figure itself is judged; without a `bound`, `ok`
    is None."""

    situation: str
    figure: str
    policy: str
    plain: float
    ours: float
    ratio: float | None
    bound: float | None
    ok: bool | None


def measure(names: Sequence[str], policies: Sequence[str], processes: int) -> Iterator[Row]:
    """Run situations under plain Dask and under policies.

    Parameters
    ----------
    names : sequence of str
        Names in `SITUATIONS`.
    policies : sequence of str
    processes : int

    Yields
    ------
    Row
    """
    pairs = [(name, policy) for name in names for policy in ("none", *policies)]
    with virtual.pool(processes) as pool:
        results = dict(zip(pairs, pool.map(_measure, *zip(*pairs, strict=True)), strict=True))
    for name in names:
        plain, expected = results[name, "none"]
        assert not any(isinstance(result, str) for result in expected.values()), expected
        for policy in policies:
            ours, found = results[name, policy]
            for i, figure in enumerate(SITUATIONS[name].figures):
                value = ours[i] if found == expected else math.inf
                ratio = None if figure.absolute else value / plain[i]
                bound = figure.bounds.get(policy)
                ok = None if bound is None else (value if ratio is None else ratio) <= bound
                yield Row(name, figure.name, policy, plain[i], value, ratio, bound, ok)


def _measure(name: str, policy: str) -> tuple[list[float], dict[str, Any]]:
    """Return the figures of one run, and its results."""
    situation = SITUATIONS[name]
    outcome = run(situation.scenario, policy, BANDWIDTH)
    return [figure.of(outcome) for figure in situation.figures], outcome.results


def _both(bound: float) -> dict[str, float]:
    return {"fair": bound, "max-total": bound}


def _time(*names: str, less: float = 0.0) -> Callable[[Outcome], float]:
    """Return the mean time from start to end of participants, without the first seconds."""

    def of(outcome: Outcome) -> float:
        times = [outcome.ended.get(n, math.inf) - outcome.started[n] for n in names]
        return sum(times) / len(times) - less

    return of


def _makespan(outcome: Outcome) -> float:
    return max(outcome.ended.values()) - min(outcome.started.values())


def _t90(outcome: Outcome) -> float:
    """Return the mean time in which the loss of training jobs falls by 90 % of its whole fall."""
    times = []
    for name, reports in outcome.reports.items():
        first, last = reports[0][1], reports[-1][1]
        enough = next(when for when, loss in reports if first - loss >= 0.9 * (first - last))
        times.append(enough - outcome.started[name])
    return sum(times) / len(times)


def _most_bytes(outcome: Outcome) -> float:
    return outcome.probe.most_bytes


def _unequal(one: str, other: str) -> Callable[[Outcome], float]:
    """Return the ratio of the core-seconds of two jobs while both run, the larger on top."""

    def of(outcome: Outcome) -> float:
        begin = outcome.begin + max(outcome.started[one], outcome.started[other])
        end = outcome.begin + min(outcome.ended[one], outcome.ended[other])
        a, b = (outcome.probe.core_seconds(name, begin, end) for name in (one, other))
        return max(a, b) / max(min(a, b), 1e-9)

    return of


def _scenario(threads: list[int], *people: Participant, events: Sequence[Event] = ()) -> Scenario:
    return Scenario(1, "situation", threads, list(people), list(events))


def _job(name: str, start: float, shape: str, **parameters: Any) -> Participant:
    return Participant(name, "job", start, shape, parameters)


def _training(name: str, start: float, **other: Any) -> Participant:
    default = {"n": 16, "seconds": 0.1, "iterations": 25, "gap": 0.01, "nbytes": 10**6}
    return _job(name, start, "iterating", **{**default, **other})


def _mixed() -> Situation:
    people = [
        _training(f"t{i}", 0.2, seconds=(0.05, 0.2)[i % 2], decay=(None, 0.15, 0.4)[i % 3])
        for i in range(6)
    ]
    people += [_job(f"b{i}", 0.2, "roots", n=200, seconds=0.2) for i in range(3)]
    loads = {"n": 60, "seconds": 0.3, "nbytes": 5 * 10**7, "fan": 4, "then": 0.05}
    people += [_job(f"l{i}", 0.2, "reduction", **loads) for i in range(3)]
    figures = [Figure("t90", _t90, {"max-total": 1.0}), Figure("makespan", _makespan)]
    return Situation(_scenario([2] * 8, *people), figures)


def _waiters(batch_at: float, seconds: float, pipeline_at: float) -> Situation:
    batch = _job("batch", batch_at, "roots", n=200, seconds=seconds)
    pipeline = _job("pipeline", pipeline_at, "waiters", n=3, seconds=0.1, later=4.0)
    figures = [Figure("time from producers", _time("pipeline", less=4.0), _both(1.5))]
    return Situation(_scenario([1] * 4, batch, pipeline), figures)


def _shared() -> Situation:
    people = [_job(n, s, "shared_keys", n=80, seconds=0.1) for n, s in (("a", 0.2), ("b", 0.4))]
    events = [Event("job_pauses", 0.6, 0), Event("job_resumes", 20.0, 0)]
    figures = [Figure("time of b", _time("b"), _both(1.1))]
    return Situation(_scenario([2] * 4, *people, events=events), figures)


def _many_loads() -> Situation:
    loads = {"n": 60, "seconds": 0.2, "nbytes": 5 * 10**7, "fan": 2, "then": 0.05}
    people = [_job(f"l{i}", 0.2, "reduction", **loads) for i in range(8)]
    return Situation(_scenario([1] * 8, *people), [Figure("most bytes", _most_bytes, _both(2.0))])


def _long_brief() -> Situation:
    people = [
        _training("long", 0.2, n=32, seconds=0.2, iterations=10),
        _training("brief", 0.2, n=32, seconds=0.02, iterations=100),
    ]
    figures = [Figure("unequal", _unequal("long", "brief"), {"fair": 1.5}, absolute=True)]
    return Situation(_scenario([1] * 8, *people), figures)


def _long_brief_silent() -> Situation:
    people = [
        _job("long", 0.2, "roots", n=200, seconds=0.2),
        _job("brief", 0.2, "roots", n=2000, seconds=0.02),
    ]
    figures = [Figure("unequal", _unequal("long", "brief"), _both(1.5), absolute=True)]
    return Situation(_scenario([1] * 4, *people), figures)


def _loads_beside_training() -> Situation:
    loads = {"n": 48, "seconds": 0.5, "nbytes": 2 * 10**8, "fan": 4, "then": 0.1, "mapped": 0.3}
    people = [_training("t", 0.2), _job("loads", 0.5, "reduction", **loads)]
    return Situation(_scenario([2] * 4, *people), [Figure("most bytes", _most_bytes, _both(1.2))])


def _stencil() -> Situation:
    grid = {"sides": [4, 4, 4], "steps": 6, "seconds": 0.1, "nbytes": 10**7}
    people = [_training("t", 0.2), _job("stencil", 0.5, "stencil", **grid)]
    figures = [Figure("time of stencil", _time("stencil"), _both(1.15))]
    return Situation(_scenario([2] * 4, *people), figures)


def _priority() -> Situation:
    batches = [_job(n, 0.2, "roots", n=200, seconds=0.1) for n in ("a", "b")]
    urgent = {"n": 40, "seconds": 0.1}
    people = [
        Participant("urgent", "stray", 1.0, "priorities", {**urgent, "levels": (100,)}),
        Participant("other", "stray", 1.0, "priorities", {**urgent, "levels": (0,)}),
    ]
    figures = [Figure(f"time of {who.name}", _time(who.name)) for who in people]
    return Situation(_scenario([2] * 4, *batches, *people), figures)


def _left_alone() -> Situation:
    """Run two jobs with large data, one of which ends early."""
    people = [
        _training("short", 0.2, iterations=8, nbytes=10**8),
        _training("left", 1.0, iterations=40, nbytes=10**8),
    ]

    def pace(outcome: Outcome) -> float:
        times = [when for when, _ in outcome.reports["left"] if when > outcome.ended["short"]]
        return (times[-1] - times[0]) / (len(times) - 1)

    figures = [Figure("iteration when alone", pace, _both(1.05))]
    return Situation(_scenario([1] * 8, *people), figures)


def _stagger() -> Situation:
    people = [
        _training(f"t{i}", 0.2 + 3.0 * i, seconds=(0.1, 0.2)[i % 2], decay=(None, 0.2)[i // 2 % 2])
        for i in range(6)
    ]
    figures = [
        Figure("t90", _t90, {"max-total": 0.9}),
        Figure("makespan", _makespan, {"max-total": 1.02}),
    ]
    return Situation(_scenario([1] * 8, *people), figures)


#: Situations by name.
SITUATIONS: dict[str, Situation] = {
    "mixed": _mixed(),
    "waiters": _waiters(0.2, 0.05, 0.7),
    "waiters-first": _waiters(0.5, 0.1, 0.2),
    "shared": _shared(),
    "many-loads": _many_loads(),
    "long-brief": _long_brief(),
    "long-brief-silent": _long_brief_silent(),
    "loads-training": _loads_beside_training(),
    "stencil": _stencil(),
    "priority": _priority(),
    "left-alone": _left_alone(),
    "stagger": _stagger(),
}
