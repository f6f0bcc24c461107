"""Shrinking of a scenario that breaks a law to a small one that breaks it as well."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

S = TypeVar("S")


def shrink(
    scenario: S,
    breaks: Callable[[S], bool],
    lists: Callable[[S], list[list[Any]]],
    parameters: Callable[[S], list[dict[str, Any]]],
    most: int = 100,
) -> S:
    """Return the smallest scenario found that still `breaks` a law, after at most `most` tries.

    `lists` returns the lists of a scenario of which an element may be left out, and `parameters`
    the dicts with whole numbers that may be halved. A scenario that raises does not count.
    """
    tries, found = 0, True
    while found and tries < most:
        found = False
        for smaller in _smaller(scenario, lists, parameters):
            tries += 1
            if _breaks(smaller, breaks):
                scenario, found = smaller, True
                break
            if tries >= most:
                break
    return scenario


def _breaks(scenario: S, breaks: Callable[[S], bool]) -> bool:
    try:
        return breaks(scenario)
    except Exception:  # it makes no sense without what was left out
        return False


def _smaller(
    scenario: S,
    lists: Callable[[S], list[list[Any]]],
    parameters: Callable[[S], list[dict[str, Any]]],
) -> Iterator[S]:
    for number, some in enumerate(lists(scenario)):
        for at in reversed(range(len(some))):
            smaller = copy.deepcopy(scenario)
            del lists(smaller)[number][at]
            yield smaller
    for number, given in enumerate(parameters(scenario)):
        for name, value in given.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 1:
                smaller = copy.deepcopy(scenario)
                parameters(smaller)[number][name] = value // 2
                yield smaller
