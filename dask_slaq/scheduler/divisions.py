"""Jobs that are divided: their parts, such as the models of a search.

A part has a name, tasks and reports of its own, but the engine knows its job alone. Parts wait for
each other, as the models of a search do after every round: threads for one before the others do
not make the job faster, and those for all of them are decided on at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass


@dataclass
class Part:
    """What a part has reported."""

    job: str
    iteration: int = 0
    loss: float = math.nan


class Divisions:
    """Which jobs are parts of which."""

    def __init__(self) -> None:
        self._parts: dict[str, Part] = {}
        self._of: dict[str, dict[str, None]] = {}  # sets in order

    def __len__(self) -> int:
        """How many jobs are parts of others."""
        return len(self._parts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parts)

    def __contains__(self, name: object) -> bool:
        return name in self._parts

    def __getitem__(self, name: str) -> Part:
        return self._parts[name]

    def add(self, job: str, parts: Iterable[str]) -> None:
        """Divide a job, or divide it further."""
        for part in parts:
            self._parts[part] = Part(job)
            self._of.setdefault(job, {})[part] = None

    def parts(self, job: str) -> list[str]:
        """The parts of a job; none of one that is not divided."""
        return list(self._of.get(job, ()))

    def forget(self, name: str) -> None:
        """Forget a part; a job without parts is not divided."""
        part = self._parts.pop(name, None)
        if part is not None:
            of = self._of[part.job]
            del of[name]
            if not of:
                del self._of[part.job]
