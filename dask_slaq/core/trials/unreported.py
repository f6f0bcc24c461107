"""Tasks of a search that ended without a report, and models with equal parameters."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any


class Unreported:
    """Tasks of a search that are odd, each kind of oddity once; at most some are remembered.

    >>> tasks = Unreported()
    >>> for key in ("optimize-1", "optimize-2"):
    ...     tasks.ended("optimize", key)
    >>> list(tasks.of(2, lambda key: False))
    [('optimize', 2)]
    """

    def __init__(self, most_names: int = 100, most_tasks: int = 1000) -> None:
        self._most_names, self._most_tasks = most_names, most_tasks  # tasks of each name
        self._heard: set[str] = set()  # names of tasks that have reported, or were told of
        self._ended: dict[str, list[Hashable]] = {}  # tasks without a report, by name
        self._told: set[str] = set()
        self._models: dict[int, tuple[Hashable, Hashable]] | None = {}  # by hash of parameters

    def heard(self, name: str) -> None:
        """Record that a task of this name has reported."""
        if name not in self._heard:
            self._heard.add(name)
            self._ended.pop(name, None)

    def ended(self, name: str, key: Hashable) -> None:
        """Record that a task ended without a report."""
        if name not in self._heard and (name in self._ended or len(self._ended) < self._most_names):
            keys = self._ended.setdefault(name, [])
            if len(keys) < self._most_tasks:
                keys.append(key)

    def of(self, least: int, is_input: Callable[[Hashable], bool]) -> Iterator[tuple[str, int]]:
        """Yield name and number of tasks that ended, `least` of a name, of which none has reported.

        Those that are inputs of others train no model. With `least` below 2, nothing is yielded if
        any task has reported.
        """
        if least < 2 and self._heard:
            return
        for name, keys in list(self._ended.items()):
            if len(keys) >= least and sum(not is_input(key) for key in keys) >= least:
                self.heard(name)
                yield name, len(keys)

    def is_new(self, oddity: str) -> bool:
        """Return whether an oddity of its models was not told before."""
        is_new = oddity not in self._told
        self._told.add(oddity)
        return is_new

    def is_twin(self, key: Hashable, number: Hashable, params: Mapping[str, Any]) -> bool:
        """Return whether another model has these parameters, the first time that one has.

        Fits of a cross-validation, whose numbers are texts, share theirs.
        """
        if self._models is None or isinstance(number, str):
            return False
        known = self._models.setdefault(hash(repr(sorted(params.items()))), (key, number))
        if known == (key, number):
            return False
        self._models = None
        return True
