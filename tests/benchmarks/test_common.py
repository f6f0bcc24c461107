"""Ledgers go on where they were; what breaks a law is made small."""

from dataclasses import dataclass

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
