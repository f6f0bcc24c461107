"""Nonnegative least squares for many small problems at once."""

from __future__ import annotations

import numpy as np

from dask_slaq.core.job_arrays import BoolArray, FloatArray

#: A term of which the others explain all but this fraction is left out: it is not identifiable.
_SAME = 1e-10


def nnls(gram: FloatArray, right: FloatArray) -> FloatArray:
    """Solve small nonnegative least-squares problems with Gram matrices (n, k, k) exactly.

    The solutions (n, k) have the least ``x.gram.x - 2 x.right``; terms that other terms explain are
    0. Each is the best nonnegative one among the unconstrained solutions of all subsets of terms.
    The subsets form a tree, in which each differs from its parent by one sweep of Gauss-Jordan for
    all jobs at once. With four terms this is cheaper than an active-set method, whose sets would
    differ between jobs.

    >>> nnls(np.eye(2)[None], np.array([[3.0, -1.0]])).tolist()
    [[3.0, 0.0]]
    """
    return _Subsets(gram, right).best()


class _Subsets:
    """Search of `nnls` through the subsets of terms. Jobs are the last axis of its arrays."""

    def __init__(self, gram: FloatArray, right: FloatArray) -> None:
        n, self.k = right.shape
        diagonal = np.sqrt(np.einsum("nii->ni", gram))
        # All terms have size 1, so the rest of a term after a sweep shows whether it is redundant.
        self.unit = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
        table = np.empty((self.k + 1, self.k + 1, n))
        table[: self.k, : self.k] = np.moveaxis(
            gram * self.unit[:, :, None] * self.unit[:, None, :], 0, -1
        )
        table[self.k, : self.k] = table[: self.k, self.k] = (right * self.unit).T
        table[self.k, self.k] = 0.0
        self.least = np.zeros(n)
        self.which = np.zeros(n, dtype=np.int64)
        self.solutions: list[tuple[tuple[int, ...], FloatArray]] = [((), np.zeros((0, n)))]
        self._visit(table, (), 0, np.ones(n, dtype=bool))

    def best(self) -> FloatArray:
        """Return the solutions, (n, k)."""
        x: FloatArray = np.zeros(self.unit.shape)
        for number, (subset, solution) in enumerate(self.solutions):
            mine = np.flatnonzero(self.which == number)
            if len(mine) and subset:
                x[mine[:, None], subset] = solution[:, mine].T
        x *= self.unit
        return x

    def _visit(
        self, table: FloatArray, chosen: tuple[int, ...], first: int, sound: BoolArray
    ) -> None:
        """Try all subsets that contain `chosen` and at least one of the terms from `first` on.

        The rows of `table` are the chosen terms, the terms from `first` on, and the residual. Its
        columns are the terms from `first` on and the right side. Skipped terms have neither. Jobs
        that are not `sound` are ignored, because a chosen term is redundant for them.
        """
        for term in range(first, self.k):
            done, ahead = len(chosen), term - first
            pivot = table[done + ahead, ahead]
            good = sound & (pivot > _SAME)
            row = table[done + ahead, ahead + 1 :] / np.where(good, pivot, 1.0)
            keep = [*range(done), *range(done + ahead + 1, len(table))]
            rest = table[keep, ahead + 1 :] - table[keep, ahead, None] * row
            child = np.concatenate([rest[:done], row[None], rest[done:]])
            self._judge((*chosen, term), child, good)
            if term + 1 < self.k:
                self._visit(child, (*chosen, term), term + 1, good)

    def _judge(self, subset: tuple[int, ...], table: FloatArray, sound: BoolArray) -> None:
        solution, left = table[: len(subset), -1], table[-1, -1]
        better = sound & (left < self.least) & (solution >= 0).all(axis=0)
        self.least = np.where(better, left, self.least)
        self.which[better] = len(self.solutions)
        self.solutions.append((subset, solution))
