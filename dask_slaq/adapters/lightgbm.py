"""Reports of lightgbm.dask: the estimators ``DaskLGBM...``.

Training is one long task on each worker. A callback of LightGBM's own kind sends the loss of each
round from the first worker. LightGBM evaluates on each worker the rows that it has, and so that
worker's rows are what the loss is of.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any
from urllib.parse import urlparse

from dask_slaq.adapters.observing import Address, Loop, LoopObserver, Mailbox, ReportSession


class Training(LoopObserver):
    """Adds a callback: those that ``fit`` is given reach every worker."""

    needs = ("kwargs",)

    def __init__(
        self, library: Mapping[str, Any], arguments: dict[str, Any], block: ReportSession
    ) -> None:
        super().__init__(library, arguments, block)
        self.inbox = Mailbox(block)
        given = arguments["kwargs"]
        callbacks = [Report(self.inbox.route), *(given.get("callbacks") or ())]
        arguments["kwargs"] = {**given, "callbacks": callbacks}


class Report:
    """LightGBM's kind of callback; before early stopping, which may end the round with an error.

    Parameters
    ----------
    route : Route
        The way that losses take.
    """

    order = 5
    before_iteration = False

    def __init__(self, route: Address) -> None:
        self.route = route

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return rebuild(), (self.route.inbox, self.route.topic)

    def __call__(self, env: Any) -> None:
        try:
            if on_first_worker(env.params):
                loss = loss_of(env.evaluation_result_list or env.model.eval_train())
                if loss is not None:
                    self.route.report(loss)
        except Exception:  # training goes on without us
            pass


def rebuild() -> Callable[..., Any]:
    """Return what unpickles a callback; a worker without this package trains unobserved."""

    def make(inbox: str, topic: str | None) -> Any:  # goes by value
        try:
            from dask_slaq.adapters.lightgbm import Address, Report
        except ImportError:
            return lambda env: None
        return Report(Address(inbox, topic))

    return make


def on_first_worker(params: Mapping[str, Any]) -> bool:
    """Whether this is the first of the ``host:port`` of all machines."""
    from distributed import get_worker

    host = urlparse(get_worker().address).hostname
    first, _, _ = str(params["machines"]).partition(",")
    return first == f"{host}:{params['local_listen_port']}"


def loss_of(results: Iterable[tuple[Any, ...]]) -> float | None:
    """The first metric of which less is better, else the first with its sign turned, if any.

    Parameters
    ----------
    results : iterable of (data name, metric name, value, whether higher is better)

    Examples
    --------
    >>> loss_of([("train", "auc", 0.75, True), ("train", "l2", 0.5, False)])
    0.5
    """
    scores = [(value, higher) for _, _, value, higher, *_ in results]
    losses = [value for value, higher in scores if not higher]
    if losses:
        return float(losses[0])
    return -float(scores[0][0]) if scores else None


LOOPS = (Loop("lightgbm.dask", "_train", Training),)
