"""Memory of an owner or team under a limit: what its results hold, and what its tasks make."""

from __future__ import annotations

from collections import Counter

__all__ = ["Stored"]

#: Weight of the newest result in the running mean of sizes, and names whose sizes are kept.
_NEWEST, _MOST_NAMES = 0.1, 1000


class Stored:
    """Bytes that results hold, of at most `most`, and those that running tasks will add.

    A running task is expected to add what results of its name do on average, and while its name has
    none, the bytes that are `unknown`: what a worker has of memory per thread.

    >>> stored = Stored(most=100.0)
    >>> stored.observe("load", 40), stored.has_room("load")
    (None, True)
    >>> stored.running["load"] += 1
    >>> stored.making, stored.has_room("load")
    (40.0, False)
    """

    def __init__(self, most: float, unknown: float = 0.0, before: Stored | None = None) -> None:
        self.most, self.unknown = most, unknown
        self.held = 0.0  # bytes of results
        self.running: Counter[str] = Counter()  # tasks on workers, by name
        self.stuck = False  # whether nothing runs, and nothing was freed lately
        self._sizes: dict[str, float] = {} if before is None else before._sizes
        self._mean: float = 0.0 if before is None else before._mean
        self._rested: float | None = None  # what was held at the last check, if nothing ran

    def observe(self, name: str, nbytes: float) -> None:
        """Count a new result, of a task of this name."""
        self.held += nbytes
        self._mean += (_NEWEST if self._mean else 1.0) * (nbytes - self._mean)
        known = self._sizes.pop(name, nbytes)
        self._sizes[name] = known + _NEWEST * (nbytes - known)
        if len(self._sizes) > _MOST_NAMES:
            del self._sizes[next(iter(self._sizes))]

    def expected(self, name: str) -> float:
        """Return the bytes that a task of this name is expected to add."""
        return self._sizes.get(name, self.unknown)

    def typical(self, name: str, at_least: float = 0.0) -> float:
        """Return the mean size of results of this name; if it has none, of all, or `at_least`."""
        return self._sizes.get(name, max(self._mean, at_least))

    @property
    def making(self) -> float:
        """Bytes that running tasks are expected to add."""
        return sum(n * self.expected(name) for name, n in self.running.items() if n)

    def has_room(self, name: str, more: float = 0.0) -> bool:
        """Return whether a task of this name may start, after others that add `more` bytes.

        One of unknown size may start alone: else its size would stay unknown.
        """
        if name not in self._sizes and not (more or self.running.total()):
            return self.held <= self.most
        return self.held + self.making + more + self.expected(name) <= self.most

    def check(self, waits: bool) -> None:
        """Record whether nothing runs or was freed since the last check, while a task `waits`."""
        rests = waits and not self.running.total()
        self.stuck = rests and self._rested is not None and self.held >= self._rested
        self._rested = self.held if rests else None
