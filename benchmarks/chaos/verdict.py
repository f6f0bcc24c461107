"""Verdict on a round, by comparison with the same round without faults."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.chaos.rounds import Round, make_round
from benchmarks.chaos.running import run
from benchmarks.common.shrink import shrink

KEYS = ("lost", "different", "late", "left_over", "invariants_broken")
#: Liveness: once the faults stop, all ends within this many times as long as a round without any
#: under plain Dask, since work may have to begin anew, and these virtual seconds.
TIMES, SECONDS = 2.0, 15.0


@dataclass
class Verdict:
    """Problems of a round as texts, one list per item of `KEYS`.

    `compared` counts participants. Results are ``lost`` or
    ``different``, and a round is ``late`` that goes on for too long after its last fault. The notes
    are hints for finding the cause, printed for broken rounds.
    """

    seed: int
    faults: Counter[str] = field(default_factory=Counter)
    compared: int = 0
    lost: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
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
        if isinstance(expected, str):
            verdict.lost.append(f"{name} without any fault: {expected}")
        if name in ours.excused:
            continue
        verdict.compared += 1
        found = ours.results.get(name, "lost: never came")
        if isinstance(found, str):
            verdict.lost.append(f"{name}: {found}")
        elif found != expected:
            verdict.different.append(f"{name}: {_difference(expected, found)}")
    after, most = ours.ended - ours.quiet, TIMES * plain.ended + SECONDS
    if after > most:
        verdict.late.append(f"ended {after:.1f} s after the last fault, not within {most:.1f}")
    verdict.left_over += ours.left_over
    verdict.invariants_broken += ours.broken
    verdict.notes += ours.notes
    return verdict


def judge_seed(seed: int) -> Verdict:
    """Make the round of a seed and judge it; importable for process pools."""
    return judge(make_round(seed))


def smallest(seed: int) -> Round:
    """Return a small round that has problems of the same kinds as that of the seed."""
    kinds = _problems(judge_seed(seed))
    return shrink(
        make_round(seed),
        lambda made: kinds <= _problems(judge(made)),
        lists=lambda made: [made.people, made.faults, *(person.things for person in made.people)],
        parameters=lambda made: [given for person in made.people for _, given in person.things],
    )


def _problems(verdict: Verdict) -> set[str]:
    return {key for key in KEYS if getattr(verdict, key)}


def _difference(expected: list[object], found: list[object]) -> str:
    if len(expected) != len(found):
        return f"{len(found)} results instead of {len(expected)}"
    both = zip(expected, found, strict=True)
    at = next(i for i, (a, b) in enumerate(both) if a != b)
    return f"{str(found[at])[:80]} instead of {str(expected[at])[:80]}"
