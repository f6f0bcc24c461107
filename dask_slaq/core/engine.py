"""The engine: reports and task times in, grants out.

Three rules. Time and workers come in as arguments; the engine asks no clock and does no I/O.
A refused call raises and leaves every job as it was. Nothing is fitted for a job without new
reports. The simulator and the scheduler plugin run this same class.

State is one row a job in shared arrays, and a decision is a pass over these.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.assessment import SnapshotBuilder
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.forecast import LossPredictor, Predictor, quality
from dask_slaq.core.grants import Decision, Grant, Grants
from dask_slaq.core.jobs import Jobs, Order, check_job_settings
from dask_slaq.core.placement import Placement, Workers, place_all
from dask_slaq.core.policies import Allocation, Policy, Snapshot, with_efficiency_cap
from dask_slaq.core.policies import policy as policy_named

__all__ = ["Engine", "Grant", "Predictor"]

FloatArray = NDArray[np.float64]

#: Policies that go by weights alone.
BLIND = ("none", "fair")


class Engine:
    """Predicts each job's loss reduction and allocates threads by policy.

    Parameters
    ----------
    policy : str or Policy
        A policy, or the name of one in `dask_slaq.core.policies.POLICIES`.
    epoch : float
        Seconds between two reallocations.
    normalizer : {"range", "largest-change"}
        Divisor of losses: the predicted whole range, or the paper's largest change so far.
    floor : float
        Credit floor: fraction in [0, 1] of its fair entitlement that every job keeps over time.
    predictor : Predictor, optional
        A `LossPredictor` unless given.
    move_pause : float
        Seconds in which a newly granted thread does not compute yet, for its data is moving.
    strict : bool
        Whether jobs run on the workers of their sets only: then none with work to do is left
        without, since another job may be waiting for that work.

    Attributes
    ----------
    jobs : Jobs
        A mapping of str to `Job`.
    grants : Grants
        A mapping of str to `Grant`: what every job holds since the last `reallocate`.

    Raises
    ------
    UnknownPolicy, InvalidSetting
    """

    def __init__(
        self,
        policy: str | Policy = "max-total",
        *,
        epoch: float = 1.0,
        normalizer: str = "range",
        floor: float = 0.5,
        predictor: Predictor | None = None,
        move_pause: float = 0.0,
        strict: bool = False,
    ) -> None:
        if not (epoch > 0 and math.isfinite(epoch)):
            raise InvalidSetting(f"epoch must be a positive number of seconds, not {epoch!r}")
        if not 0 <= floor <= 1:
            raise InvalidSetting(f"floor must be a fraction in [0, 1], not {floor!r}")
        if normalizer not in quality.NORMALIZERS:
            allowed = ", ".join(quality.NORMALIZERS)
            raise InvalidSetting(f"normalizer must be one of {allowed}, not {normalizer!r}")
        if not (move_pause >= 0 and math.isfinite(move_pause)):
            raise InvalidSetting(f"move_pause must be seconds >= 0, not {move_pause!r}")
        self.policy: Policy = policy_named(policy) if isinstance(policy, str) else policy
        self.epoch = epoch
        self.normalizer = normalizer
        self.floor = floor
        self.move_pause = move_pause
        self.strict = strict
        self.jobs = Jobs()
        self._build_snapshot = SnapshotBuilder(normalizer, epoch, move_pause, strict)
        self.grants = Grants()
        self._predictor: Predictor = LossPredictor() if predictor is None else predictor
        self._sets: Placement | None = None
        self._workers: Workers | None = None
        self._last: float | None = None

    def add_job(
        self,
        job: str,
        now: float,
        *,
        weight: float = 1.0,
        min_share: float | None = None,
        max_share: float | None = None,
        target: float | None = None,
        max_iter: int | None = None,
        reports: bool = True,
    ) -> None:
        """Add a job that arrives at `now` (seconds).

        Raises
        ------
        DuplicateJob, InvalidSetting
            Nothing was added.
        """
        self.jobs.refuse_duplicate(job)
        check_job_settings(weight, min_share, max_share, target, max_iter)
        if reports:
            self._predictor.add(job, target=target)
        self.jobs.add(
            job,
            weight=weight,
            floor=min_share or 0.0,
            most=math.inf if max_share is None else max_share,
            target=math.nan if target is None else target,
            max_iter=math.inf if max_iter is None else max_iter,
            reports=reports,
            arrival=now,
        )

    def remove_job(self, job: str, now: float) -> None:
        """Forget a job and all that was learned of it.

        Raises
        ------
        UnknownJob
        """
        if self.jobs[job].reports:
            self._predictor.remove(job)
        self.jobs.remove(job)
        self.grants.position.pop(job, None)

    def report(self, job: str, loss: float, now: float) -> None:
        """Record the loss of the job's next iteration. O(1).

        Raises
        ------
        UnknownJob, NonFiniteLoss
        """
        row = self.jobs.row(job)
        self._predictor.report(job, loss)
        self.jobs.runtimes.end_iteration(row, self._since(now), float(loss))

    def observe_task(self, job: str, seconds: float, at_once: float = 1) -> None:
        """Charge a finished task: compute `seconds`, and how many of the job's tasks that are
        worth a slot were ready or running `at_once`. O(1).

        Raises
        ------
        UnknownJob
        """
        self.jobs.runtimes.observe_task(self.jobs.row(job), seconds, at_once)

    def observe_demand(self, job: str, tasks: float) -> None:
        """Set how many of the job's tasks are ready or running now.

        Raises
        ------
        UnknownJob
        """
        self.jobs.table.column["demand"][self.jobs.row(job)] = tasks

    def set_floor(self, job: str, threads: float) -> bool:
        """Set the floor of a job, in threads; whether that is another one than before.

        Raises
        ------
        UnknownJob
        """
        return self._set("floor", job, threads)

    def set_max_iter(self, job: str, max_iter: int | None) -> bool:
        """Set the iterations that a job runs at most, None for unknown; whether these are others
        than before.

        Raises
        ------
        UnknownJob, InvalidSetting
        """
        check_job_settings(max_iter=max_iter)
        return self._set("max_iter", job, math.inf if max_iter is None else max_iter)

    def _set(self, setting: str, job: str, value: float) -> bool:
        column, row = self.jobs.table.column[setting], self.jobs.row(job)
        changed = bool(column[row] != value)
        column[row] = value
        return changed

    def reallocate(
        self,
        workers: Mapping[str, int],
        now: float,
        *,
        eligible: Mapping[str, Collection[str]] | None = None,
        affinity: Mapping[str, Mapping[str, float]] | None = None,
    ) -> Grants:
        """Decide what every job holds until the next epoch.

        Parameters
        ----------
        workers : Mapping of str to int
            Threads of each worker.
        now : float
            Seconds, on the caller's clock.
        eligible : Mapping of str to collection of str, optional
            Workers that a job may use at all (those that supply its resources); all by default.
        affinity : Mapping of str to Mapping of str to float, optional
            Bytes of each job's data on each worker.

        Returns
        -------
        Mapping of str to Grant
            The changes: jobs whose grant differs from the one before. All of them are in `grants`.
        """
        workers = self._workers = Workers.of(workers, self._workers)
        order, capacity = self.jobs.order(), workers.total
        self.jobs.runtimes.observe_iterations()
        elapsed, self._last = self._since(now), now
        self.jobs.pass_time(capacity, elapsed)
        self._predictor.fit()
        if not order.names:
            self.grants, self._sets = Grants(), None
            return self.grants
        self.jobs.runtimes.learn(order.rows)
        forecast = self._predictor.forecast(order.reported)
        speeds = self.jobs.runtimes.speeds(order.rows)
        room = order.room(workers, eligible or {})
        snapshot = self._build_snapshot(
            self.jobs, order, forecast, speeds, room, capacity, now, self.policy.needs
        )
        blind = self.policy.name in BLIND
        allocation = self.policy(snapshot) if blind else with_efficiency_cap(self.policy, snapshot)
        # Threads between two wave counts buy nothing, and are lent instead; a floor is kept.
        fewest = np.maximum(speeds.fewest(allocation.share), snapshot.floor)
        whole = (allocation.share >= 1) & snapshot.known & (not self.strict)
        share = np.where(whole, np.minimum(allocation.share, fewest), allocation.share)
        sets = place_all(
            order.names, share, workers, self._sets, eligible=eligible, affinity=affinity
        )
        decision = self._decision(
            order, snapshot, Allocation(share, allocation.index), sets, elapsed
        )
        self.jobs.runtimes.grant(order.rows, share, decision.tokens)
        before, self.grants = self.grants, Grants(decision, order.position)
        self._sets = sets
        return self.grants.since(before)

    def _since(self, now: float) -> float:
        """Seconds since the last reallocation; a clock that goes back stands still."""
        if self._last is None or now < self._last:
            return 0.0
        return now - self._last

    def _decision(
        self,
        order: Order,
        snapshot: Snapshot,
        allocation: Allocation,
        sets: Placement,
        elapsed: float,
    ) -> Decision:
        column, rows = self.jobs.table.column, order.rows
        seen = self.jobs.runtimes.column
        share = allocation.share
        told = snapshot.known & (seen["reports"][rows] > 0)
        return Decision(
            reports=snapshot.reporting,
            share=share,
            index=allocation.index,
            tokens=self.jobs.refill(share, snapshot.reporting, self.floor, self.epoch, elapsed),
            most=column["most"][rows],
            iteration=seen["reports"][rows],
            loss=seen["loss"][rows],
            normalized=snapshot.normalized,
            predicted=np.where(told, snapshot.gain(share), math.nan),
            sets=sets,
            blind=self.policy.name in BLIND,
            epoch=self.epoch,
        )
