"""Workers, and the worker sets of all jobs as flat arrays."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, IntArray
from dask_slaq.core.placement.packing import Amounts, joined


class Workers(Mapping[str, int]):
    """Immutable mapping of address to threads, sorted and summed once."""

    def __init__(self, threads: Mapping[str, int]) -> None:
        self._of = {address: threads[address] for address in sorted(threads)}
        self.addresses = tuple(self._of)
        self.threads = np.array([*self._of.values()], float)
        self.threads.flags.writeable = False
        self.total = sum(self._of.values())

    @classmethod
    def of(cls, workers: Mapping[str, int], before: Workers | None = None) -> Workers:
        """Return `workers` as `Workers`: themselves if they are, or `before` if it equals them."""
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
class Placement:
    """Worker sets of all jobs, as entries by job and worker, and whose set was ``kept``."""

    jobs: Sequence[str]
    addresses: Sequence[str]
    entries: Amounts
    kept: BoolArray

    @cached_property
    def _start(self) -> IntArray:
        return np.searchsorted(self.entries.job, np.arange(len(self.jobs) + 1))

    def at(self, i: int) -> dict[str, float]:
        """Return the threads on each worker of the job at position `i` in `jobs`."""
        here = slice(self._start.item(i), self._start.item(i + 1))
        workers, threads = self.entries.worker[here].tolist(), self.entries.amount[here].tolist()
        return {self.addresses[w]: n for w, n in zip(workers, threads, strict=True)}


def moved(previous: Placement | None, jobs: Sequence[str], addresses: Sequence[str]) -> Amounts:
    """Return the entries of a previous placement, renumbered for the present jobs and workers."""
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


def unchanged(before: Amounts, after: Amounts, n_jobs: int) -> BoolArray:
    """Return which jobs (n_jobs,) have the same threads, or none, on the same workers in both."""
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


def bytes_of(
    affinity: Mapping[str, Mapping[str, float]], jobs: Sequence[str], place_of: Mapping[str, int]
) -> Amounts:
    """Return the bytes of the `jobs` on the workers that have a position in `place_of`."""
    found = [
        (row, place_of[address], amount)
        for row, job in enumerate(jobs if affinity else [])
        if job in affinity
        for address, amount in affinity[job].items()
        if address in place_of
    ]
    job, worker, amount = np.array(found, float).reshape(-1, 3).T
    return Amounts(job.astype(np.int64), worker.astype(np.int64), amount)


def numbered(names: Sequence[str]) -> dict[str, int]:
    """Return the position of each name in a sequence."""
    return {name: i for i, name in enumerate(names)}
