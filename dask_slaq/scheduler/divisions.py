"""Jobs that are divided: their parts, such as the models of a search, share one weight.

Decides weights only; `SlaqPlugin` opens and ends the parts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

#: Of its weight, what a job keeps for itself while its parts work, and what these get before.
REST = 0.01


@dataclass
class _Division:
    weight: float
    parts: dict[str, None] = field(default_factory=dict)  # a set in order
    working: bool = False


class Divisions:
    """Which jobs are parts of which, and what each of them weighs.

    The weights of a job and its parts sum to what the job weighed before. Nearly all of that is
    the job's own until its parts work, and theirs from then on.
    """

    def __init__(self) -> None:
        self._of: dict[str, _Division] = {}
        self._whole: dict[str, str] = {}

    def __len__(self) -> int:
        """How many jobs are parts of others."""
        return len(self._whole)

    def add(self, job: str, weight: float, parts: Iterable[str]) -> None:
        """Divide a job (further); `weight` is what it weighs if it is not divided yet."""
        division = self._of.setdefault(job, _Division(weight))
        for part in parts:
            division.parts[part] = None
            self._whole[part] = job

    def parts(self, job: str) -> list[str]:
        """The parts of a job; none of one that is not divided."""
        return list(self._of[job].parts) if job in self._of else []

    def work(self, job: str) -> None:
        """The parts of a job begin to work."""
        if job in self._of:
            self._of[job].working = True

    def forget(self, name: str) -> None:
        """Forget a job, or a part."""
        self._of.pop(name, None)
        job = self._whole.pop(name, None)
        if job in self._of:
            self._of[job].parts.pop(name, None)

    def weights(self, job: str) -> dict[str, float]:
        """What a divided job and each of its parts weigh now; a job without parts is whole again.

        Examples
        --------
        >>> divisions = Divisions()
        >>> divisions.add("search", 2.0, ["search/0", "search/1"])
        >>> divisions.work("search")
        >>> divisions.weights("search")
        {'search': 0.02, 'search/0': 0.99, 'search/1': 0.99}
        """
        division = self._of.get(job)
        if division is None:
            return {}
        if not division.parts:
            del self._of[job]
            return {job: division.weight}
        own = division.weight * (REST if division.working else 1 - REST)
        each = (division.weight - own) / len(division.parts)
        return {job: own, **dict.fromkeys(division.parts, each)}
