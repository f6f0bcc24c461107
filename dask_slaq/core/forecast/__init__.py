"""Forecasts of loss curves: see `Predictor` for the interface, `LossPredictor` for the default."""

from dask_slaq.core.forecast.corrections import (
    USUAL,
    at_horizon,
    diverging,
    ending,
    first_at,
    in_logs,
    unreported,
)
from dask_slaq.core.forecast.guarded import GuardedPredictor as GuardedPredictor
from dask_slaq.core.forecast.guarded import broken_forecast as broken_forecast
from dask_slaq.core.forecast.hull import concave_hull
from dask_slaq.core.forecast.predictor import LossPredictor
from dask_slaq.core.forecast.quality import NOISE_FLOOR, iterations_to_losses, predicted_range
from dask_slaq.core.forecast.types import Forecast, Predictor, Status

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
