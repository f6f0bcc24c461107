"""Reports of dask-ml's searches that train in increments: the best score so far.

A search is a coroutine in the client's event loop. It trains its models in rounds: all get a score,
then ``additional_calls`` decides who trains on.
"""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.adapters.observing import Loop, LoopObserver, ReportSession

# The best score of each block: Hyperband runs several searches at once, and they are one job.
_best: WeakKeyDictionary[ReportSession, float] = WeakKeyDictionary()


class Search(LoopObserver):
    """The loop calls ``additional_calls(info)`` once a round, with the history of each model that
    may train on.
    """

    needs = ("additional_calls",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.decide = self.arguments["additional_calls"]
        self.arguments["additional_calls"] = self.additional_calls

    def additional_calls(self, info: Any) -> Any:
        self.safely(self._scored, info)
        return self.decide(info)

    def _scored(self, info: Any) -> None:
        scores = [float(history[-1]["score"]) for history in info.values() if history]
        known = [score for score in scores if math.isfinite(score)]
        if known:
            best = _best[self._block] = max(*known, _best.get(self._block, -math.inf))
            self.report(-best)


LOOPS = (Loop("dask_ml.model_selection._incremental", "_fit", Search),)
