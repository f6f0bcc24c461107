"""xgboost: reports of xgboost.dask, and of models trained in one task.

xgboost.dask trains in one long task per worker. A callback reports the loss of each round from the
worker of rank 0, after xgboost has summed the metric over all workers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import dask

from dask_slaq.adapters.callbacks import RoundReport, first_loss, latest
from dask_slaq.adapters.observing import Address as Address
from dask_slaq.adapters.observing import (
    Loop,
    LoopObserver,
    Mailbox,
    check_not_stopped,
    ends_with,
    kind_of,
    warn_once,
)
from dask_slaq.adapters.optional import made_on_access, optional

#: Name of the evaluation on the training data that is added if the user has none.
OWN = "slaq"
ANEW = (
    "a training is configured otherwise than before its task began anew, so it begins anew, too: "
    "draw parameters where the tasks are submitted, or with a seed"
)
#: Metrics where higher is better, all between 0 and 1; any of them may end in ``@n`` or ``-``.
HIGHER_IS_BETTER = {"auc", "aucpr", "map", "ndcg", "pre"}

#: Parameters that shape the loss curve: xgboost's defaults and other names for them.
DEFAULTS: dict[str, tuple[Any, ...]] = {
    "learning_rate": (0.3, "eta"),
    "max_depth": (6,),
    "reg_lambda": (1.0, "lambda"),
    "min_child_weight": (1.0,),
}


class XgboostTraining(LoopObserver):
    """Observer that adds a callback, and an evaluation on the training data if there is none.

    The callback runs first and removes the added evaluation from the log. The user's callbacks
    and the returned history therefore do not contain it.
    """

    needs = ("dtrain", "evals", "callbacks", "custom_metric")

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.inbox = Mailbox(self._block, "xgboost.dask")
        arguments = self.arguments
        dtrain, evals = arguments["dtrain"], arguments["evals"]
        names = [name for data, name in evals or () if data is dtrain]
        mine = callback(self.inbox.route, names[0] if names else None)
        arguments["callbacks"] = [mine, *(arguments["callbacks"] or ())]
        # Do not call a custom metric on data that it was not written for.
        if not evals and arguments["custom_metric"] is None:
            arguments["evals"] = [(dtrain, OWN)]
        maps = [dtrain.worker_map, *(data.worker_map for data, _ in evals or ())]
        self.gang: dict[str, Any] = {
            "slaq_gang": self.inbox.route.inbox,
            "slaq_gang_size": len(set().union(*maps)),
        }
        params = arguments.get("params") or {}
        threads = params.get("nthread") or params.get("n_jobs") or 0
        if threads > 0:  # else each task uses all threads of its worker
            self.gang["slaq_threads"] = threads

    def around(self, run: Callable[[], Awaitable[Any]]) -> Awaitable[Any]:
        """Annotate the tasks of a run, a coroutine, as a gang: they wait for each other."""

        async def annotated() -> Any:
            with dask.annotate(**self.gang):
                return await training

        training = super().around(run)
        return annotated()

    def kind(self, fit: str) -> dict[str, Any]:
        params = {k: v for k, v in (self.given.get("params") or {}).items() if v is not None}
        choices = (params.get("objective", "reg:squarederror"), params.get("booster", "gbtree"))
        numbers = {
            name: next((params[alias] for alias in (name, *others) if alias in params), default)
            for name, (default, *others) in DEFAULTS.items()
        }
        data = self.arguments["dtrain"]
        numbers["columns"] = data.num_col()
        numbers["chunks"] = sum(len(parts) for parts in data.worker_map.values())
        return kind_of(fit, choices, numbers)


def callback(route: Address, data: str | None) -> Any:
    """Create the callback that reports an evaluation, the first one if `data` is None."""
    from xgboost import collective
    from xgboost.callback import TrainingCallback

    class Report(TrainingCallback):
        def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
            return rebuild(), (route.fields, data)

        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            # Here, and not after a round: the user's callbacks see each round to its end.
            try:
                return ends_with(route, epoch)
            except Exception:
                return False

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            try:
                logs = {**evals_log}
                evals_log.pop(OWN, None)
                log = logs.get(data) or next(iter(logs.values()), None)
                if log and collective.get_rank() == 0:
                    scores = ((values[-1], higher_is_better(name)) for name, values in log.items())
                    if (loss := first_loss(scores, best=1.0)) is not None:
                        route.report(loss)
            except Exception:  # a report must not fail the training
                pass
            return False

    return Report()


def rebuild() -> Callable[..., Any]:
    """Return the function that unpickles a callback: one that does nothing without this package."""

    def make(route: tuple[str, str | None, bytes], data: str | None) -> Any:  # pickled by value
        try:
            from dask_slaq.adapters.xgboost import Address, callback
        except ImportError:
            from xgboost.callback import TrainingCallback

            return TrainingCallback()
        return callback(Address(*route), data)

    return make


def higher_is_better(metric: str) -> bool:
    """Return whether xgboost maximizes a metric."""
    return metric.partition("@")[0].rstrip("-") in HIGHER_IS_BETTER


class Boosted(NamedTuple):
    """State of a booster after some rounds, and what it was configured with at first."""

    config: str
    booster: Any
    rounds: int
    history: Mapping[str, Mapping[str, list[float]]]


class ReplayedRounds:
    """Rounds that a booster has made before its task began anew: the loop passes over them.

    The other callbacks of the training see them again, with the scores that there were.
    """

    def __init__(self, kept: Boosted) -> None:
        self._kept, self.booster, self._passed = kept, kept.booster, 0
        vars(self.booster).update(
            update=self._update, eval_set=self._eval_set, num_boosted_rounds=lambda: self._passed
        )

    def _update(self, dtrain: Any, iteration: int, fobj: Any = None) -> None:
        self._passed = iteration + 1
        if iteration >= self._kept.rounds:
            self.end()
            self.booster.update(dtrain, iteration=iteration, fobj=fobj)

    def _eval_set(self, evals: Any, iteration: int = 0, *args: Any) -> str:
        scores = (
            f"{data}-{metric}:{values[iteration]!r}"
            for data, log in self._kept.history.items()
            for metric, values in log.items()
        )
        return "\t".join([f"[{iteration}]", *scores])

    def end(self) -> None:
        """Let the booster boost again."""
        for name in ("update", "eval_set", "num_boosted_rounds"):
            vars(self.booster).pop(name, None)


def _made() -> type:
    base: Any = optional("xgboost.callback", "xgboost").TrainingCallback
    Booster = optional("xgboost", "xgboost").Booster

    class SlaqReport(RoundReport, base):  # type: ignore[misc]
        """Callback of ``xgboost.train`` and xgboost's estimators; see `RoundReport`.

        It keeps the booster, so that a training goes on after its worker has died, and elsewhere.

        Examples
        --------
        >>> from dask_slaq.adapters.xgboost import SlaqReport  # doctest: +SKIP
        >>> xgb.train(params, dtrain, 100, evals=[(dvalid, "valid")], callbacks=[SlaqReport()])
        """

        library = "xgboost"
        _stop, _config, _passed = False, "", 0
        _replay: ReplayedRounds | None = None

        def before_training(self, model: Any) -> Any:
            self._stop, self._passed, self._replay = False, 0, None
            check_not_stopped()
            if model.num_boosted_rounds():
                return model
            self._config = model.save_config() if isinstance(model, Booster) else ""
            kept = self.begin(keeps=bool(self._config))
            if kept is None:
                return model
            if kept.config != self._config:
                warn_once("xgboost anew", ANEW)
                return model
            self._replay, self._passed = ReplayedRounds(kept), kept.rounds
            return kept.booster

        def _end_replay(self) -> None:
            if self._replay is not None:
                self._replay.end()
                self._replay = None

        def after_training(self, model: Any) -> Any:
            self._end_replay()
            return model

        def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch >= self._passed:
                self._end_replay()
            # Here, and not after a round: the user's callbacks see each round to its end.
            return self._stop

        def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
            if epoch < self._passed:
                return False

            def state() -> Boosted:
                return Boosted(self._config, model, epoch + 1, evals_log)

            scores = partial(latest, evals_log, higher_is_better)
            self._stop = not self.report(scores, make_state=state)
            return False

    return SlaqReport


__getattr__ = made_on_access(__name__, SlaqReport=_made)


LOOPS = (Loop("xgboost.dask", "_train_async", XgboostTraining, fit="xgboost.dask"),)
