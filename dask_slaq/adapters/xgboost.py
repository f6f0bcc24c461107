"""Reports of xgboost.dask: ``train`` and the estimators ``DaskXGB...``.

Training is one long task on each worker. A callback of xgboost's own kind sends the loss of each
round from the worker of rank 0; xgboost has summed the metric over all workers by then.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dask_slaq.adapters.observing import Address, Loop, LoopObserver, Mailbox, ReportSession

#: The name of the evaluation on the training data that is added where the user has none.
OWN = "slaq"
#: Metrics of which more is better, all between 0 and 1; any of them may end in ``@n`` or ``-``.
HIGHER_IS_BETTER = {"auc", "aucpr", "map", "ndcg", "pre"}


class Training(LoopObserver):
    """Adds a callback, and an evaluation on the training data where the user has no other.

    The callback comes first and takes that evaluation out of the log, so that neither the user's
    callbacks nor the returned history know of it.
    """

    needs = ("dtrain", "evals", "callbacks", "custom_metric")

    def __init__(
        self, library: Mapping[str, Any], arguments: dict[str, Any], block: ReportSession
    ) -> None:
        super().__init__(library, arguments, block)
        inbox = Mailbox(block)
        dtrain, evals = arguments["dtrain"], arguments["evals"]
        names = [name for data, name in evals or () if data is dtrain]
        mine = callback(inbox.route, names[0] if names else None)
        mine.inbox = inbox  # kept for as long as the loop, a coroutine, has its arguments
        arguments["callbacks"] = [mine, *(arguments["callbacks"] or ())]
        # A metric of the user's own is not to be called on data that it was not meant for.
        if not evals and arguments["custom_metric"] is None:
            arguments["evals"] = [(dtrain, OWN)]


def callback(route: Address, data: str | None) -> Any:
    """Return the callback. Its base class is xgboost's, so it is made where it is needed.

    Parameters
    ----------
    route : Route
        The way that losses take.
    data : str or None
        Name of the evaluation to report; the first one by default.
    """
    from xgboost import collective
    from xgboost.callback import TrainingCallback

    class Report(TrainingCallback):  # type: ignore[misc]
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return rebuild(), (route.inbox, route.topic, data)

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            try:
                logs = {**evals_log}
                evals_log.pop(OWN, None)
                log = logs.get(data) or next(iter(logs.values()), None)
                if log and collective.get_rank() == 0:
                    route.report(loss_of(log))
            except Exception:  # training goes on without us
                pass
            return False

    return Report()


def rebuild() -> Callable[..., Any]:
    """Return what unpickles a callback; a worker without this package trains unobserved."""

    def make(inbox: str, topic: str | None, data: str | None) -> Any:  # goes by value
        try:
            from dask_slaq.adapters.xgboost import Address, callback
        except ImportError:
            from xgboost.callback import TrainingCallback

            return TrainingCallback()
        return callback(Address(inbox, topic), data)

    return make


def loss_of(log: Mapping[str, Sequence[float]]) -> float:
    """The newest value of the first metric of which less is better, else 1 less the first one.

    Examples
    --------
    >>> loss_of({"auc": [0.5, 0.75], "logloss": [0.7, 0.6]}), loss_of({"ndcg@8": [0.75]})
    (0.6, 0.25)
    """
    for name, values in log.items():
        if name.partition("@")[0].rstrip("-") not in HIGHER_IS_BETTER:
            return float(values[-1])
    return 1.0 - float(next(iter(log.values()))[-1])


LOOPS = (Loop("xgboost.dask", "_train_async", Training),)
