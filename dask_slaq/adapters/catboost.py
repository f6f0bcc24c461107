"""CatBoost callback that reports the loss of each round of a model that is trained in one task."""

from __future__ import annotations

from typing import Any

from dask_slaq.adapters.callbacks import RoundReport, latest


class SlaqReport(RoundReport):
    """Callback of ``fit`` of CatBoost's models; see `RoundReport`.

    Examples
    --------
    >>> from dask_slaq.adapters.catboost import SlaqReport
    >>> CatBoostClassifier().fit(
    ...     X, y, eval_set=(X_valid, y_valid), callbacks=[SlaqReport()]
    ... )  # doctest: +SKIP
    """

    library = "catboost"
    _evaluated = 0

    def after_iteration(self, info: Any) -> bool:
        if info.iteration == 1:
            self.begin()
            self._evaluated = 0
        try:
            lengths = (len(values) for log in info.metrics.values() for values in log.values())
            evaluated = max(lengths, default=1)
        except Exception:  # `scores` says what is odd
            evaluated = self._evaluated + 1
        if evaluated == self._evaluated:  # CatBoost's `metric_period` leaves rounds out
            return True
        self._evaluated = evaluated
        return self.report(lambda: latest(info.metrics, higher_is_better), info.iteration)


def higher_is_better(metric: str) -> bool:
    """Return whether CatBoost maximizes a metric; False for metrics that it does not know."""
    try:
        from catboost.core import is_maximizable_metric

        return bool(is_maximizable_metric(metric))
    except Exception:  # a metric of the user
        return False
