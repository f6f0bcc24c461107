"""Rival forecasts of loss curves, under the same harness as the default predictor.

One object follows one curve with increasing origins, so it may keep state.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.paper import DECAY_FACTOR, fit_losses

Array = NDArray[np.float64]


class Rival(Protocol):
    """Forecaster of one curve."""

    def forecast(self, history: Array, horizons: Array) -> Array:
        """Return the losses (n_horizons,) expected after at least 5 reports, oldest first."""


class Hold:
    """Forecast of no change."""

    def forecast(self, history: Array, horizons: Array) -> Array:
        return np.full(len(horizons), history[-1])


class LastDelta:
    """The paper's strawman: every future iteration repeats the last change of the loss."""

    def forecast(self, history: Array, horizons: Array) -> Array:
        return history[-1] + (history[-1] - history[-2]) * horizons


@dataclass(frozen=True)
class Paper:
    """The paper's fits (§4.2.2), as `slaq.predictor: paper` makes them, by default."""

    decay: float = DECAY_FACTOR  # factor on the weight of a report per iteration of age

    def forecast(self, history: Array, horizons: Array) -> Array:
        fit = fit_losses([history], horizons, self.decay)
        answer: Array = fit.level[0] - fit.fall[0]
        return answer


class Holt:
    """Holt's exponential smoothing with a damped trend (statsmodels) of the log of the loss."""

    def forecast(self, history: Array, horizons: Array) -> Array:
        from statsmodels.tsa.holtwinters import Holt as Model

        series, back = _logs(history, 50)
        model = Model(series, damped_trend=True, initialization_method="estimated")
        ahead = model.fit().forecast(int(horizons.max()))
        return back(np.asarray(ahead)[horizons.astype(int) - 1])


class Arima:
    """ARIMA(1, 1, 1) (statsmodels) of the log of the loss."""

    def forecast(self, history: Array, horizons: Array) -> Array:
        from statsmodels.tsa.arima.model import ARIMA as Model

        series, back = _logs(history, 25)
        # Equivalent to order (1, 1, 1), but twice as fast.
        model = Model(np.diff(series), order=(1, 0, 1), trend="n", concentrate_scale=True)
        ahead = model.fit(cov_type="none", method_kwargs={"maxiter": 30})
        steps = np.cumsum(ahead.forecast(int(horizons.max())))
        return back(series[-1] + steps[horizons.astype(int) - 1])


def _logs(history: Array, newest: int) -> tuple[Array, Callable[[Array], Array]]:
    """Scale the newest reports to 0..1, as logs if all are positive. Returns the inverse too."""
    positive = history.min() > 0.0
    series = np.log(history[-newest:]) if positive else history[-newest:]
    low, span = series.min(), np.ptp(series) or 1.0

    def back(values: Array) -> Array:
        return np.exp(low + span * values) if positive else low + span * values

    return (series - low) / span, back


#: Packages of the extra `benchmarks` that rivals need.
PACKAGES = {"holt-damped": "statsmodels", "arima": "statsmodels"}
RIVALS: dict[str, Callable[[], Rival]] = {
    "hold": Hold,
    "last-delta": LastDelta,
    "paper": Paper,
    "paper-unweighted": partial(Paper, 1.0),
    "holt-damped": Holt,
    "arima": Arima,
}


def available() -> tuple[list[str], list[str]]:
    """Return the names of the rivals that can run here, and one sentence per missing rival."""
    missing = {n: p for n, p in PACKAGES.items() if importlib.util.find_spec(p) is None}
    return [name for name in RIVALS if name not in missing], [
        f"rival {name} is left out: it needs {package} (pip install 'dask-slaq[benchmarks]')"
        for name, package in missing.items()
    ]


@dataclass(frozen=True)
class Record:
    """Forecasts of rivals for one curve, by name of the rival."""

    forecasts: dict[str, Array]  # losses, (n_origins, n_horizons)
    failures: dict[str, int]  # origins at which the last report replaced the forecast
    seconds: dict[str, float]  # total time of the forecasts


def follow(
    names: Sequence[str], loss: Array, origins: Sequence[int], horizons: Sequence[int]
) -> Record:
    """Run rivals on one curve, at each origin (a number of reports) with the reports up to it.

    If a rival fails or its forecast is not finite, the last report replaces the forecast.
    """
    record = Record({}, {}, {})
    ahead = np.array(horizons, dtype=float)
    for name in names:
        rival, failed, start = RIVALS[name](), 0, time.perf_counter()
        table = np.empty((len(origins), len(ahead)))
        for row, k in enumerate(origins):
            answer = _ask(rival, loss[:k], ahead)
            failed += answer is None
            table[row] = loss[k - 1] if answer is None else answer
        record.forecasts[name] = table
        record.failures[name] = failed
        record.seconds[name] = time.perf_counter() - start
    return record


def _ask(rival: Rival, history: Array, horizons: Array) -> Array | None:
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the forecast of a fit that did not converge still counts
        try:
            answer = rival.forecast(history, horizons)
        except (ArithmeticError, RuntimeError, ValueError, np.linalg.LinAlgError):
            return None
    return answer if np.isfinite(answer).all() else None
