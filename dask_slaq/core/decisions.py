"""Decisions of an engine: forecasts and speeds in; shares, worker sets and tokens out."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.assessment import SnapshotBuilder
from dask_slaq.core.ends import Ends
from dask_slaq.core.forecast import Predictor
from dask_slaq.core.grants import Decision, Grants
from dask_slaq.core.jobs import Order
from dask_slaq.core.placement import Placement, Workers, place_all
from dask_slaq.core.policies import Allocation, Snapshot, with_efficiency_cap
from dask_slaq.core.promises import credit_entitlement, refill_tokens

if TYPE_CHECKING:
    from dask_slaq.core.engine import Engine

__all__ = ["DecisionMaker"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


class DecisionMaker:
    """Maker of an engine's decisions; each starts from the worker sets of the one before."""

    def __init__(self, engine: Engine, predictor: Predictor) -> None:
        self._engine, self._predictor = engine, predictor
        self._build_snapshot = SnapshotBuilder(
            engine.normalizer, engine.epoch, engine.move_pause, engine.strict
        )
        self._gain: Callable[[FloatArray], FloatArray] | None = None
        self._sets: Placement | None = None
        self.ends: Ends | None = None  # of the jobs of the last decision

    def decide(
        self,
        workers: Workers,
        now: float,
        elapsed: float,
        eligible: Mapping[str, Collection[str]],
        affinity: Mapping[str, Mapping[str, float]],
    ) -> Grants:
        """Return the grants of all jobs, `elapsed` seconds after the last decision."""
        engine = self._engine
        jobs, order, capacity = engine.jobs, engine.jobs.order(), workers.total
        jobs.runtimes.observe_iterations()
        jobs.runtimes.advance(order.rows, elapsed)
        weight = jobs.table.column["weight"][order.rows]
        if engine.owners is not None:
            weight = engine.owners.weights(jobs, order)
            engine.owners.weigh(jobs, order, engine.latest)
        self._predictor.fit()
        if not order.names:
            self._sets, self._gain, self.ends = None, None, None
            return Grants()
        jobs.runtimes.learn(order.rows)
        forecast = self._predictor.forecast(order.reported)
        speeds = jobs.runtimes.speeds(order.rows)
        room = order.room(workers, eligible)
        fair = credit_entitlement(jobs, weight, capacity, elapsed)
        total = jobs.total(order.rows, speeds.work)
        self.ends = self._tick(order, weight, room, total, capacity, elapsed, now)
        snapshot = self._build_snapshot(
            jobs, order, forecast, speeds, weight, room, capacity, now, engine.traits.needs
        )
        allocation = self._allocate(snapshot, order)
        # Threads between two wave counts do not speed up a job: lend them, except for its floor.
        fewest = np.maximum(speeds.fewest(allocation.share), snapshot.floor)
        waves = snapshot.known & (speeds.work > 0)  # known by iterations, not by stages alone
        whole = (allocation.share >= 1) & waves & (not engine.strict)
        share = np.where(whole, np.minimum(allocation.share, fewest), allocation.share)
        sets = place_all(order.names, share, workers, self._sets, eligible, affinity)
        decision = self._decision(
            order,
            snapshot,
            Allocation(share, allocation.index),
            sets,
            capacity,
            elapsed,
            fair,
            total,
        )
        jobs.runtimes.grant(order.rows, share, decision.tokens)
        self._gain, self._sets = snapshot.gain, sets
        return Grants(decision, order.position)

    def _tick(
        self,
        order: Order,
        weight: FloatArray,
        room: FloatArray,
        total: FloatArray,
        capacity: float,
        elapsed: float,
        now: float,
    ) -> Ends:
        """Advance the fair clock, and return when the jobs end."""
        engine, jobs, rows = self._engine, self._engine.jobs, order.rows
        column = jobs.table.column
        # At the very moment at which an iteration ends, a job has few tasks or none.
        lately = column["fair_width"][rows] * math.exp(-elapsed / engine.epoch)
        column["fair_width"][rows] = width = np.maximum(column["demand"][rows], lately)
        cap = np.minimum(np.minimum(room, column["most"][rows]), width)
        cap[column["paused"][rows]] = 0.0
        age = jobs.age(rows, now)
        threads = jobs.fair_clock.advance(
            rows, weight, cap, total, capacity, elapsed, age, engine.epoch
        )
        latest = jobs.latest(rows, engine.latest)
        attained = jobs.runtimes.column["attained"][rows]
        # It goes on with as many as it has had.
        usual = np.where(column["paused"][rows], 0.0, column["fair_cap"][rows])
        share = np.minimum(capacity * weight / weight.sum(), usual)
        fair = jobs.fair_clock.until_end(rows, total, np.maximum(threads, share), age)
        promised = latest * (age + fair) - age
        due = jobs.fair_clock.served(rows, (age + engine.epoch) / latest)
        return jobs.ends.forecast(
            rows, attained, total, share, due, fair, promised, engine.epoch, now, capacity
        )

    def next_thread(self, grants: Grants) -> dict[str, float]:
        """Return the gain of each job from one more thread than in `grants`, the last ones."""
        decision = grants.decision
        if decision is None or self._gain is None:
            return {}
        more = self._gain(decision.share + 1.0) - self._gain(decision.share)
        known = np.isfinite(decision.predicted)
        return {name: more.item(i) for name, i in grants.position.items() if known[i]}

    def _allocate(self, snapshot: Snapshot, order: Order) -> Allocation:
        """Return the allocation of the policy, within the shares of owners if there are any."""
        policy, owners = self._engine.policy, self._engine.owners
        allocate: Callable[[Snapshot], Allocation] = policy
        if self._engine.traits.follows_losses:
            allocate = partial(with_efficiency_cap, policy)
        allocation = allocate(snapshot)
        if owners is None:
            return allocation
        return Allocation(owners.divide(allocate, snapshot, order), allocation.index)

    def _decision(
        self,
        order: Order,
        snapshot: Snapshot,
        allocation: Allocation,
        sets: Placement,
        capacity: int,
        elapsed: float,
        fair: FloatArray,
        total: FloatArray,
    ) -> Decision:
        """Return the grants of all jobs, with tokens refilled for the `elapsed` seconds."""
        engine, jobs = self._engine, self._engine.jobs
        column, rows = jobs.table.column, order.rows
        seen = jobs.runtimes.column
        share = allocation.share
        reported = snapshot.known & (seen["reports"][rows] > 0)
        blind = not engine.traits.follows_losses  # such a policy keeps every promise by itself
        latest, credit = (math.inf, 0.0) if blind else (engine.latest, engine.floor)
        tokens, rate = refill_tokens(
            jobs, latest, credit, engine.epoch, elapsed, fair, snapshot.age, total
        )
        return Decision(
            reports=snapshot.reporting,
            share=share,
            index=allocation.index,
            tokens=tokens,
            rate=rate,
            most=np.where(column["paused"][rows], 0.0, column["most"][rows]),
            iteration=seen["reports"][rows],
            loss=seen["loss"][rows],
            normalized=snapshot.normalized,
            predicted=np.where(reported, snapshot.gain(share), math.nan),
            sets=sets,
            blind=blind,
            epoch=engine.epoch,
            owners={}
            if engine.owners is None
            else engine.owners.refill(jobs, order, capacity, engine.epoch, elapsed, snapshot.age),
        )
