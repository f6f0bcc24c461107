"""What jobs are granted: arrays of one decision, in which one job's `Grant` is made on demand."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import compress

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.placement import Placement

__all__ = ["Decision", "Grant", "Grants", "Terms"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


@dataclass(frozen=True)
class Grant:
    """What one job holds until the next reallocation.

    Attributes
    ----------
    share : float
        Threads.
    index : float
        Order of dispatch; higher first.
    workers : Mapping of str to float
        The worker set: threads on each worker; fractions are time-shared.
    tokens : float
        Core-seconds by which the job is behind its floor; served before any index.
    most : float
        Its cap in threads: beyond that it is served when nobody else has anything ready.
    iteration : int
        Reports received.
    loss, normalized, predicted : float
        Last raw loss; remaining loss in [0, 1]; predicted fall of the normalized loss by the next
        epoch with `share` threads.
    why : str
        The reason in words.
    """

    share: float
    index: float
    workers: Mapping[str, float]
    tokens: float
    most: float
    iteration: int
    loss: float
    normalized: float
    predicted: float
    why: str


@dataclass(slots=True)
class Terms:
    """What a scheduler needs of one grant: see `Grant`."""

    job: str
    share: float
    index: float
    tokens: float
    most: float
    workers: Mapping[str, float] | None  # None if the worker set is the same as before


@dataclass(frozen=True)
class Decision:
    """All grants of one decision. Arrays are (n_jobs,); see `Grant` for what they hold.

    Attributes
    ----------
    reports : array of bool
        Whether the job reports a loss.
    sets : Placement
        The worker set of each job.
    blind : bool
        Whether the policy goes by weights alone.
    epoch : float
        Seconds for which the prediction holds.
    """

    reports: BoolArray
    share: FloatArray
    index: FloatArray
    tokens: FloatArray
    most: FloatArray
    iteration: IntArray
    loss: FloatArray
    normalized: FloatArray
    predicted: FloatArray
    sets: Placement
    blind: bool
    epoch: float

    def grant(self, i: int) -> Grant:
        """The grant of the job at `i`."""
        predicted = self.predicted.item(i)
        return Grant(
            share=self.share.item(i),
            index=self.index.item(i),
            workers=self.sets.at(i),
            tokens=self.tokens.item(i),
            most=self.most.item(i),
            iteration=self.iteration.item(i),
            loss=_nan(self.loss.item(i)),
            normalized=self.normalized.item(i),
            predicted=_nan(predicted),
            why=self._why(self.reports.item(i), predicted, self.tokens.item(i)),
        )

    def differs(self, before: Decision, at: IntArray) -> BoolArray:
        """Where jobs are granted something else than `before`, in which they stood `at`
        (n_jobs,); worker sets are not looked at."""
        changed = np.full(len(at), self.blind != before.blind or self.epoch != before.epoch)
        for name in _COMPARED:
            now, then = getattr(self, name), getattr(before, name)[at]
            changed |= (now != then) & ((now == now) | (then == then))
        return changed

    def _why(self, reports: bool, predicted: float, tokens: float) -> str:
        if not reports:
            reason = "has reported no loss: fair share"
        elif self.blind:
            reason = "equal shares by weight"
        elif math.isnan(predicted):
            reason = "too few reports to predict: explored"
        else:
            reason = (
                f"predicted to lower its normalized loss by {predicted:.2g} in {self.epoch:g} s"
            )
        return reason + (f"; {tokens:.2g} core-seconds behind its floor" if tokens > 0 else "")


#: What makes two grants of a job differ, beside the worker set.
_COMPARED = (
    "share", "index", "tokens", "most", "iteration", "loss", "normalized", "predicted", "reports",
)  # fmt: skip


class Grants(Mapping[str, Grant]):
    """Grants by the name of the job.

    Parameters
    ----------
    decision : Decision
    position : dict of str to int
        The jobs, and where in the arrays they stand.
    listed : (n_jobs,) array of bool, optional
        Which of them have a grant here; all by default.
    new : (n_jobs,) array of bool, optional
        Which of them had no grant before; all by default.
    """

    def __init__(
        self,
        decision: Decision | None = None,
        position: dict[str, int] | None = None,
        listed: BoolArray | None = None,
        new: BoolArray | None = None,
    ) -> None:
        self.decision = decision
        self.position: dict[str, int] = {} if position is None else position
        self._listed = listed
        self._new = new

    def __getitem__(self, name: str) -> Grant:
        if name not in self:
            raise KeyError(name)
        assert self.decision is not None
        return self.decision.grant(self.position[name])

    def __iter__(self) -> Iterator[str]:
        if self._listed is None:
            return iter(self.position)
        return compress(self.position, self._listed.tolist())

    def __len__(self) -> int:
        return len(self.position) if self._listed is None else int(self._listed.sum())

    def __contains__(self, name: object) -> bool:
        if self._listed is None:
            return name in self.position
        return name in self.position and self._listed.item(self.position[name])

    def __repr__(self) -> str:
        return f"Grants({dict(self)!r})"

    def terms(self) -> Iterator[Terms]:
        """Yield the terms of each grant here; much cheaper than the grants themselves."""
        if self.decision is None:
            return
        decision, names = self.decision, list(self)
        at = [self.position[name] for name in names]
        share, index = decision.share[at].tolist(), decision.index[at].tolist()
        tokens, most = decision.tokens[at].tolist(), decision.most[at].tolist()
        kept = [False] * len(at)
        if self._new is not None:
            kept = (decision.sets.kept & ~self._new)[at].tolist()
        for k, (name, i) in enumerate(zip(names, at, strict=True)):
            workers = None if kept[k] else decision.sets.at(i)
            yield Terms(name, share[k], index[k], tokens[k], most[k], workers)

    def since(self, before: Grants) -> Grants:
        """Those that differ from the grants `before`, or were not there."""
        if self.decision is None or not self.position:
            return Grants()
        at = np.arange(len(self.position))
        if before.position is not self.position:
            where = before.position.get
            at = np.fromiter((where(name, -1) for name in self.position), np.int64, len(at))
        changed = np.ones(len(at), dtype=bool)
        if before.decision is not None and before.position:
            changed = (at < 0) | self.decision.differs(before.decision, at)
            changed |= ~self.decision.sets.kept
        # Jobs that go are taken out of the grants in force, and not of what was told.
        return Grants(self.decision, self.position.copy(), changed, at < 0)


def _nan(value: float) -> float:
    """The one nan, so that grants that hold it are equal."""
    return math.nan if math.isnan(value) else value
