"""Choice of each job's worker set, from the shares of all jobs.

Jobs keep their workers as far as shares allow, and grow towards the workers that hold their data.
Whole threads are placed first, each on one worker. Fractions then share the remaining threads.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.placement.packing import EPSILON, Amounts, FreeThreads, joined
from dask_slaq.core.placement.worker_sets import (
    Placement,
    Workers,
    bytes_of,
    moved,
    numbered,
    unchanged,
)


def place_all(
    jobs: Sequence[str],
    share: FloatArray,
    workers: Workers,
    previous: Placement | None,
    eligible: Mapping[str, Collection[str]],
    affinity: Mapping[str, Mapping[str, float]],
) -> Placement:
    """Compute the worker sets of all `jobs`, which must be sorted by name.

    `share` (n_jobs,) is in threads, and scaled down in proportion if it sums to more than the
    workers have. `eligible` has the workers that a job may use; unlisted jobs may use all. Jobs
    with the fewest eligible workers choose first, even if other jobs used these workers before.
    `affinity` has the bytes of each job's data on each worker.

    No worker gets more threads than it has (apart from rounding below 1e-9). A job with a share has
    a non-empty set if it has an eligible worker: if all of these are full, jobs share one and each
    gets less. A job whose share and workers have not changed keeps its set, unless a job with fewer
    eligible workers takes one of its threads. A shrinking job gives up fractions first, then the
    workers with the fewest of its bytes, then those with the fewest of its threads.
    """
    addresses, threads = workers.addresses, workers.threads
    place_of = numbered(addresses) if eligible or affinity else {}
    share = np.where(share > 0, share, 0.0)
    if share.sum() > threads.sum() + EPSILON:
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
    if share.sum() > room + EPSILON:
        share *= max(room, 0.0) / share.sum()
    # The last position stands for workers that are gone.
    inside = np.append(inside, False)
    before = before.of(mine[before.job])
    total = np.bincount(before.job, before.amount, len(share))
    as_before = mine & (share > 0) & (np.abs(total - share) <= EPSILON)
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
    whole = np.where(mine, np.floor(share + EPSILON), 0.0)
    part = np.where(mine, np.maximum(share - whole, 0.0), 0.0)
    left = places.amount - board.keep_whole(places, whole)
    wish = places._replace(amount=left).of(left > 2 * EPSILON)
    first = np.diff(wish.job, prepend=-1) != 0
    reserved = np.zeros(len(board.free))
    np.add.at(reserved, wish.worker[first], part[wish.job[first]])
    own = np.zeros(len(places.job))
    own[np.flatnonzero(left > 2 * EPSILON)[first]] = part[wish.job[first]]
    growing = np.flatnonzero(whole[places.job] > 0)
    places, data, own = places.of(growing), data[growing], own[growing]
    order = np.lexsort((places.worker, places.job, -places.amount, -data))
    board.grow_near(places.of(order), whole, reserved, own[order])
    jobs = np.flatnonzero(mine)
    # Threads that are reserved for fractions are taken only when no others are left.
    for spared in (reserved, 0.0 * reserved):
        board.grow_anywhere(jobs, workers, whole, spared)
    part += whole  # threads for which no worker had a whole one left
    if not (part > EPSILON).any():
        return
    board.put_parts(wish, part)
    board.put_pieces(wish, part)
    held = board.placed()
    held = held.of((part > EPSILON)[held.job])
    held, _ = _by_preference(held, near.of((part > EPSILON)[near.job]), len(board.free))
    board.put_parts(held, part)
    board.fit_parts(jobs, workers, part)


def _by_preference(threads: Amounts, near: Amounts, n_workers: int) -> tuple[Amounts, FloatArray]:
    """Return the workers that each job prefers, by bytes, then by threads; and the bytes."""
    if not len(near.job):
        # A single key on nearly sorted data: ten times faster than two keys.
        rank = threads.amount * (0.5 / threads.amount.max(initial=EPSILON))
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
