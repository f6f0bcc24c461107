"""Forecasts of loss curves: see `Predictor` for the interface, `LossPredictor` for the default."""

from dask_slaq.core.forecast.corrections import NOISE_DEVIATIONS as NOISE_DEVIATIONS
from dask_slaq.core.forecast.corrections import USUAL_ITERATIONS as USUAL_ITERATIONS
from dask_slaq.core.forecast.corrections import at_horizon as at_horizon
from dask_slaq.core.forecast.corrections import diverging as diverging
from dask_slaq.core.forecast.corrections import ending as ending
from dask_slaq.core.forecast.corrections import first_at as first_at
from dask_slaq.core.forecast.corrections import in_logs as in_logs
from dask_slaq.core.forecast.corrections import iterations_to_losses as iterations_to_losses
from dask_slaq.core.forecast.corrections import predicted_range as predicted_range
from dask_slaq.core.forecast.corrections import unreported as unreported
from dask_slaq.core.forecast.guarded import GuardedPredictor as GuardedPredictor
from dask_slaq.core.forecast.guarded import broken_forecast as broken_forecast
from dask_slaq.core.forecast.predictor import LossPredictor as LossPredictor
from dask_slaq.core.forecast.predictor import predictor_named as predictor_named
from dask_slaq.core.forecast.types import FitStatus as FitStatus
from dask_slaq.core.forecast.types import Forecast as Forecast
from dask_slaq.core.forecast.types import Predictor as Predictor
from dask_slaq.core.forecast.types import concave_hull as concave_hull
