"""Reports of dask-ml's incremental searches: minus the best score so far.

A search is a coroutine in the client's event loop. It trains its models in rounds: all models are
scored, then ``additional_calls`` decides which of them to train further.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.adapters.observing import (
    Loop,
    LoopObserver,
    ReportSession,
    kind_of,
    log_stop,
    sizes_of,
)
from dask_slaq.core.errors import StopTraining

# Best score per block, since Hyperband runs several searches at once as one job.
_best: WeakKeyDictionary[ReportSession, float] = WeakKeyDictionary()


class Search(LoopObserver):
    """Observer of ``_fit``.

    The loop calls ``additional_calls(info)`` once per round, with the history of each model that
    may be trained further.
    """

    needs = ("additional_calls",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.decide = self.arguments["additional_calls"]
        self.arguments["additional_calls"] = self.additional_calls

    def kind(self, fit: str) -> dict[str, Any]:
        """Return the kind: the estimator, how many candidates there are, and size of the data."""
        given = self.arguments
        candidates = getattr(given.get("params"), "n_iter", None)  # ParameterSampler
        if candidates is None and hasattr(given.get("params"), "__len__"):
            candidates = len(given["params"])
        sizes = sizes_of(given.get("X_train"))
        if isinstance(given.get("X_train"), list):  # one future per chunk
            sizes = {"chunks": len(given["X_train"])}
        return kind_of(fit, (type(given.get("model")),), {**sizes, "candidates": candidates})

    def additional_calls(self, info: Any) -> Any:
        try:
            self.safely(self._scored, info)
        except StopTraining:
            log_stop(self._block, "dask_ml.model_selection")
            return dict.fromkeys(info, 0)  # train none further, and choose the best of them
        return self.decide(info)

    def _scored(self, info: Any) -> None:
        scores = [float(history[-1]["score"]) for history in info.values() if history]
        known = [score for score in scores if math.isfinite(score)]
        if known:
            best = _best[self._block] = max(*known, _best.get(self._block, -math.inf))
            self.report(-best)


LOOPS = (Loop("dask_ml.model_selection._incremental", "_fit", Search, fit="dask_ml.search"),)
