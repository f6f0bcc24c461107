"""Loss reports of dask-ml's ``Incremental``.

A fit is a chain of tasks, one per block of the data. Each task reports the loss of its block from
its worker (`dask_slaq.adapters.observing.worker_reports`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dask_slaq.adapters.observing import Loop, LoopObserver, Mailbox, kind_of_estimator


def then_report(partial_fit: Callable[..., Any], route: tuple[str, str | None]) -> Any:
    """Return the task function of `Chain`: dask-ml's ``_partial_fit``, followed by a report.

    A nested function is pickled by value, so a worker without this package still fits.

    Parameters
    ----------
    partial_fit : callable
        dask-ml's ``_partial_fit``.
    route : (str, str or None)
        Fields of the `Address` to report to.

    Returns
    -------
    callable
        Takes the arguments of `partial_fit` and returns its result.
    """

    def partial_fit_and_report(model: Any, x: Any, y: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            from dask_slaq.adapters.observing import Address, is_stopping

            if is_stopping(Address(*route)):
                return model  # without this block, and so are the blocks that follow
        except Exception:  # package not installed
            pass
        model = partial_fit(model, x, y, *args, **kwargs)
        try:
            from dask_slaq.adapters.block_losses import loss_of_block

            loss = loss_of_block(model, x, y)
            if loss is not None:
                Address(*route).report(loss, with_result=True)
        except Exception:  # package not installed, or an estimator that only resembles a known one
            pass
        return model

    return partial_fit_and_report


class Chain(LoopObserver):
    """Observer of ``Incremental``: one iteration per ``_partial_fit`` task, that is, per block."""

    stands_in = ("_partial_fit",)

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.inbox = Mailbox(
            self._block, "dask_ml.wrappers"
        )  # receives losses for as long as the fit runs
        route = self.inbox.route
        self._partial_fit = then_report(self.library["_partial_fit"], (route.inbox, route.topic))

    def kind(self, fit: str) -> dict[str, Any]:
        """Return the kind: the estimator and its parameters, and size of the data."""
        return kind_of_estimator(fit, self.arguments["model"], self.arguments["x"])


LOOPS = (Loop("dask_ml.wrappers", "fit", Chain, fit="dask_ml.Incremental"),)
