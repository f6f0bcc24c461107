"""Forecasts of loss curves: see `Predictor` for the interface, `LossPredictor` for the default."""

from dask_slaq.core.forecast.corrections import USUAL, ending, unreported
from dask_slaq.core.forecast.predictor import LossPredictor
from dask_slaq.core.forecast.quality import NORMALIZERS, predicted_range
from dask_slaq.core.forecast.types import Forecast, Predictor, Status

__all__ = [
    "NORMALIZERS",
    "USUAL",
    "Forecast",
    "LossPredictor",
    "Predictor",
    "Status",
    "ending",
    "predicted_range",
    "unreported",
]
