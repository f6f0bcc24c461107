"""Packing of the jobs' threads into the free threads of the workers, step by step."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.jobs.arrays import EPSILON_THREADS, BoolArray, FloatArray, IntArray

#: Rounds in which jobs ask for their next best worker before they take any.
ROUNDS = 8


class FreeThreads:
    """Threads of the workers: those still ``free`` (n_workers,), and those ``held`` (n_jobs,)."""

    def __init__(self, threads: FloatArray, n_jobs: int) -> None:
        self.threads = threads
        self.free = threads.copy()
        self.held = np.zeros(n_jobs)
        self._placed: list[Amounts] = []

    def put(self, entries: Amounts) -> None:
        """Place the given threads."""
        entries = entries.of(entries.amount > 0)
        self._placed.append(entries)
        self.free -= np.bincount(entries.worker, entries.amount, len(self.free))
        self.held += np.bincount(entries.job, entries.amount, len(self.held))

    def placed(self) -> Amounts:
        """Return all placed threads, sorted by job and worker."""
        entries = joined(self._placed, len(self.free))
        self._placed = [entries]
        return entries

    def keep(self, before: Amounts) -> BoolArray:
        """Keep the sets of jobs for which there is room. Returns which jobs (n_jobs,) are kept."""
        n_jobs, n_workers = len(self.held), len(self.free)
        kept = np.zeros(n_jobs, dtype=bool)
        kept[before.job] = True
        usage = np.bincount(before.worker, before.amount, n_workers)
        tight = (usage > self.free + 10 * EPSILON_THREADS)[before.worker]
        if tight.any():
            on = before.of(tight)
            over = running_sums(on.worker, on.amount) > self.free[on.worker] + EPSILON_THREADS
            kept[on.job[over]] = False
            before = before.of(kept[before.job])
        self.put(before)
        return kept

    def keep_whole(self, before: Amounts, whole: FloatArray) -> FloatArray:
        """Keep the whole threads that jobs have and still want. Returns them (n,) by place."""
        had = np.floor(before.amount + EPSILON_THREADS)
        wanted = one_by_one(before.job, had, whole[before.job])
        room = np.floor(self.free + EPSILON_THREADS)[before.worker]
        taken = one_by_one(before.worker, wanted, room)
        self._take(before, taken, whole)
        return taken

    def grow_near(
        self, places: Amounts, whole: FloatArray, reserved: FloatArray, own: FloatArray
    ) -> None:
        """Place whole threads on preferred workers, but for `reserved` ones of others."""
        for _ in range(ROUNDS):
            room = np.floor((self.free - reserved)[places.worker] + own + EPSILON_THREADS)
            open_ = (room > 0) & (whole[places.job] > 0)
            if not open_.any():
                return
            places, own, room = places.of(open_), own[open_], room[open_]
            wanted = one_by_one(places.job, room, whole[places.job])
            self._take(places, one_by_one(places.worker, wanted, room), whole)

    def grow_anywhere(
        self, jobs: IntArray, workers: IntArray, whole: FloatArray, spared: FloatArray
    ) -> None:
        """Place `whole` threads of `jobs` on the first `workers`, except `spared` (n_workers,)."""
        jobs = jobs[whole[jobs] > 0]
        if not len(jobs):
            return
        room = np.floor((self.free - spared)[workers] + EPSILON_THREADS)
        workers, room = workers[room > 0], room[room > 0]
        laid = lay_out(whole[jobs], room)
        places = Amounts(jobs[laid.job], workers[laid.worker], laid.amount)
        self._take(places, laid.amount, whole)

    def _take(self, places: Amounts, taken: FloatArray, wanted: FloatArray) -> None:
        self.put(places._replace(amount=taken))
        wanted -= np.bincount(places.job, taken, len(wanted))

    def put_parts(self, places: Amounts, part: FloatArray) -> None:
        """Place each `part` on the first of its `places` with room, the smallest first."""
        for _ in range(ROUNDS):
            places = places.of(part[places.job] > EPSILON_THREADS)
            fits = self.free[places.worker] >= part[places.job] - EPSILON_THREADS
            places = places.of(fits)
            if not len(places.job):
                return
            asked = places.of(starts(places.job))
            asked = asked.of(np.lexsort((asked.job, part[asked.job])))
            amount = part[asked.job]
            fits = running_sums(asked.worker, amount) <= self.free[asked.worker] + EPSILON_THREADS
            self._take(asked, np.where(fits, amount, 0.0), part)

    def put_pieces(self, places: Amounts, part: FloatArray) -> None:
        """Keep each `part` in the pieces (`places`) that it was in, if they suffice."""
        enough = np.bincount(places.job, places.amount, len(part)) >= part - EPSILON_THREADS
        places = places.of(enough[places.job] & (part[places.job] > EPSILON_THREADS))
        wanted = one_by_one(places.job, places.amount, part[places.job])
        taken = one_by_one(places.worker, wanted, np.maximum(self.free[places.worker], 0.0))
        self._take(places, taken, part)

    def fit_parts(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> None:
        """Place each `part` of `jobs` on `workers`: tightly, else side by side, else in pieces."""
        for _ in range(ROUNDS):
            self._fit_tightly(jobs, workers, part)
            jobs = jobs[part[jobs] > EPSILON_THREADS]
            if not self._fit_side_by_side(jobs, workers, part):
                break
        jobs = jobs[part[jobs] > EPSILON_THREADS]
        jobs, workers = jobs[np.argsort(-part[jobs], kind="stable")], self._with_room(workers)
        laid = lay_out(part[jobs], self.free[workers])
        places = Amounts(jobs[laid.job], workers[laid.worker], laid.amount)
        self._take(places, places.amount, part)

    def _fit_tightly(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> None:
        """Place fractions on workers with less than a free thread: one each, best fit first."""
        workers = self._with_room(workers)
        workers = workers[self.free[workers] < 1.0 - EPSILON_THREADS]
        workers = workers[np.argsort(self.free[workers], kind="stable")]
        jobs = jobs[part[jobs] > EPSILON_THREADS]
        jobs = jobs[np.argsort(-part[jobs], kind="stable")][: len(workers)][::-1]
        number = np.arange(len(jobs))
        least = np.searchsorted(self.free[workers], part[jobs] - EPSILON_THREADS)
        # Each fraction goes to the smallest room that fits, after the room of the one before.
        at = np.maximum.accumulate(least - number) + number if len(jobs) else least
        jobs, workers = jobs[at < len(workers)], workers[at[at < len(workers)]]
        self._take(Amounts(jobs, workers, part[jobs]), part[jobs], part)

    def _fit_side_by_side(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> bool:
        """Place fractions end to end on workers with a free thread."""
        workers = self._with_room(workers)
        workers = workers[self.free[workers] >= 1.0 - EPSILON_THREADS]
        if not (len(jobs) and len(workers)):
            return False
        jobs = jobs[np.argsort(-part[jobs], kind="stable")]
        ends, borders = np.cumsum(part[jobs]), np.cumsum(self.free[workers])
        first = np.searchsorted(borders, ends - part[jobs] + EPSILON_THREADS)
        last = np.searchsorted(borders, ends - EPSILON_THREADS)
        within = (first == last) & (last < len(workers))
        jobs, workers = jobs[within], workers[last[within]]
        self._take(Amounts(jobs, workers, part[jobs]), part[jobs], part)
        return bool(within.any())

    def _with_room(self, workers: IntArray) -> IntArray:
        return workers[self.free[workers] > EPSILON_THREADS]

    def squeeze_in(self, jobs: IntArray, workers: IntArray, share: FloatArray) -> None:
        """Put jobs on full workers, whose threads all jobs there then share in proportion."""
        if not (len(jobs) and len(workers)):
            return
        here = self.placed()
        crowd = np.bincount(here.worker, minlength=len(self.free))[workers] / self.threads[workers]
        workers = workers[np.argsort(crowd, kind="stable")]
        chosen = workers[np.arange(len(jobs)) % len(workers)]
        self.put(Amounts(jobs, chosen, np.minimum(share[jobs], self.threads[chosen])))
        here = self.placed()
        used = np.bincount(here.worker, here.amount, len(self.free))
        scale = np.minimum(1.0, self.threads / np.maximum(used, EPSILON_THREADS))
        self._placed = [here._replace(amount=here.amount * scale[here.worker])]
        self.free = np.maximum(self.threads - used, 0.0)


class Amounts(NamedTuple):
    """Threads (or bytes) of jobs on workers, with one element per pair of job and worker."""

    job: IntArray
    worker: IntArray
    amount: FloatArray

    def of(self, some: BoolArray | IntArray) -> Amounts:
        """Return the elements at these positions, or where a mask is true."""
        return Amounts(self.job[some], self.worker[some], self.amount[some])


def starts(ordered: IntArray) -> IntArray:
    """Return the positions where runs of equal numbers start."""
    new = np.ones(len(ordered), bool)  # several times faster than `np.diff` on short arrays
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.flatnonzero(new)


def joined(parts: list[Amounts], n_workers: int) -> Amounts:
    """Concatenate `parts`, sort them by job and worker (one of `n_workers`), and add up equals."""
    if not parts:
        return Amounts(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    job, worker, amount = (np.concatenate(column) for column in zip(*parts, strict=True))
    key = job * n_workers + worker
    order = np.argsort(key, kind="stable")
    key, amount = key[order], amount[order]
    first = starts(key)
    total = np.add.reduceat(amount, first) if len(first) else amount
    return Amounts(job[order][first], worker[order][first], total)


def one_by_one(group: IntArray, wanted: FloatArray, limit: FloatArray) -> FloatArray:
    """Return what each member of a `group` gets of what it `wanted`, up to the group's `limit`."""
    return np.clip(limit - (running_sums(group, wanted) - wanted), 0.0, wanted)


def running_sums(group: IntArray, amount: FloatArray) -> FloatArray:
    """Return the running sums (n,) of `amount` (n,) within each `group` (n,)."""
    order = _by_group(group)
    total = np.cumsum(amount[order])
    first = starts(group[order])
    before = np.zeros(len(first))
    before[1:] = total[first[1:] - 1]
    running = np.empty(len(amount))
    running[order] = total - np.repeat(before, np.diff(first, append=len(group)))
    return running


def _by_group(group: IntArray) -> IntArray:
    """Return a stable sort order by group. Groups must be below 2 ** 32.

    NumPy sorts 16-bit integers by radix, many times faster than it sorts wider ones.
    """
    if not (np.diff(group) < 0).any():
        return np.arange(len(group))
    order = np.argsort(group.astype(np.uint16), kind="stable")
    if group.max() >> 16:
        order = order[np.argsort((group[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def lay_out(demand: FloatArray, room: FloatArray) -> Amounts:
    """Lay each `demand` end to end over each `room` (n_workers,); cut where either ends."""
    ends, borders = np.cumsum(demand), np.cumsum(room)
    if not (len(ends) and len(borders)):
        return joined([], 1)
    cuts = np.union1d(ends, borders)
    cuts = cuts[cuts <= min(ends[-1], borders[-1]) + EPSILON_THREADS]
    starts = np.concatenate([[0.0], cuts[:-1]])
    amount = cuts - starts
    middle = starts + amount / 2
    found = Amounts(np.searchsorted(ends, middle), np.searchsorted(borders, middle), amount)
    return found.of(amount > EPSILON_THREADS)
