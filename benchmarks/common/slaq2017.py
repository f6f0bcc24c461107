"""Algorithm 1 of the paper (§4.3) with a heap, word by word: the reference for `slaq2017`."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence


def algorithm_1(
    gains: Sequence[Callable[[int], float]], most: Sequence[int], capacity: int
) -> list[int]:
    """Allocate cores to at most `capacity` jobs: one to each, then one by one by marginal gain.

    A gain is a concave function of a whole number of cores, and `most` the cores that each job can
    use, at least 1. Returns the cores of each job.
    """
    share = [1] * len(gains)
    heap = [(gain(1) - gain(2), job) for job, gain in enumerate(gains) if most[job] > 1]
    heapq.heapify(heap)
    for _ in range(capacity - len(gains)):
        if not heap or heap[0][0] >= 0:
            break
        _, job = heapq.heappop(heap)
        share[job] += 1
        if share[job] < most[job]:
            gain = gains[job]
            heapq.heappush(heap, (gain(share[job]) - gain(share[job] + 1), job))
    return share
