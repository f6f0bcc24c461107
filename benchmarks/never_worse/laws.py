"""Laws that a run with the plugin must keep, compared with the same run under plain Dask."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.common.shrink import shrink
from benchmarks.never_worse.running import LEFT_EARLY, LIMIT, Outcome, run
from benchmarks.never_worse.scenarios import Scenario, make_scenario

#: Tolerance of times, virtual seconds: the delay of a few batches of messages.
ROUND_TRIP = 0.02
#: Tolerance of memory, bytes: many results of size zero, and Dask's overhead for them.
SMALL = 20_000
#: Length of the windows of law 6, seconds.
WINDOW = 5.0
#: Maximum gap between iterations of a job that counts as iterating, seconds.
BACK_WITHIN = 0.02


@dataclass
class Finding:
    """Result of one check of one law: the figures compared, about a participant or object.

    The excess is relative to the bound; a positive one breaks the law.
    """

    law: str
    plain: float
    ours: float
    excess: float
    about: str = ""

    @property
    def broken(self) -> bool:
        return self.excess > 1e-6


def compare(seed: int, policies: tuple[str, ...]) -> list[tuple[int, str, Finding]]:
    """Run the scenario of a seed under plain Dask and under each policy, and check the laws.

    Returns the seed, the policy and the finding of each check.
    """
    return compare_scenario(make_scenario(seed), policies)


def compare_scenario(
    scenario: Scenario, policies: tuple[str, ...]
) -> list[tuple[int, str, Finding]]:
    """Do what `compare` does with the scenario of a seed."""
    seed = scenario.seed
    plain = run(scenario, "none")
    outcomes = {policy: run(scenario, policy) for policy in policies}
    found = [
        (seed, policy, finding)
        for policy, ours in outcomes.items()
        for finding in check(scenario, policy, plain, ours)
    ]
    if scenario.family in ("shared", "newcomers", "steady") and plain.reports:
        fair = outcomes["fair"] if "fair" in outcomes else run(scenario, "fair")
        for policy, ours in outcomes.items():
            found += [(seed, policy, finding) for finding in _first_reports(fair, ours)]
    return found


def smallest(seed: int, policy: str, law: str) -> Scenario:
    """Return a small scenario that breaks a law under a policy half as much as that of the seed."""

    def excess(scenario: Scenario) -> float:
        found = compare_scenario(scenario, (policy,))
        return max((f.excess for _, _, f in found if f.broken and f.law == law), default=0.0)

    whole = make_scenario(seed)
    least = excess(whole) / 2
    return shrink(
        whole,
        lambda scenario: excess(scenario) > max(least, 1e-6),
        lists=lambda scenario: [scenario.participants, scenario.events],
        parameters=lambda scenario: [one.parameters for one in scenario.participants],
    )


def check(scenario: Scenario, policy: str, plain: Outcome, ours: Outcome) -> list[Finding]:
    """Check every law that applies to a scenario."""
    findings = list(_same_results(scenario, plain, ours))
    if scenario.family == "paused":
        return findings + list(_paused(scenario, plain, ours))
    if scenario.family == "alone":
        findings += _alone(plain, ours)
    else:
        findings += _last_job(scenario, plain, ours)
    findings += _memory(scenario, plain, ours)
    findings += _waiters(scenario, plain, ours)
    findings += _newcomers(scenario, plain, ours)
    if policy == "fair" and scenario.family == "steady":
        findings += _fair_shares(scenario, plain, ours)
    findings += _idle_slots(scenario, plain, ours)
    return findings


def _bound(law: str, plain: float, ours: float, bound: float, about: str = "") -> Finding:
    return Finding(law, plain, ours, (ours - bound) / max(abs(bound), 1e-9), about)


def _same_results(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    for person in scenario.participants:
        if person.kind == "idle" or isinstance(plain.results.get(person.name), str):
            continue  # plain Dask itself failed, or got stuck on tasks that wait for each other
        same = plain.results.get(person.name) == ours.results.get(person.name)
        about = "" if same else f"{person.name}: {str(ours.results.get(person.name))[:120]}"
        yield Finding("1 results", 0, not same, -1 if same else 1, about)
    ours_left = [what for what in ours.left_over if what not in plain.left_over]
    excess = 1 if ours_left else -1
    yield Finding("1 left over", 0, len(ours_left), excess, "; ".join(ours_left[:3]))


def _alone(plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    for name, end in plain.ended.items():
        before, now = end - plain.started[name], ours.ended.get(name, 1e9) - ours.started[name]
        yield _bound("2 alone", before, now, 1.01 * before + ROUND_TRIP / 2, name)


def _last_job(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    """Compare the ends of the last jobs, allowing for one more task.

    Jobs may end in another order, so that a last task runs alone. Under plain Dask, jobs whose
    tasks wait for each other may hang; then there is nothing to compare."""
    if not plain.ended or ours.ended.keys() - plain.ended.keys():
        return
    before, now = max(plain.ended.values()), max(ours.ended.values(), default=1e9)
    longest = max((run.stop - run.start for run in plain.probe.computed), default=0.0)
    yield _bound("3 last job", before, now, max(1.02 * before, before + longest) + ROUND_TRIP)


def _memory(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    threads = sum(scenario.threads)
    if scenario.family == "loads":
        before, now = plain.probe.most_bytes, ours.probe.most_bytes
        yield _bound("8 bytes of many jobs", before, now, 2 * before + SMALL)
        return
    before, now = plain.probe.most_roots, ours.probe.most_roots
    yield _bound("4 roots", before, now, 1.1 * before + threads)
    sizes = [p.parameters.get("nbytes", 0) for p in scenario.participants]
    before, now = plain.probe.most_bytes, ours.probe.most_bytes
    yield _bound("4 bytes", before, now, 1.1 * before + threads * max(sizes) + SMALL)


def _paused(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    """Compare the times of jobs that need keys of a paused job; under plain Dask none pauses."""
    for person in scenario.participants[1:]:
        yield _slower("8 alongside paused", 1.1, person.name, plain, ours)


def _waiters(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    for person in scenario.participants:
        if person.shape == "waiters" and person.name in plain.ended:
            yield _slower("8 waiters", 1.5, person.name, plain, ours)


def _first_reports(fair: Outcome, ours: Outcome) -> Iterator[Finding]:
    """Compare the waits for a first report with those under `fair`, allowing for one more task."""
    longest = max((run.stop - run.start for run in ours.probe.computed), default=0.0)
    for name, reports in fair.reports.items():
        if reports:
            before = reports[0][0] - fair.started[name]
            mine = ours.reports.get(name) or [(1e9, 0.0)]
            now = mine[0][0] - ours.started[name]
            yield _bound("9 first report", before, now, 2 * before + longest + ROUND_TRIP, name)


def _slower(law: str, factor: float, name: str, plain: Outcome, ours: Outcome) -> Finding:
    """Compare the time of a participant, allowing for one more task."""
    longest = max((run.stop - run.start for run in plain.probe.computed), default=0.0)
    before, now = plain.ended[name] - plain.started[name], ours.ended.get(name, 1e9)
    now -= ours.started[name]
    return _bound(law, before, now, factor * before + longest + ROUND_TRIP, name)


def _newcomers(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    """Compare the waits of newcomers, counting only the time in which a job is open."""
    for person in scenario.participants:
        if person.kind == "newcomer":
            came, longest = _came(person.name, ours)
            began = came + _wait(person.name, ours)
            wait = sum(
                max(min(end, began) - max(begin, came), 0.0)
                for begin, end in _jobs_open(scenario, ours)
            )
            yield _bound("5 newcomer", _wait(person.name, plain), wait, longest + 0.05, person.name)


def _jobs_open(scenario: Scenario, outcome: Outcome) -> list[tuple[float, float]]:
    """Return the spans of time in which at least one job is open."""
    spans: list[tuple[float, float]] = []
    last = outcome.begin + max(outcome.ended.values(), default=0.0)
    for person in scenario.participants:
        if person.kind == "idle":
            spans.append((outcome.begin + person.start, last))
        elif person.kind == "job" and person.name in outcome.started:
            begin = outcome.begin + outcome.started[person.name]
            end = outcome.begin + outcome.ended.get(person.name, LIMIT)
            spans.append((begin, min(begin + LEFT_EARLY, end) if person.early else end))
    merged: list[tuple[float, float]] = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((begin, end))
    return merged


def _wait(name: str, outcome: Outcome) -> float:
    """Return the seconds that the task of a newcomer waited."""
    first = [run.start for run in outcome.probe.computed if run.who == name]
    return min(first) - _came(name, outcome)[0] if first else 1e9


def _came(name: str, outcome: Outcome) -> tuple[float, float]:
    """Return the arrival of a newcomer's task, and the length of the longest task running then."""
    came = outcome.probe.arrived.get(name, outcome.begin + outcome.started[name])
    longest = max((run.stop - run.start for run in outcome.probe.running_at(came)), default=0.0)
    return came, longest


def _fair_shares(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    threads, probe = sum(scenario.threads), ours.probe
    slack = threads * max(run.stop - run.start for run in probe.computed)
    for person in scenario.participants:
        iterates = person.shape == "iterating"
        worst: Finding | None = None
        for begin in _windows(probe.ready.get(person.name, []), iterates):
            end = begin + WINDOW
            used = {
                other.name: probe.core_seconds(other.name, begin, end)
                for other in scenario.participants
            }
            working = sum(seconds > 0 for seconds in used.values())
            # An iterating job is due a share of all threads, a job that always has tasks a share of
            # the core-seconds that were used.
            due = (threads * WINDOW if iterates else sum(used.values())) / working
            got = used[person.name]
            bound = 0.8 * due if iterates else due - slack
            law = "6 iterating share" if iterates else "6 share"
            finding = Finding(law, due, got, (bound - got) / max(due, 1e-9), person.name)
            if worst is None or finding.excess > worst.excess:
                worst = finding
        if worst is not None:
            yield worst


def _windows(ready: list[tuple[float, float]], iterates: bool) -> Iterator[float]:
    """Yield the starts of windows throughout which something is ready."""
    spans: list[tuple[float, float]] = []
    for begin, end in sorted(ready):
        if spans and begin - spans[-1][1] <= (3 * BACK_WITHIN if iterates else 0.0):
            spans[-1] = spans[-1][0], end
        else:
            spans.append((begin, end))
    for begin, end in spans:
        while begin + WINDOW <= end:
            yield begin
            begin += WINDOW / 10


def _idle_slots(scenario: Scenario, plain: Outcome, ours: Outcome) -> Iterator[Finding]:
    before, now = (max((b - a for a, b in o.probe.idle), default=0.0) for o in (plain, ours))
    # For law 6, slots are reserved for a job between iterations, from shortly before its tasks end.
    bound = 3 * BACK_WITHIN
    if any(person.shape == "waiting_for_each_other" for person in scenario.participants):
        # A gang needs several threads at once, so the first free thread waits for the others.
        bound += max((run.stop - run.start for run in ours.probe.computed), default=0.0)
    yield _bound("7 idle slot", before, now, max(before, bound))


def summary(findings: list[Finding]) -> dict[str, dict[str, Any]]:
    """Summarize the findings by law.

    ``q99`` is the 99 % quantile of the excess, which is negative within the bound, and ``ratio``
    that of the summed figures to those of plain Dask.
    """
    laws: dict[str, dict[str, Any]] = {}
    for law in sorted({finding.law for finding in findings}):
        of = [finding for finding in findings if finding.law == law]
        excesses = sorted(finding.excess for finding in of)
        plain, ours = sum(f.plain for f in of), sum(f.ours for f in of)
        laws[law] = {
            "checked": len(of),
            "broken": sum(finding.broken for finding in of),
            "worst": max(excesses),
            "q99": excesses[math.ceil(0.99 * len(of)) - 1],
            "mean_excess": sum(excesses) / len(of),
            "ratio": ours / plain if plain else None,
        }
    return laws
