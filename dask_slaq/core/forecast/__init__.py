"""Forecasts of loss curves: see `Predictor` for the interface, `LossPredictor` for the default."""

from dask_slaq.core.forecast.corrections import (
    NOISE_FLOOR,
    USUAL,
    at_horizon,
    diverging,
    ending,
    first_at,
    in_logs,
    iterations_to_losses,
    predicted_range,
    unreported,
)
from dask_slaq.core.forecast.guarded import GuardedPredictor as GuardedPredictor
from dask_slaq.core.forecast.guarded import broken_forecast as broken_forecast
from dask_slaq.core.forecast.predictor import LossPredictor
from dask_slaq.core.forecast.types import Forecast, Predictor, Status, concave_hull

__all__ = [
    "NOISE_FLOOR",
    "USUAL",
    "Forecast",
    "LossPredictor",
    "Predictor",
    "Status",
    "at_horizon",
    "concave_hull",
    "diverging",
    "ending",
    "first_at",
    "in_logs",
    "iterations_to_losses",
    "predicted_range",
    "unreported",
]
