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
        # A smallest size is forgotten as slowly as a mean.
        self._least: dict[str, float] = {} if before is None else before._least
        self._mean: float = 0.0 if before is None else before._mean
        self._rested: float | None = None  # what was held at the last check, if nothing ran

    def observe(self, name: str, nbytes: float) -> None:
        """Count a new result, of a task of this name."""
        self.held += nbytes
        self._mean += (_NEWEST if self._mean else 1.0) * (nbytes - self._mean)
        known = self._sizes.pop(name, nbytes)
        self._sizes[name] = known + _NEWEST * (nbytes - known)
        least = self._least.get(name, nbytes)
        self._least[name] = min(nbytes, least + _NEWEST * (nbytes - least))
        if len(self._sizes) > _MOST_NAMES:
            oldest = next(iter(self._sizes))
            del self._sizes[oldest], self._least[oldest]

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

        Alone, one may start that is expected to be as small as the smallest of its name, or of
        which none was small enough: else nothing would be learned of its name any more.
        """
        if not (more or self.running.total()):
            least = self._least.get(name, 0.0)
            return self.held + (least if least <= self.most else 0.0) <= self.most
        return self.held + self.making + more + self.expected(name) <= self.most

    def check(self, waits: bool) -> None:
        """Record whether nothing runs or was freed since the last check, while a task `waits`."""
        rests = waits and not self.running.total()
        self.stuck = rests and self._rested is not None and self.held >= self._rested
        self._rested = self.held if rests else None
