"""The steps of placement, on flat arrays of (job, worker, threads).

A step never walks over jobs: jobs that want the same threads are lined up, and the running sum
says who gets them. Jobs and workers are numbers; the smaller one goes first where two tie.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]

#: Threads; what is smaller is rounding.
EPSILON = 1e-9
#: Rounds in which jobs ask for their next best worker before they take any.
ROUNDS = 8


class Assignment(NamedTuple):
    """Threads of jobs on workers, or bytes; one element each a pair of job and worker."""

    job: IntArray
    worker: IntArray
    amount: FloatArray

    def of(self, some: BoolArray | IntArray) -> Assignment:
        """Those at these places, or where it is true."""
        return Assignment(self.job[some], self.worker[some], self.amount[some])


def starts(ordered: IntArray) -> IntArray:
    """Where runs of equal numbers start.

    >>> starts(np.array([3, 3, 5, 7, 7])).tolist()
    [0, 2, 3]
    """
    new = np.ones(len(ordered), bool)  # `np.diff` takes several times as long on few
    np.not_equal(ordered[1:], ordered[:-1], out=new[1:])
    return np.flatnonzero(new)


def joined(parts: list[Assignment], n_workers: int) -> Assignment:
    """All entries as one, sorted by job and worker, with the amounts of equal pairs summed."""
    if not parts:
        return Assignment(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))
    job, worker, amount = (np.concatenate(column) for column in zip(*parts, strict=True))
    key = job * n_workers + worker
    order = np.argsort(key, kind="stable")
    key, amount = key[order], amount[order]
    first = starts(key)
    total = np.add.reduceat(amount, first) if len(first) else amount
    return Assignment(job[order][first], worker[order][first], total)


def in_turn(group: IntArray, wanted: FloatArray, limit: FloatArray) -> FloatArray:
    """What each gets of what its group has, those that stand first served first.

    Parameters
    ----------
    group : (n,) array of int
    wanted : (n,) array
        Amounts asked for.
    limit : (n,) array
        What the group has in total; may be less for one member than for another.

    Examples
    --------
    >>> in_turn(np.array([7, 5, 7]), np.array([2.0, 1.0, 2.0]), np.array([3.0, 9.0, 3.0]))
    array([2., 1., 1.])
    """
    return np.clip(limit - (_running(group, wanted) - wanted), 0.0, wanted)


def _running(group: IntArray, amount: FloatArray) -> FloatArray:
    """Running sums within each group, in the order in which members stand."""
    order = _by_group(group)
    total = np.cumsum(amount[order])
    first = starts(group[order])
    before = np.zeros(len(first))
    before[1:] = total[first[1:] - 1]
    running = np.empty(len(amount))
    running[order] = total - np.repeat(before, np.diff(first, append=len(group)))
    return running


def _by_group(group: IntArray) -> IntArray:
    """Places in the order of their groups, whole numbers below 2 ** 32; ties as they stand.

    NumPy sorts 16 bits at a time by radix, many times faster than it compares whole numbers.
    """
    if not (np.diff(group) < 0).any():
        return np.arange(len(group))
    order = np.argsort(group.astype(np.uint16), kind="stable")
    if group.max() >> 16:
        order = order[np.argsort((group[order] >> 16).astype(np.uint16), kind="stable")]
    return order


def lay_out(demand: FloatArray, room: FloatArray) -> Assignment:
    """Lay demands end to end over rooms laid end to end, and cut where either ends.

    Examples
    --------
    >>> lay_out(np.array([3.0, 1.0]), np.array([2.0, 9.0])).amount
    array([2., 1., 1.])
    """
    ends, borders = np.cumsum(demand), np.cumsum(room)
    if not (len(ends) and len(borders)):
        return joined([], 1)
    cuts = np.union1d(ends, borders)
    cuts = cuts[cuts <= min(ends[-1], borders[-1]) + EPSILON]
    starts = np.concatenate([[0.0], cuts[:-1]])
    amount = cuts - starts
    middle = starts + amount / 2
    found = Assignment(np.searchsorted(ends, middle), np.searchsorted(borders, middle), amount)
    return found.of(amount > EPSILON)


class FreeThreads:
    """Free threads of the workers, and what was placed so far.

    Parameters
    ----------
    threads : (n_workers,) array
    n_jobs : int

    Attributes
    ----------
    free : (n_workers,) array
    held : (n_jobs,) array
        Threads placed of each job.
    """

    def __init__(self, threads: FloatArray, n_jobs: int) -> None:
        self.threads = threads
        self.free = threads.copy()
        self.held = np.zeros(n_jobs)
        self._placed: list[Assignment] = []

    def put(self, entries: Assignment) -> None:
        """Place these."""
        entries = entries.of(entries.amount > 0)
        self._placed.append(entries)
        self.free -= np.bincount(entries.worker, entries.amount, len(self.free))
        self.held += np.bincount(entries.job, entries.amount, len(self.held))

    def placed(self) -> Assignment:
        """All that was placed, sorted by job and worker."""
        entries = joined(self._placed, len(self.free))
        self._placed = [entries]
        return entries

    def keep(self, before: Assignment) -> BoolArray:
        """Leave jobs as they were where there is room for all they had; whose (n_jobs,) it is."""
        n_jobs, n_workers = len(self.held), len(self.free)
        kept = np.zeros(n_jobs, dtype=bool)
        kept[before.job] = True
        usage = np.bincount(before.worker, before.amount, n_workers)
        tight = (usage > self.free + 10 * EPSILON)[before.worker]
        if tight.any():
            on = before.of(tight)
            over = _running(on.worker, on.amount) > self.free[on.worker] + EPSILON
            kept[on.job[over]] = False
            before = before.of(kept[before.job])
        self.put(before)
        return kept

    def keep_whole(self, before: Assignment, whole: FloatArray) -> FloatArray:
        """Keep whole threads where jobs have them; `before` is sorted by job, the best first.

        Returns
        -------
        (n,) array
            Threads kept of each entry; `whole`, what is wanted of each job, goes down by them.
        """
        had = np.floor(before.amount + EPSILON)
        wanted = in_turn(before.job, had, whole[before.job])
        room = np.floor(self.free + EPSILON)[before.worker]
        taken = in_turn(before.worker, wanted, room)
        self._take(before, taken, whole)
        return taken

    def grow_near(
        self, places: Assignment, whole: FloatArray, reserved: FloatArray, own: FloatArray
    ) -> None:
        """Whole threads on these workers, best places first, but for what is reserved there.

        `own` is the part of the reserved threads that is the job's.
        """
        for _ in range(ROUNDS):
            room = np.floor((self.free - reserved)[places.worker] + own + EPSILON)
            open_ = (room > 0) & (whole[places.job] > 0)
            if not open_.any():
                return
            places, own, room = places.of(open_), own[open_], room[open_]
            wanted = in_turn(places.job, room, whole[places.job])
            self._take(places, in_turn(places.worker, wanted, room), whole)

    def grow_anywhere(
        self, jobs: IntArray, workers: IntArray, whole: FloatArray, spared: FloatArray
    ) -> None:
        """Whole threads on the first workers that have them, but for what is spared there."""
        jobs = jobs[whole[jobs] > 0]
        if not len(jobs):
            return
        room = np.floor((self.free - spared)[workers] + EPSILON)
        workers, room = workers[room > 0], room[room > 0]
        laid = lay_out(whole[jobs], room)
        places = Assignment(jobs[laid.job], workers[laid.worker], laid.amount)
        self._take(places, laid.amount, whole)

    def _take(self, places: Assignment, taken: FloatArray, wanted: FloatArray) -> None:
        self.put(places._replace(amount=taken))
        wanted -= np.bincount(places.job, taken, len(wanted))

    def put_parts(self, places: Assignment, part: FloatArray) -> None:
        """Fractions in one piece, each on the first of its places with room for it.

        `places` are sorted by job, best first; the smallest fractions go first, so that most fit.
        """
        for _ in range(ROUNDS):
            places = places.of(part[places.job] > EPSILON)
            fits = self.free[places.worker] >= part[places.job] - EPSILON
            places = places.of(fits)
            if not len(places.job):
                return
            asked = places.of(starts(places.job))
            asked = asked.of(np.lexsort((asked.job, part[asked.job])))
            amount = part[asked.job]
            fits = _running(asked.worker, amount) <= self.free[asked.worker] + EPSILON
            self._take(asked, np.where(fits, amount, 0.0), part)

    def put_pieces(self, places: Assignment, part: FloatArray) -> None:
        """Fractions that were in pieces stay so, where the pieces suffice."""
        enough = np.bincount(places.job, places.amount, len(part)) >= part - EPSILON
        places = places.of(enough[places.job] & (part[places.job] > EPSILON))
        wanted = in_turn(places.job, places.amount, part[places.job])
        taken = in_turn(places.worker, wanted, np.maximum(self.free[places.worker], 0.0))
        self._take(places, taken, part)

    def fit_parts(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> None:
        """Fractions into the tightest rooms, then side by side, and the last ones in pieces."""
        for _ in range(ROUNDS):
            self._fit_tightly(jobs, workers, part)
            jobs = jobs[part[jobs] > EPSILON]
            if not self._fit_side_by_side(jobs, workers, part):
                break
        jobs = jobs[part[jobs] > EPSILON]
        jobs, workers = jobs[np.argsort(-part[jobs], kind="stable")], self._with_room(workers)
        laid = lay_out(part[jobs], self.free[workers])
        places = Assignment(jobs[laid.job], workers[laid.worker], laid.amount)
        self._take(places, places.amount, part)

    def _fit_tightly(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> None:
        """Fractions into rooms of less than a thread, one in each, the least that holds it."""
        workers = self._with_room(workers)
        workers = workers[self.free[workers] < 1.0 - EPSILON]
        workers = workers[np.argsort(self.free[workers], kind="stable")]
        jobs = jobs[part[jobs] > EPSILON]
        jobs = jobs[np.argsort(-part[jobs], kind="stable")][: len(workers)][::-1]
        number = np.arange(len(jobs))
        least = np.searchsorted(self.free[workers], part[jobs] - EPSILON)
        # Each takes the next room after the one before it, if that is the larger one.
        at = np.maximum.accumulate(least - number) + number if len(jobs) else least
        jobs, workers = jobs[at < len(workers)], workers[at[at < len(workers)]]
        self._take(Assignment(jobs, workers, part[jobs]), part[jobs], part)

    def _fit_side_by_side(self, jobs: IntArray, workers: IntArray, part: FloatArray) -> bool:
        """Fractions end to end on workers with a thread or more; whether any were placed.

        Those that would be torn between two workers wait for the next round.
        """
        workers = self._with_room(workers)
        workers = workers[self.free[workers] >= 1.0 - EPSILON]
        if not (len(jobs) and len(workers)):
            return False
        jobs = jobs[np.argsort(-part[jobs], kind="stable")]
        ends, borders = np.cumsum(part[jobs]), np.cumsum(self.free[workers])
        first = np.searchsorted(borders, ends - part[jobs] + EPSILON)
        last = np.searchsorted(borders, ends - EPSILON)
        within = (first == last) & (last < len(workers))
        jobs, workers = jobs[within], workers[last[within]]
        self._take(Assignment(jobs, workers, part[jobs]), part[jobs], part)
        return bool(within.any())

    def _with_room(self, workers: IntArray) -> IntArray:
        return workers[self.free[workers] > EPSILON]

    def squeeze_in(self, jobs: IntArray, workers: IntArray, share: FloatArray) -> None:
        """Put jobs on full workers, which all on them then share in proportion."""
        if not (len(jobs) and len(workers)):
            return
        here = self.placed()
        crowd = np.bincount(here.worker, minlength=len(self.free))[workers] / self.threads[workers]
        workers = workers[np.argsort(crowd, kind="stable")]
        chosen = workers[np.arange(len(jobs)) % len(workers)]
        self.put(Assignment(jobs, chosen, np.minimum(share[jobs], self.threads[chosen])))
        here = self.placed()
        used = np.bincount(here.worker, here.amount, len(self.free))
        scale = np.minimum(1.0, self.threads / np.maximum(used, EPSILON))
        self._placed = [here._replace(amount=here.amount * scale[here.worker])]
        self.free = np.maximum(self.threads - used, 0.0)
