"""Grants of one decision, stored as arrays. The `Grant` of one job is made on access."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.jobs.reports import LOST_REPORTS
from dask_slaq.core.owners.terms import OwnerGrant
from dask_slaq.core.placement import Placement


@dataclass(frozen=True)
class Grant:
    """Grant of one job until the next reallocation."""

    share: float  # threads, possibly fractional
    index: float  # order of dispatch; higher first
    workers: Mapping[str, float]  # threads on each worker; fractions are time-shared
    tokens: float  # core-seconds behind its promise, which are served before any index
    most: float  # threads; it gets more only of lent slots for which no other job has a ready task
    iteration: int  # reports received, or as they are numbered
    loss: float  # the last usable one, raw; nan before it
    normalized: float  # remaining normalized loss, in [0, 1]
    predicted: float  # fall of the normalized loss in one epoch on `share`; nan if not predicted
    why: str  # the reason, as text


@dataclass(slots=True)
class Terms:
    """Part of one job's `Grant` that the dispatcher needs."""

    job: str
    share: float
    index: float
    tokens: float
    rate: float  # threads at which tokens accrue
    most: float
    workers: Mapping[str, float] | None  # None if the worker set is unchanged


@dataclass(frozen=True)
class Decision:
    """All grants of one decision, as arrays (n_jobs,), mostly of the fields of `Grant`."""

    reports: BoolArray  # whether the job reports a loss, or still may
    share: FloatArray
    index: FloatArray
    tokens: FloatArray
    rate: FloatArray  # threads at which the tokens accrue until the next decision
    most: FloatArray
    iteration: IntArray
    loss: FloatArray
    missed: IntArray  # last reports without a usable loss
    normalized: FloatArray
    predicted: FloatArray
    sets: Placement
    blind: bool  # whether the policy uses weights only
    by_tokens: bool  # whether shares are enforced by tokens
    epoch: float  # seconds until the next decision, for which the prediction holds
    owners: Mapping[str, OwnerGrant] = field(default_factory=dict)

    def grant(self, i: int) -> Grant:
        """Return the grant of the job at position `i`."""
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
            why=self._why(i, predicted, self.tokens.item(i)),
        )

    def differs(self, before: Decision, at: IntArray) -> BoolArray:
        """Return which grants (n_jobs,) differ from those at `before`, except for sets."""
        rules = [(each.blind, each.by_tokens, each.epoch) for each in (self, before)]
        changed = np.full(len(at), rules[0] != rules[1])
        for name in _COMPARED:
            now, then = getattr(self, name), getattr(before, name)[at]
            changed |= (now != then) & ((now == now) | (then == then))
        return changed

    def _why(self, i: int, predicted: float, tokens: float) -> str:
        if (missed := self.missed.item(i)) and math.isnan(self.loss.item(i)):
            reason = "all its losses are nan or infinite"
        elif missed >= LOST_REPORTS:
            reason = f"its last {missed} losses are nan or infinite: it diverges"
        elif not self.reports.item(i):
            reason = "has reported no loss: " + ("fair share" if self.blind else "its tasks count")
        elif self.blind:
            reason = "equal shares by weight"
        elif math.isnan(predicted) and math.isnan(self.loss.item(i)):
            reason = "too few reports to predict: explored"
        elif math.isnan(predicted):  # as of actors
            reason = "no task of it has ended between its reports: what they cost is unknown"
        else:
            reason = (
                f"predicted to lower its normalized loss by {predicted:.2g} in {self.epoch:g} s"
            )
        return reason + (f"; {tokens:.2g} core-seconds behind its promise" if tokens > 0 else "")


#: Arrays by which two grants of a job are compared, alongside their worker sets.
_COMPARED = (
    "share", "index", "tokens", "rate", "most", "iteration", "loss", "normalized", "predicted",
    "reports",
)  # fmt: skip


class Grants(Mapping[str, Grant]):
    """Mapping of job to `Grant`, of jobs that are `listed`; `new` ones had none before."""

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

    @property
    def owners(self) -> Mapping[str, OwnerGrant]:
        """Grants of the owners; empty unless owners are configured."""
        return {} if self.decision is None else self.decision.owners

    def terms(self) -> Iterator[Terms]:
        """Yield the terms of each grant, which are much cheaper to make than the grants."""
        if self.decision is None:
            return
        decision, names = self.decision, list(self)
        at = [self.position[name] for name in names]
        share, index = decision.share[at].tolist(), decision.index[at].tolist()
        tokens, rate = decision.tokens[at].tolist(), decision.rate[at].tolist()
        most = decision.most[at].tolist()
        kept = [False] * len(at)
        if self._new is not None:
            kept = (decision.sets.kept & ~self._new)[at].tolist()
        for k, (name, i) in enumerate(zip(names, at, strict=True)):
            workers = None if kept[k] else decision.sets.at(i)
            yield Terms(name, share[k], index[k], tokens[k], rate[k], most[k], workers)

    def since(self, before: Grants) -> Grants:
        """Return the grants that differ from those in `before`, or that are not in it."""
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
        # A copy, because `Engine.remove_job` removes jobs from the grants in force.
        return Grants(self.decision, self.position.copy(), changed, at < 0)


def _nan(value: float) -> float:
    """Return `math.nan` for any nan, so that grants that hold it compare equal."""
    return math.nan if math.isnan(value) else value
