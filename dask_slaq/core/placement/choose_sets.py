"""Choice of each job's worker set, from the shares of all jobs.

Jobs keep their workers as far as shares allow, and grow towards the workers that hold their data.
Whole threads are placed first, each on one worker. Fractions then share the remaining threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from dask_slaq.core.jobs.arrays import EPSILON_THREADS, BoolArray, FloatArray, IntArray
from dask_slaq.core.placement.packing import Amounts, FreeThreads, joined


def place_all(
    jobs: Sequence[str],
    share: FloatArray,
    workers: Workers,
    previous: Placement | None,
    eligible: Mapping[str, Collection[str]],
    affinity: Mapping[str, Mapping[str, float]],
) -> Placement:
    """Compute the worker sets of all `jobs`, sorted by name, from their `share` of threads.

    `eligible` has the workers that a job may use, if not all; those with the fewest choose first.
    `affinity` has the bytes of each job's data on each worker. No worker gets more threads than it
    has, and a job with a share has a set if it has an eligible worker, be it a shared one. A
    shrinking job gives up fractions first, then the workers with the fewest of its bytes.
    """
    addresses, threads = workers.addresses, workers.threads
    place_of = numbered(addresses) if eligible or affinity else {}
    share = np.where(share > 0, share, 0.0)
    if share.sum() > threads.sum() + EPSILON_THREADS:
        share *= threads.sum() / share.sum()
    board = FreeThreads(threads, len(jobs))
    before = moved(previous, jobs, addresses)
    near = bytes_of(affinity, jobs, place_of)
    groups = _by_eligible(jobs, threads, eligible, place_of)
    for mine, group in groups:
        _place_group(board, group, mine, share, before, near)
    for mine, group in groups:
        unplaced = group[(board.held[group] == 0) & (share[group] > 0)]
        board.squeeze_in(unplaced, mine, share)
    entries = board.placed()
    return Placement(jobs, addresses, entries, unchanged(before, entries, len(jobs)))


def _place_group(
    board: FreeThreads,
    jobs: IntArray,
    workers: IntArray,
    share: FloatArray,
    before: Amounts,
    near: Amounts,
) -> None:
    """Place jobs that have the same eligible workers."""
    mine, inside = _mask(jobs, len(share)), _mask(workers, len(board.free))
    share = np.where(mine, share, 0.0)
    room = board.free[workers].sum()
    if share.sum() > room + EPSILON_THREADS:
        share *= max(room, 0.0) / share.sum()
    # The last position stands for workers that are gone.
    inside = np.append(inside, False)
    before = before.of(mine[before.job])
    total = np.bincount(before.job, before.amount, len(share))
    as_before = mine & (share > 0) & (np.abs(total - share) <= EPSILON_THREADS)
    as_before[before.job[~inside[before.worker]]] = False
    kept = board.keep(before.of(as_before[before.job]))
    mine &= ~kept & (share > 0)
    if mine.any():
        here = mine[before.job] & inside[before.worker], mine[near.job] & inside[near.worker]
        _place_changed(board, mine, workers, share, before.of(here[0]), near.of(here[1]))


def _place_changed(
    board: FreeThreads,
    mine: BoolArray,
    workers: IntArray,
    share: FloatArray,
    before: Amounts,
    near: Amounts,
) -> None:
    """Place the jobs whose sets change: whole threads first, then fractions."""
    places, data = _by_preference(before, near, len(board.free))
    whole = np.where(mine, np.floor(share + EPSILON_THREADS), 0.0)
    part = np.where(mine, np.maximum(share - whole, 0.0), 0.0)
    left = places.amount - board.keep_whole(places, whole)
    wish = places._replace(amount=left).of(left > 2 * EPSILON_THREADS)
    first = np.diff(wish.job, prepend=-1) != 0
    reserved = np.zeros(len(board.free))
    np.add.at(reserved, wish.worker[first], part[wish.job[first]])
    own = np.zeros(len(places.job))
    own[np.flatnonzero(left > 2 * EPSILON_THREADS)[first]] = part[wish.job[first]]
    growing = np.flatnonzero(whole[places.job] > 0)
    places, data, own = places.of(growing), data[growing], own[growing]
    order = np.lexsort((places.worker, places.job, -places.amount, -data))
    board.grow_near(places.of(order), whole, reserved, own[order])
    jobs = np.flatnonzero(mine)
    # Threads that are reserved for fractions are taken only when no others are left.
    for spared in (reserved, 0.0 * reserved):
        board.grow_anywhere(jobs, workers, whole, spared)
    part += whole  # threads for which no worker had a whole one left
    if not (part > EPSILON_THREADS).any():
        return
    board.put_parts(wish, part)
    board.put_pieces(wish, part)
    held = board.placed()
    held = held.of((part > EPSILON_THREADS)[held.job])
    held, _ = _by_preference(held, near.of((part > EPSILON_THREADS)[near.job]), len(board.free))
    board.put_parts(held, part)
    board.fit_parts(jobs, workers, part)


def _by_preference(threads: Amounts, near: Amounts, n_workers: int) -> tuple[Amounts, FloatArray]:
    """Return the workers that each job prefers, by bytes, then by threads; and the bytes."""
    if not len(near.job):
        # A single key on nearly sorted data: ten times faster than two keys.
        rank = threads.amount * (0.5 / threads.amount.max(initial=EPSILON_THREADS))
        return threads.of(np.argsort(threads.job - rank, kind="stable")), 0.0 * threads.amount
    nothing = 0.0 * near.amount, 0.0 * threads.amount
    places = joined([threads, near._replace(amount=nothing[0])], n_workers)
    data = joined([threads._replace(amount=nothing[1]), near], n_workers).amount
    order = np.lexsort((-places.amount, -data, places.job))
    return places.of(order), data[order]


def _by_eligible(
    jobs: Sequence[str],
    threads: FloatArray,
    eligible: Mapping[str, Collection[str]],
    place_of: Mapping[str, int],
) -> list[tuple[IntArray, IntArray]]:
    """Group the jobs by their eligible workers. Returns (workers, jobs), fewest workers first."""
    everywhere = np.flatnonzero(threads > 0)
    if not eligible:
        return [(everywhere, np.arange(len(jobs)))]
    sets = {id(names): names for names in eligible.values()}
    usable = {
        key: tuple(sorted({place_of[w] for w in names if w in place_of and threads[place_of[w]]}))
        for key, names in sets.items()
    }
    all_of_them = tuple(everywhere.tolist())
    groups: dict[tuple[int, ...], list[int]] = {}
    for i, job in enumerate(jobs):
        mine = usable[id(eligible[job])] if job in eligible else all_of_them
        groups.setdefault(mine, []).append(i)
    return [
        (np.array(mine, np.int64), np.array(groups[mine]))
        for mine in sorted(groups, key=lambda mine: (len(mine), mine))
    ]


def _mask(places: IntArray, n: int) -> BoolArray:
    mask = np.zeros(n, bool)
    mask[places] = True
    return mask


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
