"""Values of running jobs that `ScheduledJobs` keeps or acts on, and their status shows."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.engine import Engine
from dask_slaq.core.forecast import iterations_to_losses
from dask_slaq.scheduler.pools import Pool

#: A job is silent once it could have reported for 30 times its pace, and for so long.
SILENT_SECONDS = 10.0


@dataclass(slots=True)
class Pace:
    """Running mean of the seconds per iteration of a job, 0 before the second report."""

    last: float  # monotonic seconds of the last report
    seconds: float = 0.0
    since: float = 0.0  # monotonic seconds of the last report, or when it last had to wait

    def step(self, now: float) -> None:
        """Record a report at `now`."""
        passed = now - self.last
        if passed > 0:
            self.seconds += (0.2 if self.seconds else 1.0) * (passed - self.seconds)
        self.last = self.since = now

    def is_silent(self, now: float) -> bool:
        """Return whether it could have reported for 30 times its pace, and has not."""
        return self.seconds > 0 and now - self.since > max(30 * self.seconds, SILENT_SECONDS)


def etas(
    engine: Engine, paces: Mapping[str, Pace], names: Iterable[str]
) -> dict[str, list[float | None]]:
    """Return the low, expected and high seconds until jobs reach their targets.

    Jobs without a target or forecast are left out. A value is None where the forecast does not
    reach the target.
    """
    known, column = engine.jobs, engine.jobs.table.column["target"]
    targets = {
        name: float(column[known.row(name)])
        for name in names
        if name in paces and paces[name].seconds > 0
    }
    targets = {name: target for name, target in targets.items() if not math.isnan(target)}
    losses = np.array(list(targets.values()))
    found = iterations_to_losses(engine.forecaster, list(targets), losses)
    return {
        name: [n * paces[name].seconds if math.isfinite(n) else None for n in row]
        for name, row in zip(targets, found.tolist(), strict=True)
        if not math.isnan(row[1])
    }


def values_of_jobs(
    engine: Engine,
    pools: Mapping[str, Pool],
    names: Collection[str],
    running: Mapping[str, float],
) -> dict[str, NDArray[Any]]:
    """Return the ``(n_jobs,)`` values of many jobs that are kept in the history.

    `running` has the core-seconds of running tasks by job; see `Accounts.running`.
    """
    rows = np.fromiter(map(engine.jobs.row, names), np.int64, len(names))
    seen = engine.jobs.runtimes.column
    granted = {
        "normalized_loss": np.ones(len(rows)),
        "predicted": np.full(len(rows), math.nan),
        "share": np.zeros(len(rows)),
    }
    if (decision := engine.grants.decision) is not None:
        position = engine.grants.position
        at = np.array([position.get(name, -1) for name in names], np.int64)
        decided = decision.normalized, decision.predicted, decision.share
        for values, all_of in zip(granted.values(), decided, strict=True):
            values[at >= 0] = all_of[at[at >= 0]]
    return {
        "iteration": seen["step"][rows],
        "loss": seen["loss"][rows],
        "running": np.array([pools[name].computing for name in names], np.int64),
        "core_seconds": seen["attained"][rows] + [running.get(name, 0.0) for name in names],
        **granted,
    }
