"""Ledgers go on where they were; what breaks a law is made small."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.common.ledger import Ledger
from benchmarks.common.shrink import shrink


@dataclass
class Case:
    things: list[int]
    given: dict[str, int]


def test_a_case_is_made_as_small_as_it_can_be():
    def breaks(case: Case) -> bool:
        if not case.things:
            raise RuntimeError("makes no sense")
        return 7 in case.things and case.given["n"] >= 3

    case = Case([1, 7, 3, 9], {"n": 100})
    small = shrink(case, breaks, lambda case: [case.things], lambda case: [case.given])
    assert (small.things, small.given) == ([7], {"n": 3})
    assert (case.things, case.given) == ([1, 7, 3, 9], {"n": 100})


def test_a_ledger_skips_what_is_done(tmp_path):
    path = str(tmp_path / "ledger")
    book = Ledger(path)
    for seed, found in book.follow(iter("ab"), [3, 4], lambda one: {"found": one}):
        assert (seed, found) in ((3, "a"), (4, "b"))
    with open(path, "a") as file:
        file.write('{"seed": 5, "fou')
    again = Ledger(path)
    assert again.left(range(2, 7)) == [2, 5, 6]
    assert again.rows[4] == {"seed": 4, "found": "b"}
