"""Placement: from shares to worker sets.

Stable: a job keeps the workers it has as far as its share and the others' allow. Data-aware: it
grows towards its bytes. Deterministic: the same input in any order gives the same sets. Whole
threads are placed first, each on one worker; fractions then share the threads that remain.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Iterable, Mapping
from heapq import nsmallest
from itertools import cycle
from math import floor

#: Threads; what is smaller is rounding.
EPSILON = 1e-9

Sets = dict[str, dict[str, float]]


def place(
    shares: Mapping[str, float],
    workers: Mapping[str, int],
    previous: Mapping[str, Mapping[str, float]] | None = None,
    *,
    eligible: Mapping[str, Collection[str]] | None = None,
    affinity: Mapping[str, Mapping[str, float]] | None = None,
) -> Sets:
    """Worker sets for the shares of all jobs.

    Parameters
    ----------
    shares : mapping of job to float
        Threads; scaled down in proportion where they sum to more than the workers have.
    workers : mapping of address to int
        Threads of each worker.
    previous : mapping of job to mapping of address to float, optional
        The sets of the last epoch; gone jobs and workers are passed over.
    eligible : mapping of job to collection of addresses, optional
        Workers a job may use; jobs that are not listed may use all. Jobs with the fewest
        eligible workers choose first, also where others were before.
    affinity : mapping of job to mapping of address to float, optional
        Bytes of the job's data on each worker.

    Returns
    -------
    dict of job to dict of address to float
        Threads on each worker, every job of `shares` listed. No worker is given more threads
        than it has (but for rounding below 1e-9). A job with a share has a non-empty set if it
        has an eligible worker; where those are taken, they are shared and each holder gets less.

    Notes
    -----
    A job whose share and workers have not changed keeps its set, unless a job with fewer
    eligible workers takes a place. A shrinking job gives up fractions first, then the workers
    with the fewest of its bytes, then those with the fewest of its threads.

    Examples
    --------
    >>> place({"a": 1.5, "b": 1.5}, {"w1": 1, "w2": 1, "w3": 1})
    {'a': {'w1': 1.0, 'w3': 0.5}, 'b': {'w2': 1.0, 'w3': 0.5}}
    >>> place({"a": 2, "b": 1}, {"w1": 1, "w2": 1, "w3": 1}, {"b": {"w1": 1}})
    {'a': {'w2': 1.0, 'w3': 1.0}, 'b': {'w1': 1.0}}
    """
    workers = {name: threads for name, threads in workers.items() if threads > 0}
    total, capacity = sum(shares.values()), sum(workers.values())
    scale = capacity / total if total > capacity + EPSILON else 1.0
    jobs = [
        _Job(name, shares[name] * scale, (previous or {}).get(name, {}), (affinity or {}).get(name))
        for name in sorted(shares)
        if shares[name] > 0
    ]
    board = _Board(workers)
    groups = _by_eligible(jobs, workers, eligible or {})
    for addresses, group in groups:
        board.place_group(group, addresses)
    for addresses, group in groups:
        board.squeeze_in([job for job in group if not job.held], addresses, jobs)
    held = {job.name: job.held for job in jobs}
    return {name: held.get(name, {}) for name in shares}


def _by_eligible(
    jobs: list[_Job], workers: Mapping[str, int], eligible: Mapping[str, Collection[str]]
) -> list[tuple[list[str], list[_Job]]]:
    """Jobs grouped by eligible workers (sorted), the group with the fewest workers first."""
    everywhere = frozenset(workers)
    usable = {id(names): everywhere.intersection(names) for names in eligible.values()}
    groups: dict[frozenset[str], list[_Job]] = {}
    for job in jobs:
        mine = usable[id(eligible[job.name])] if job.name in eligible else everywhere
        groups.setdefault(mine, []).append(job)
    ordered = [(sorted(mine), group) for mine, group in groups.items()]
    return sorted(ordered, key=lambda item: (len(item[0]), item[0]))


class _Job:
    """A job while it is being placed.

    Attributes
    ----------
    wanted, share : float
        Threads it came for, and those that its eligible workers have room for.
    held : dict of address to float
        Threads placed so far.
    whole, part : int, float
        Whole threads and the fraction of one that are still to be placed.
    wish : list of address
        Workers on which it had more than the whole threads it keeps there, best first.
    """

    __slots__ = ("held", "name", "near", "part", "previous", "share", "wanted", "whole", "wish")

    def __init__(
        self,
        name: str,
        share: float,
        previous: Mapping[str, float],
        near: Mapping[str, float] | None,
    ) -> None:
        self.name = name
        self.wanted = self.share = share
        self.previous = previous
        self.near = near or {}
        self.held: dict[str, float] = {}
        self.whole = floor(share + EPSILON)
        self.part = max(share - self.whole, 0.0)
        self.wish: list[str] = []

    def scale(self, factor: float) -> None:
        """Make do with less."""
        self.share *= factor
        self.whole = floor(self.share + EPSILON)
        self.part = max(self.share - self.whole, 0.0)

    def missing(self) -> bool:
        """Whether a fraction is still to be placed: any at all if it is all there is."""
        return self.part > (EPSILON if self.held else 0.0)

    def best(self, addresses: Iterable[str], count: int) -> list[str]:
        """The best of these workers: most bytes first, then most threads before."""
        near, previous = self.near, self.previous
        return nsmallest(
            count, addresses, key=lambda w: (-near.get(w, 0.0), -previous.get(w, 0.0), w)
        )


class _Board:
    """Free threads of the workers while jobs are being placed."""

    def __init__(self, workers: Mapping[str, int]) -> None:
        self.workers = workers
        self.free: dict[str, float] = {name: float(n) for name, n in workers.items()}

    def put(self, job: _Job, worker: str, threads: float) -> None:
        """Give the job threads on a worker."""
        job.held[worker] = job.held.get(worker, 0.0) + threads
        self.free[worker] -= threads

    def place_group(self, jobs: list[_Job], addresses: list[str]) -> None:
        """Place jobs that may use the same workers."""
        inside = set(addresses)
        wanted, room = sum(job.share for job in jobs), sum(self.free[w] for w in addresses)
        if wanted > room + EPSILON:
            for job in jobs:
                job.scale(room / wanted)
        changed = [job for job in jobs if not self.keep_all(job, inside)]
        reserved: dict[str, float] = {}
        for job in changed:
            self.keep_whole(job, inside)
            if job.part > EPSILON and job.wish:
                reserved[job.wish[0]] = reserved.get(job.wish[0], 0.0) + job.part
        growing = [job for job in changed if job.whole]
        self.grow_near(growing, inside, reserved)
        # Threads that fractions are on are taken only when no others are left.
        for spared in (reserved, {}):
            self.grow_anywhere([job for job in growing if job.whole], addresses, spared)
        for job in growing:
            job.part += job.whole  # no worker had a whole thread left
        self.place_parts([job for job in changed if job.missing()], addresses)

    def keep_all(self, job: _Job, inside: Collection[str]) -> bool:
        """Leave a job whose share has not changed as it was, if there is room."""
        free, previous = self.free, job.previous
        if abs(sum(previous.values()) - job.share) > EPSILON:
            return False
        for worker, threads in previous.items():
            if worker not in inside or free[worker] < threads - EPSILON:
                return False
        for worker, threads in previous.items():
            free[worker] -= threads
        job.held = {worker: float(threads) for worker, threads in previous.items()}
        return True

    def keep_whole(self, job: _Job, inside: Collection[str]) -> None:
        """Keep whole threads where the job has them, and note where it has more."""
        mine = [worker for worker in job.previous if worker in inside]
        for worker in job.best(mine, len(mine)):
            had = job.previous[worker] + EPSILON
            keep = min(floor(had), job.whole, floor(self.free[worker] + EPSILON))
            if keep:
                self.put(job, worker, keep)
                job.whole -= keep
            if had - keep > 2 * EPSILON:
                job.wish.append(worker)

    def grow_near(self, jobs: list[_Job], inside: set[str], reserved: Mapping[str, float]) -> None:
        """Whole threads where a job's bytes are, most bytes first, and then where it is."""
        wanted = [
            (-job.near.get(worker, 0.0), -job.previous.get(worker, 0.0), job.name, worker, job)
            for job in jobs
            # No worker further down the list is likely to be reached.
            for worker in job.best(inside & {*job.previous, *job.near}, 2 * job.whole + 4)
        ]
        for _, _, _, worker, job in sorted(wanted, key=lambda item: item[:4]):
            own = job.part if job.wish[:1] == [worker] else 0.0
            room = floor(self.free[worker] - reserved.get(worker, 0.0) + own + EPSILON)
            take = min(room, job.whole)
            if take > 0:
                self.put(job, worker, take)
                job.whole -= take

    def grow_anywhere(
        self, jobs: list[_Job], addresses: list[str], spared: Mapping[str, float]
    ) -> None:
        """Whole threads on the first workers that have them, but for spared ones."""
        places = iter(addresses)
        worker, room = "", 0
        for job in jobs:
            while job.whole:
                while room <= 0:
                    worker = next(places, "")
                    if not worker:
                        return
                    room = floor(self.free[worker] - spared.get(worker, 0.0) + EPSILON)
                take = min(room, job.whole)
                self.put(job, worker, take)
                job.whole -= take
                room -= take

    def place_parts(self, jobs: list[_Job], addresses: list[str]) -> None:
        """Fractions: where they were, else near, else into the tightest room, else in pieces."""
        jobs = [job for job in jobs if not self._put_first(job, job.wish)]
        jobs.sort(key=lambda job: (-job.part, job.name))
        inside = set(addresses)
        jobs = [
            job
            for job in jobs
            if not self._put_first(job, job.best(inside & {*job.held, *job.near}, 8))
        ]
        rooms = sorted((self.free[w], w) for w in addresses if self.free[w] > EPSILON)
        for job in jobs:
            while job.missing() and rooms:
                at = bisect_left(rooms, (job.part - EPSILON, ""))
                room, worker = rooms.pop(min(at, len(rooms) - 1))
                take = min(room, job.part)
                self.put(job, worker, take)
                job.part -= take
                if room - take > EPSILON:
                    insort(rooms, (room - take, worker))

    def _put_first(self, job: _Job, candidates: Iterable[str]) -> bool:
        """Put the job's fraction on the first candidate with room for it."""
        for worker in candidates:
            if self.free[worker] >= job.part - EPSILON:
                self.put(job, worker, job.part)
                return True
        return False

    def squeeze_in(self, unplaced: list[_Job], addresses: list[str], jobs: list[_Job]) -> None:
        """Share full workers with those on them, each in proportion to what it holds."""
        if not unplaced or not addresses:
            return
        holders: dict[str, list[_Job]] = {worker: [] for worker in addresses}
        for job in jobs:
            for worker in job.held.keys() & holders.keys():
                holders[worker].append(job)
        addresses = sorted(addresses, key=lambda w: (len(holders[w]) / self.workers[w], w))
        for job, worker in zip(unplaced, cycle(addresses), strict=False):
            threads = float(self.workers[worker])
            job.held[worker] = min(job.wanted, threads)
            holders[worker].append(job)
            total = sum(holder.held[worker] for holder in holders[worker])
            for holder in holders[worker]:
                holder.held[worker] *= min(1.0, threads / total)
            self.free[worker] = max(threads - total, 0.0)
