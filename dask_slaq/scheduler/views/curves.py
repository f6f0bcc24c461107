"""Predicted curves of running jobs over seconds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast import Status

if TYPE_CHECKING:
    from dask_slaq.scheduler.scheduled_jobs import ScheduledJobs


class CurveToCome(NamedTuple):
    """Predicted raw loss of a job, ``(n_horizons,)`` seconds from now, at its present pace.

    `low` and `high` are the band that holds 80 % of the reports to come, None if unknown; `best`
    is the predicted final loss, and `span` the whole predicted range.
    """

    seconds: NDArray[np.float64]
    loss: NDArray[np.float64]
    low: NDArray[np.float64] | None
    high: NDArray[np.float64] | None
    best: float
    span: float


def curves_to_come(jobs: ScheduledJobs, names: Iterable[str]) -> dict[str, CurveToCome]:
    """Return the predicted curves of those jobs that have one; all `names` report."""
    predictor, pace = jobs.engine._predictor, jobs.pace
    known = [name for name in names if name in pace and pace[name].seconds > 0]
    if not known:
        return {}
    forecast = predictor.forecast(known)
    band = getattr(predictor, "band", None)
    band_of = None if band is None else band(known)
    found = {}
    for i, name in enumerate(known):
        best = float(forecast.level[i] - forecast.remaining[i])
        span = float(forecast.start[i]) - best
        if forecast.status[i] != Status.OK or not span > 0:
            continue
        low, high = (None, None) if band_of is None else (band_of[0][i], band_of[1][i])
        has_band = low is not None and bool(np.isfinite([low, high]).all())
        found[name] = CurveToCome(
            forecast.horizons * pace[name].seconds,
            forecast.level[i] - forecast.reduction[i],
            low if has_band else None,
            high if has_band else None,
            best,
            span,
        )
    return found
