"""Fit of a batch of loss curves: the experts forecast, and the gating network weights them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.forecast.cache import ForecastCache
from dask_slaq.core.forecast.curve_forecast import CurveForecast
from dask_slaq.core.forecast.experts.backtest import Backtest
from dask_slaq.core.forecast.experts.ensemble import Ensemble
from dask_slaq.core.forecast.experts.gating import GatingNetwork, blend
from dask_slaq.core.forecast.from_memory import FromMemory
from dask_slaq.core.forecast.history import Histories
from dask_slaq.core.forecast.intervals import AT, Bands
from dask_slaq.core.forecast.smoothing import NormalizedWindow, normalize_window

__all__ = ["Fitter"]

IntArray = NDArray[np.int64]


class Fitter:
    """Fits many loss curves at once, from the tables of a `LossPredictor` and into them.

    Parameters
    ----------
    history : Histories
        Reports of the jobs.
    cache : ForecastCache
        Takes the forecasts.
    bands : Bands
        Takes their prediction intervals.
    memory : FromMemory, optional
        Adds what past runs tell.

    Attributes
    ----------
    backtest : Backtest
        Scores of the experts.
    """

    def __init__(
        self, history: Histories, cache: ForecastCache, bands: Bands, memory: FromMemory | None
    ) -> None:
        self._history, self._cache, self._bands, self._memory = history, cache, bands, memory
        self._panel = Ensemble(history.window, history.n_means)
        self.backtest = Backtest(self._panel.noise_cost)
        self._gate = GatingNetwork()

    def fit(self, rows: IntArray) -> None:
        """Fit the jobs of some rows together, and store their forecasts."""
        view, beliefs = self._weigh(rows)
        self.backtest.remember(rows, view, beliefs)
        said = np.stack([np.column_stack([b.level, b.fall]) for b in beliefs])
        mix = self._gate.mix(view, said, self.backtest.log_weights(rows))
        belief = blend(said, mix, view.zero)
        self._cache.store(rows, view, self._history, belief)
        if self._memory is not None:
            self._memory.mix(rows, self._cache)
        ahead = (said[:, :, 1 + AT] - said[:, :, :1]) - (belief[:, 1 + AT] - belief[:, :1])
        spread = np.sqrt((mix.weight.T[:, :, None] * ahead**2).sum(axis=0))
        raw = view.unit[:, None]
        self._bands.store(rows, view.unit * view.noise, raw * spread, raw * belief[:, 1 + AT])

    def _weigh(self, rows: IntArray) -> tuple[NormalizedWindow, list[CurveForecast]]:
        """Return the normalized windows and the experts' forecasts, and update expert scores.

        A job without a recent forecast to score gets a backcast: a forecast from the reports up
        to some iterations ago. Forecasts and backcasts are made in the same calls, which halves
        the number of calls.
        """
        back = self.backtest.behind(rows, self._history.column["count"][rows])
        some = np.flatnonzero(back)
        again = rows[some]
        now, then = slice(len(rows)), slice(len(rows), None)
        both = normalize_window(
            self._history,
            np.concatenate([rows, again]),
            np.concatenate([np.zeros_like(back), back[some]]),
        )
        beliefs, view = self._panel.ask(both), both.of(now)
        self.backtest.score(rows, view)
        if len(again):
            self.backtest.remember(again, both.of(then), [b.of(then) for b in beliefs])
            self.backtest.score(again, view.of(some))
        return view, [b.of(now) for b in beliefs]
