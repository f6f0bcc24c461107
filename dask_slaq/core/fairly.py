"""Fair bounds of what several people's programs have remembered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Hashable
from typing import TypeVar

T = TypeVar("T")


def oldest_of_most(known: Collection[T], whose: Callable[[T], Hashable]) -> T:
    """Return the oldest of those who have most of what is `known`, which is in order of age."""
    count = Counter(map(whose, known))
    most = max(count.values())
    return next(each for each in known if count[whose(each)] == most)
