"""Reports of dask-ml's ``Incremental``.

It chains one task a block of the data, on workers; each reports the loss of its block from there
(`dask_slaq.adapters.observing.worker_reports`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_slaq.adapters.observing import Loop, LoopObserver, Mailbox


def then_report(partial_fit: Callable[..., Any], route: tuple[str, str | None]) -> Any:
    """Make the task of `Chain`: what dask-ml's ``_partial_fit`` does, then a report.

    A function inside a function travels by value: a worker that lacks this package fits all the
    same.
    """

    def partial_fit_and_report(model: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        model = partial_fit(model, x, y, *args, **kwargs)
        try:
            from dask_slaq.adapters.block_losses import loss_of_block
            from dask_slaq.adapters.observing import Address

            loss = loss_of_block(model, x, y)
            if loss is not None:
                Address(*route).report(loss, with_result=True)
        except Exception:  # not installed there, or an estimator that only looks like one we know
            pass
        return model

    return partial_fit_and_report


class Chain(LoopObserver):
    """The graph is a chain of ``_partial_fit`` tasks, one a block: an iteration each."""

    stands_in = ("_partial_fit",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.inbox = Mailbox(self._block)  # open as long as the fit runs
        route = self.inbox.route
        self._partial_fit = then_report(self.library["_partial_fit"], (route.inbox, route.topic))


LOOPS = (Loop("dask_ml.wrappers", "fit", Chain),)
