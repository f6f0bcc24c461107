"""Reports of dask-ml's ``Incremental``, and of its searches that train in increments.

``Incremental`` chains one task a block of the data, on workers; each reports the loss of its block
from there (`dask_slaq.adapters.on_worker`). A search runs as a coroutine in the client's event
loop, and reports the best score that it has seen there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from dask_slaq.adapters.blocks import Block
from dask_slaq.adapters.loops import Loop, Watch
from dask_slaq.adapters.on_worker import Inbox


def then_report(partial_fit: Callable[..., Any], route: tuple[str, str | None]) -> Any:
    """Make the task of `Chain`: what dask-ml's ``_partial_fit`` does, then a report.

    A function inside a function travels by value: a worker that lacks this package fits all the
    same.
    """

    def partial_fit_and_report(model: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        model = partial_fit(model, x, y, *args, **kwargs)
        try:
            from dask_slaq.adapters.on_worker import Route
            from dask_slaq.adapters.partial_losses import loss_of_block

            loss = loss_of_block(model, x, y)
            if loss is not None:
                Route(*route).report(loss)
        except Exception:  # not installed there, or an estimator that only looks like one we know
            pass
        return model

    return partial_fit_and_report


class Chain(Watch):
    """The graph is a chain of ``_partial_fit`` tasks, one a block: an iteration each."""

    stands_in = ("_partial_fit",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.inbox = Inbox(self._block)  # open as long as the fit runs
        route = self.inbox.route
        self._partial_fit = then_report(self.library["_partial_fit"], (route.inbox, route.topic))


# The best score of each block: Hyperband runs several searches at once, and they are one job.
_best: WeakKeyDictionary[Block, float] = WeakKeyDictionary()


class Search(Watch):
    """After each round, ``additional_calls(info)`` decides who trains on; `info` has the scores."""

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


LOOPS = (
    Loop("dask_ml.wrappers", "fit", Chain),
    Loop("dask_ml.model_selection._incremental", "fit", Search),
)
