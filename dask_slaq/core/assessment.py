"""Appraises the jobs before a decision: from what is known of each to what a policy sees."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import Forecast, ending, quality, unreported
from dask_slaq.core.gains import END, TARGET, Gains, Interpolation, iterations_to_target
from dask_slaq.core.jobs import Jobs, Order
from dask_slaq.core.policies import Snapshot
from dask_slaq.core.runtime import Progress, Speeds

__all__ = ["SnapshotBuilder"]

FloatArray = NDArray[np.float64]

#: Threads of a job that has work to do, where sets are strict.
LEAST = 0.05

#: Parts of its predicted range to which the work that is left can be told.
PARTS = {"to_target": TARGET, "to_end": END}


@dataclass(frozen=True)
class SnapshotBuilder:
    """How jobs are appraised; see `Engine` for the settings."""

    normalizer: str
    epoch: float
    move_pause: float
    strict: bool

    def __call__(
        self,
        jobs: Jobs,
        order: Order,
        forecast: Forecast,
        speeds: Speeds,
        room: FloatArray,
        capacity: int,
        now: float,
        needs: Collection[str],
    ) -> Snapshot:
        """What a policy sees that `needs` some of `PARTS`; `forecast` has the reporting jobs in the
        order of names."""
        column, seen, at = jobs.table.column, jobs.runtimes.column, order.reporting
        rows, n = order.rows, len(order.names)
        normalized = np.ones(n)
        attained, held = seen["attained"][rows], seen["share"][rows]
        done = np.divide(attained, speeds.work, out=np.zeros(n), where=speeds.work > 0)
        most = jobs.ahead(rows[at], forecast.n_reports)
        forecast = ending(unreported(forecast, done[at]), most)
        normalized[at] = quality.normalized(forecast, self.normalizer)
        gain = Gains(
            Interpolation(forecast.horizons, forecast.reduction),
            quality.scale(forecast, self.normalizer),
            at,
            speeds,
            held,
            self.epoch,
            self.move_pause,
        )
        cap = np.minimum(np.minimum(room, column["most"][rows]), speeds.useful)
        floor = column["floor"][rows]
        if self.strict:
            floor = np.where(column["demand"][rows] > 0, np.maximum(floor, LEAST), floor)
        work = speeds.core_seconds(held)
        target = column["target"][rows][at]
        left = {}
        for name in needs:
            ahead, total = np.full((2, n), np.inf)
            ahead[at] = iterations_to_target(forecast, target, done[at], PARTS[name], most)
            left[name] = np.multiply(work, ahead, out=total, where=work > 0)
        return Snapshot(
            jobs=order.names,
            capacity=capacity,
            weight=column["weight"][rows],
            floor=np.minimum(floor, cap),
            cap=cap,
            known=column["reports"][rows] & (speeds.work > 0),
            normalized=normalized,
            gain=gain,
            speed=Progress(speeds, work),
            reporting=jobs.reporting(capacity, self.epoch),
            age=jobs.age(rows, now),
            attained=attained,
            efficient=speeds.efficient,
            **left,
        )
