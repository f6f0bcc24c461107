"""Rival forecasts of loss curves, under the same harness as the default predictor.

One object follows one curve with increasing origins, so it may keep state.
"""

from __future__ import annotations

import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

__all__ = ["PACKAGES", "RIVALS", "Record", "Rival", "available", "follow"]

Array = NDArray[np.float64]

#: Factor on the weight of a report per iteration of age, in the authors' fits.
DECAY = 0.8
#: Number of reports beyond which the authors' weights are below 1e-9.
WEIGHTED = 100


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


class Aitken:
    """Geometric extrapolation of the last two drops, as in Aitken's delta-squared process.

    If the drops do not shrink, there is no limit, and the forecast is the last report.
    """

    def forecast(self, history: Array, horizons: Array) -> Array:
        before, last = np.diff(history[-3:])
        ratio = last / before if before else 0.0
        if not 0.0 < ratio < 1.0:
            return np.full(len(horizons), history[-1])
        return history[-1] + last * ratio * np.expm1(horizons * np.log(ratio)) / (ratio - 1.0)


class Paper:
    """The paper's fits (§4.1): exponential weights, and the better of two families.

    The families are sublinear, 1 / (a k² + b k + c) + d, and linear or faster, mu^(k - b) + c. Both
    must fall, so `curve_fit` gets the logarithms of their parameters, with the gradient. It starts
    from the best point of a grid on which the linear parameters are solved exactly. If no loss was
    negative, the limit is not negative either.
    """

    def forecast(self, history: Array, horizons: Array) -> Array:
        losses = history[-WEIGHTED:]
        low, span = losses.min(), np.ptp(losses)
        if span == 0.0:
            return np.full(len(horizons), history[-1])
        # Scale time and loss to order 1, which preserves both families.
        n = len(losses)
        k, y = np.arange(n) / n, (losses - low) / span
        weight = DECAY ** np.arange(n - 1, -1, -1)
        level = float(weight @ y / weight.sum())
        best, answer = float(weight @ (y - level) ** 2), np.full(len(horizons), level)
        for family in (_Sublinear, _Geometric):
            try:
                parameters = _fit(family, k, y, weight, _bottom(low, span))
            except (RuntimeError, np.linalg.LinAlgError):
                continue
            if parameters is None:
                continue
            cost = float(weight @ (y - family.value(k, *parameters)) ** 2)
            if cost < best:
                best, answer = cost, family.value((n - 1 + horizons) / n, *parameters)
        return low + span * answer


def _bottom(low: float, span: float) -> float:
    """Return the lowest allowed limit of the loss, in units of `span` above `low`."""
    return -low / span if low >= 0.0 else -np.inf


class _Sublinear:
    """Family 1 / (a k² + b k + c) + d, with parameters log a, log b, log c and d."""

    @staticmethod
    def value(k: Array, a: float, b: float, c: float, d: float) -> Array:
        return 1.0 / (np.exp(a) * k**2 + np.exp(b) * k + np.exp(c)) + d

    @staticmethod
    def gradient(k: Array, a: float, b: float, c: float, d: float) -> Array:
        parts = np.array([np.exp(a) * k**2, np.exp(b) * k, np.full(len(k), np.exp(c))])
        slope = -parts / parts.sum(axis=0) ** 2
        return np.vstack([slope, np.ones(len(k))]).T

    #: Grid of (a / c, b / c).
    shapes = tuple((a, b) for b in np.geomspace(1e-2, 1e3, 11) for a in (1e-4, 0.1 * b, b, b * b))

    @staticmethod
    def start(shape: tuple[float, float], height: float, floor: float) -> Array:
        return np.array(
            [np.log(shape[0] / height), np.log(shape[1] / height), -np.log(height), floor]
        )

    @staticmethod
    def curve(k: Array, shape: tuple[float, float]) -> Array:
        return 1.0 / (shape[0] * k**2 + shape[1] * k + 1.0)


class _Geometric:
    """Family mu^(k - b) + c, with parameters log(-log mu), log(mu^-b) and c."""

    @staticmethod
    def value(k: Array, rate: float, height: float, c: float) -> Array:
        return np.exp(height - np.exp(rate) * k) + c

    @staticmethod
    def gradient(k: Array, rate: float, height: float, c: float) -> Array:
        fall = np.exp(height - np.exp(rate) * k)
        return np.vstack([-fall * np.exp(rate) * k, fall, np.ones(len(k))]).T

    shapes = tuple(np.geomspace(1e-2, 1e2, 17))

    @staticmethod
    def start(shape: float, height: float, floor: float) -> Array:
        return np.array([np.log(shape), np.log(height), floor])

    @staticmethod
    def curve(k: Array, shape: float) -> Array:
        return np.exp(-shape * k)


def _fit(
    family: type[_Sublinear] | type[_Geometric], k: Array, y: Array, weight: Array, bottom: float
) -> Array | None:
    """Fit by weighted least squares. Returns None if the best member of the family is constant."""
    from scipy.optimize import curve_fit

    curves = np.array([family.curve(k, shape) for shape in family.shapes])
    total = weight.sum()
    middle, center = weight @ y / total, curves @ weight / total
    spread = curves - center[:, None]
    square, cross = spread**2 @ weight, spread @ (weight * (y - middle))
    height = np.divide(cross, square, out=np.zeros(len(curves)), where=square > 1e-300)
    gain = np.where(height > 0, height * cross, 0.0)
    best = int(gain.argmax())
    if gain[best] <= 0.0:
        return None
    start = family.start(family.shapes[best], height[best], middle - height[best] * center[best])
    given = {"sigma": weight**-0.5, "jac": family.gradient}
    found, _ = curve_fit(family.value, k, y, p0=start, maxfev=400, **given)
    if found[-1] < bottom:
        least = np.r_[np.full(len(start) - 1, -np.inf), bottom]
        start = np.maximum(start, least + 1e-9 * (np.isfinite(least)))
        found, _ = curve_fit(
            family.value, k, y, p0=start, bounds=(least, np.inf), max_nfev=100, **given
        )
    fitted: Array = found
    return fitted


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
    "aitken": Aitken,
    "paper": Paper,
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
