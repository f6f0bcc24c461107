"""Worker sets of all jobs as flat arrays, and conversions from and to mappings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dask_slaq.core.placement.assignment import Assignment, BoolArray, IntArray, joined

__all__ = ["Placement", "Workers", "bytes_of", "moved", "numbered", "unchanged"]


class Workers(Mapping[str, int]):
    """Immutable mapping of address to threads, sorted and summed once.

    Parameters
    ----------
    threads : mapping of address to int
        Threads of each worker.

    Attributes
    ----------
    addresses : tuple of str
        Addresses, sorted.
    threads : (n_workers,) array
        Threads in the order of `addresses`.
    total : int
        Threads of all workers.
    """

    def __init__(self, threads: Mapping[str, int]) -> None:
        self._of = {address: threads[address] for address in sorted(threads)}
        self.addresses = tuple(self._of)
        self.threads = np.array([*self._of.values()], float)
        self.threads.flags.writeable = False
        self.total = sum(self._of.values())

    @classmethod
    def of(cls, workers: Mapping[str, int], before: Workers | None = None) -> Workers:
        """Return workers as `Workers`.

        Parameters
        ----------
        workers : mapping of address to int
            Returned unchanged if it is a `Workers`.
        before : Workers, optional
            Returned if it equals `workers`, to save the sorting.
        """
        if isinstance(workers, cls):
            return workers
        if before is not None and before._of == workers:
            return before
        return cls(workers)

    def __getitem__(self, address: str) -> int:
        return self._of[address]

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def __len__(self) -> int:
        return len(self._of)


@dataclass(frozen=True, eq=False)
class Placement(Mapping[str, dict[str, float]]):
    """Worker sets of all jobs: a mapping of job to dict of address to threads, made on access.

    Parameters
    ----------
    jobs : sequence of str
        Names.
    addresses : sequence of str
        Workers, sorted.
    entries : Assignment
        Threads by positions in `jobs` and `addresses`, sorted by job and worker.
    kept : (n_jobs,) array of bool
        Whether the set equals that of the previous placement.
    """

    jobs: Sequence[str]
    addresses: Sequence[str]
    entries: Assignment
    kept: BoolArray

    @classmethod
    def of(cls, sets: Mapping[str, Mapping[str, float]]) -> Placement:
        """Return the placement with these sets, and with the jobs in the order of their names."""
        jobs = sorted(sets)
        addresses = sorted({address for held in sets.values() for address in held})
        held = _entries(range(len(jobs)), (sets[job] for job in jobs), numbered(addresses))
        return cls(jobs, addresses, joined([held], len(addresses)), np.zeros(len(jobs), bool))

    @cached_property
    def _place(self) -> dict[str, int]:
        return numbered(self.jobs)

    @cached_property
    def _start(self) -> IntArray:
        return np.searchsorted(self.entries.job, np.arange(len(self.jobs) + 1))

    def at(self, i: int) -> dict[str, float]:
        """Return the set of the job at position `i` in `jobs`."""
        here = slice(self._start.item(i), self._start.item(i + 1))
        workers, threads = self.entries.worker[here].tolist(), self.entries.amount[here].tolist()
        return {self.addresses[w]: n for w, n in zip(workers, threads, strict=True)}

    def __getitem__(self, job: str) -> dict[str, float]:
        return self.at(self._place[job])

    def __iter__(self) -> Iterator[str]:
        return iter(self.jobs)

    def __len__(self) -> int:
        return len(self.jobs)


def moved(previous: Placement | None, jobs: Sequence[str], addresses: Sequence[str]) -> Assignment:
    """Return the entries of a previous placement, renumbered for the present jobs and workers.

    Parameters
    ----------
    previous : Placement or None
    jobs, addresses : sequence of str
        Present jobs and workers.

    Returns
    -------
    Assignment
        Without the jobs that are gone. Workers that are gone have the number ``len(addresses)``.
    """
    if previous is None:
        return joined([], 1)
    entries = previous.entries
    same = previous.addresses is addresses  # spares simulations a comparison
    if not same and list(previous.addresses) != list(addresses):
        entries = entries._replace(
            worker=_renumbered(previous.addresses, addresses, len(addresses))[entries.worker]
        )
    if previous.jobs is not jobs and list(previous.jobs) != list(jobs):
        entries = entries._replace(job=_renumbered(previous.jobs, jobs, -1)[entries.job])
        entries = entries.of(entries.job >= 0)
    return entries


def unchanged(before: Assignment, after: Assignment, n_jobs: int) -> BoolArray:
    """Return which jobs have the same threads on the same workers in two assignments.

    Parameters
    ----------
    before, after : Assignment
        Sorted by job and worker.
    n_jobs : int

    Returns
    -------
    (n_jobs,) array of bool
        True also for jobs without threads in both.
    """
    count = [np.bincount(entries.job, minlength=n_jobs) for entries in (before, after)]
    same: BoolArray = count[0] == count[1]
    before, after = before.of(same[before.job]), after.of(same[after.job])
    differs = (before.worker != after.worker) | (before.amount != after.amount)
    same[after.job[differs]] = False
    return same


def _renumbered(before: Sequence[str], now: Sequence[str], gone: int) -> IntArray:
    """Return the positions in `now` of the names in `before`, or `gone`."""
    place_of = numbered(now)
    return np.array([place_of.get(name, gone) for name in before], np.int64)


def _entries(
    rows: Iterable[int], sets: Iterable[Mapping[str, float]], place_of: Mapping[str, int]
) -> Assignment:
    """Return dicts of address to amount as an assignment, without unknown workers."""
    found = [
        (row, place_of[address], amount)
        for row, held in zip(rows, sets, strict=True)
        for address, amount in held.items()
        if address in place_of
    ]
    job, worker, amount = np.array(found, float).reshape(-1, 3).T
    return Assignment(job.astype(np.int64), worker.astype(np.int64), amount)


def bytes_of(
    affinity: Mapping[str, Mapping[str, float]],
    jobs: Sequence[str],
    place_of: Mapping[str, int],
) -> Assignment:
    """Return the bytes of the jobs on the workers.

    Parameters
    ----------
    affinity : mapping of job to mapping of address to float
        Bytes.
    jobs : sequence of str
        Names, which define the positions of the jobs.
    place_of : mapping of address to int
        Positions of the workers.

    Returns
    -------
    Assignment
    """
    rows = [i for i, job in enumerate(jobs) if job in affinity] if affinity else []
    return _entries(rows, (affinity[jobs[i]] for i in rows), place_of)


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Return the position of each name in a sequence."""
    return {name: i for i, name in enumerate(names)}
