"""Amounts of threads or bytes of jobs on workers, as flat arrays of (job, worker, amount).

No step loops over jobs: jobs that want the same threads are put in order, and a running sum
determines which of them get the threads. In a tie, the smaller number goes first.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, FloatArray, IntArray

#: Threads. Smaller amounts are rounding.
EPSILON = 1e-9


class Amounts(NamedTuple):
    """Threads (or bytes) of jobs on workers, with one element per pair of job and worker."""

    job: IntArray
    worker: IntArray
    amount: FloatArray

    def of(self, some: BoolArray | IntArray) -> Amounts:
        """Return the elements at these positions, or where a mask is true."""
        return Amounts(self.job[some], self.worker[some], self.amount[some])


def starts(ordered: IntArray) -> IntArray:
    """Return the positions where runs of equal numbers start.

    >>> starts(np.array([3, 3, 5, 7, 7])).tolist()
    [0, 2, 3]
    """
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


def in_turn(group: IntArray, wanted: FloatArray, limit: FloatArray) -> FloatArray:
    """Serve the members of each `group` (n,) in order, up to the `limit` (n,) of their group.

    Returns the amount (n,) that each gets of what it `wanted` (n,).

    >>> in_turn(np.array([7, 5, 7]), np.array([2.0, 1.0, 2.0]), np.array([3.0, 9.0, 3.0]))
    array([2., 1., 1.])
    """
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
    """Lay each `demand` (n_jobs,) end to end over each `room` (n_workers,); cut where either ends.

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
    found = Amounts(np.searchsorted(ends, middle), np.searchsorted(borders, middle), amount)
    return found.of(amount > EPSILON)
