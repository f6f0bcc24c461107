"""Predictor of somebody else, with the default in its place as soon as it raises."""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dask_slaq.core.errors import BROKEN
from dask_slaq.core.forecast.types import FitStatus, Forecast, Predictor


class GuardedPredictor:
    """A predictor: `made`, until it breaks a rule, which is told; and then `instead`."""

    def __init__(self, made: Predictor, instead: Predictor, tell: Callable[[str], object]) -> None:
        self._used, self._instead, self._tell = made, instead, tell
        self._jobs: dict[str, tuple[dict[str, Any], deque[float]]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["_used"], name)

    def add(self, job: str, **known: Any) -> None:
        """Start to follow a job. See `Predictor`."""
        # Losses kept of each job, for the predictor that may have to take over.
        self._jobs[job] = known, deque(maxlen=1000)
        self._call("add", job, **self._accepted(known))

    def remove(self, job: str) -> None:
        """Forget a job."""
        self._call("remove", job)
        del self._jobs[job]

    def report(self, job: str, loss: float) -> None:
        """Store the loss after the next iteration of a job."""
        self._call("report", job, loss)
        self._jobs[job][1].append(loss)

    def fit(self) -> int:
        """Update the forecasts."""
        return self._call("fit")

    def forecast(self, jobs: Sequence[str]) -> Forecast:
        """Return the forecasts of some jobs as of the last fit."""
        if self._used is not self._instead:
            try:
                found = self._used.forecast(jobs)
                wrong = broken_forecast(found, len(jobs))
            except BROKEN as error:
                wrong = f"{type(error).__name__}: {error}"
            if wrong is None:
                return found
            self._replace(wrong)
        return self._instead.forecast(jobs)

    def _call(self, method: str, *given: Any, **known: Any) -> Any:
        if self._used is not self._instead:
            try:
                return getattr(self._used, method)(*given, **known)
            except BROKEN as error:
                self._replace(f"{type(error).__name__}: {error}", but=given[:1] * (method == "add"))
        return getattr(self._instead, method)(*given, **known)

    def _replace(self, why: str, but: tuple[Any, ...] = ()) -> None:
        """Use the default from now on; a job that is `but` being added is added after this."""
        self._used = self._instead
        for job, (known, losses) in self._jobs.items():
            if job not in but:
                self._instead.add(job, **known)
                for loss in losses:
                    self._instead.report(job, loss)
        self._instead.fit()
        self._tell(why)

    def _accepted(self, known: dict[str, Any]) -> dict[str, Any]:
        """Return what the predictor in use has parameters for, as not all take a ``kind``."""
        parameters = inspect.signature(self._used.add).parameters
        if any(each.kind is each.VAR_KEYWORD for each in parameters.values()):
            return known
        return {name: value for name, value in known.items() if name in parameters}


def broken_forecast(forecast: Forecast, n_jobs: int) -> str | None:
    """Return which rule of `Forecast` one for some jobs breaks, in words; None if it keeps all."""
    per_job = ("start", "level", "remaining", "largest_change", "noise", "n_reports", "status")
    for name in ("horizons", "reduction", *per_job):
        if not isinstance(array := getattr(forecast, name), np.ndarray):
            return f"{name} is an array, not {type(array).__name__}"
    horizons, fall = forecast.horizons, forecast.reduction
    if (
        horizons.ndim != 1
        or not len(horizons)
        or horizons[0] != 0
        or (np.diff(horizons) <= 0).any()
    ):
        return "horizons increase from 0"
    if fall.shape != (n_jobs, len(horizons)):
        return f"reduction has shape {fall.shape}, not {(n_jobs, len(horizons))}"
    for name in per_job:
        if getattr(forecast, name).shape != (n_jobs,):
            return f"{name} does not have one value per job"
    if not np.isfinite(fall).all() or (fall[:, 0] != 0).any():
        return "a reduction is not finite, or not 0 at horizon 0"
    # Part of the largest reduction by which one may be off, by rounding.
    close = 1e-9
    scale = close * np.maximum(np.abs(fall).max(axis=1, initial=0.0), close)[:, None]
    if (np.diff(fall) < -scale).any():
        return "a reduction decreases"
    if (np.diff(np.diff(fall) / np.diff(horizons)) > scale).any():
        return "a reduction is not concave"
    if not (forecast.remaining >= fall[:, -1] - scale[:, 0]).all():
        return "remaining is less than the last reduction"
    if not (forecast.noise >= 0).all():
        return "a noise is negative, or nan"
    if not set(forecast.status.tolist()) <= set(map(int, FitStatus)):
        return "a status is none of Status"
    return None
