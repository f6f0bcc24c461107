"""Verdict on a round, by comparison with the same round without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.chaos.outcome import Outcome
from benchmarks.chaos.rounds import Round, make_round
from benchmarks.chaos.running import run

__all__ = ["Verdict", "judge", "judge_seed"]

KEYS = ("lost", "different", "left_over", "invariants_broken")


@dataclass
class Verdict:
    """Problems of a round as texts, one list per item of `KEYS`.

    `compared` counts participants, or results with real processes. Results are ``lost`` or
    ``different``. The notes are hints for finding the cause, printed for broken rounds.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    left_over: list[str] = field(default_factory=list)
    invariants_broken: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def lines(self) -> Iterator[str]:
        """Yield lines that describe the problems, with the seed."""
        for key in KEYS:
            for what in getattr(self, key)[:5]:
                yield f"seed {self.seed}: {key}: {what}"
        if any(getattr(self, key) for key in KEYS):
            yield from (f"    {note}" for note in self.notes[-3:])

    def add(self, other: Verdict) -> None:
        """Add the verdict of another round."""
        self.compared += other.compared
        for key in KEYS:
            getattr(self, key).extend(getattr(other, key))

    def figures(self) -> dict[str, int]:
        """Return the number of problems of each kind, and of comparisons."""
        return {**{key: len(getattr(self, key)) for key in KEYS}, "compared": self.compared}


def judge(made: Round) -> Verdict:
    """Run a round under plain Dask without faults and with the plugin and faults, and compare."""
    plain = run(made, faults=False, plugin=False)
    ours = run(made)
    verdict = Verdict(made.seed, ours.faults)
    for name, expected in plain.results.items():
        if name in ours.excused:
            continue
        verdict.compared += 1
        found = ours.results.get(name, "lost: never came")
        if isinstance(found, str):
            verdict.lost.append(f"{name}: {found}")
        elif found != expected:
            verdict.different.append(f"{name}: {_difference(expected, found)}")
    verdict.left_over += ours.left_over
    verdict.invariants_broken += ours.broken
    verdict.notes += ours.notes
    _check_reference(plain, verdict)
    return verdict


def judge_seed(seed: int) -> Verdict:
    """Make the round of a seed and judge it; importable for process pools."""
    return judge(make_round(seed))


def _check_reference(plain: Outcome, verdict: Verdict) -> None:
    """Check that the reference run without faults has no errors."""
    for name, found in plain.results.items():
        if isinstance(found, str):
            verdict.lost.append(f"{name} without any fault: {found}")


def _difference(expected: list[object], found: list[object]) -> str:
    if len(expected) != len(found):
        return f"{len(found)} results instead of {len(expected)}"
    both = zip(expected, found, strict=True)
    at = next(i for i, (a, b) in enumerate(both) if a != b)
    return f"{str(found[at])[:80]} instead of {str(expected[at])[:80]}"
