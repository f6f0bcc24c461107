"""Loss reports of LightGBM: of lightgbm.dask, and of models trained in one task (`SlaqReport`).

lightgbm.dask trains in one long task per worker, and evaluates each worker's own rows. A callback
reports the loss of each round over the rows of the first worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn
from urllib.parse import urlparse

import dask

from dask_slaq.adapters.callbacks import RoundReport, Scores, first_loss
from dask_slaq.adapters.observing import Address as Address
from dask_slaq.adapters.observing import (
    Loop,
    LoopObserver,
    Mailbox,
    Proxy,
    check_not_stopped,
    ends_with,
    kind_of,
    sizes_of,
)

#: Runs a callback after all others, so that the user's callbacks see the round.
LAST_ORDER = 1_000_000

#: Parameters that shape the loss curve, and LightGBM's defaults for them.
DEFAULTS = {"learning_rate": 0.1, "num_leaves": 31, "min_child_samples": 20, "reg_lambda": 0.0}


class LightgbmTraining(LoopObserver):
    """Observer that adds two callbacks to those of ``fit``, which run on every worker."""

    needs = ("client", "kwargs")

    def __init__(self, *run: Any) -> None:
        super().__init__(*run)
        self.inbox = Mailbox(self._block, "lightgbm.dask")
        arguments, given, route = self.arguments, self.given["kwargs"], self.inbox.route
        callbacks = [Report(route), *(given.get("callbacks") or ()), Stop(route)]
        arguments["kwargs"] = {**given, "callbacks": callbacks}
        arguments["client"] = Proxy(arguments["client"], submit=self._submit)

    def _submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Submit a task; annotate those that train as a gang: they wait for each other."""
        gang = {}
        if "num_machines" in kwargs:
            size = kwargs["num_machines"]
            gang = {"slaq_gang": self.inbox.route.inbox, "slaq_gang_size": size}
        with dask.annotate(**gang):
            return self.given["client"].submit(function, *args, **kwargs)

    def kind(self, fit: str) -> dict[str, Any]:
        """Return the kind: objective and boosting, parameters, and size of the data."""
        params = self.arguments.get("params") or {}
        choices = (params.get("objective"), params.get("boosting_type"))
        numbers = {name: params.get(name, default) for name, default in DEFAULTS.items()}
        return kind_of(fit, choices, {**sizes_of(self.arguments.get("data")), **numbers})


class Report:
    """LightGBM callback that reports the loss of each round to a route."""

    when = 5  # before early stopping, which may end the round with an exception
    before_iteration = False

    def __init__(self, route: Address) -> None:
        self.route = route
        self.order = self.when  # LightGBM looks for it in the instance only

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return rebuild(), (type(self).__name__, self.route.fields)

    def __call__(self, env: Any) -> None:
        try:
            if on_first_worker(env.params):
                results = env.evaluation_result_list or env.model.eval_train()
                loss = first_loss((value, higher) for _, _, value, higher, *_ in results)
                if loss is not None:
                    self.route.report(loss)
        except Exception:  # a report must not fail the training
            pass


class Stop(Report):
    """LightGBM callback that ends the training after a round, on all workers after the same one."""

    when = LAST_ORDER

    def __call__(self, env: Any) -> None:
        try:
            stop = ends_with(self.route, env.iteration)
        except Exception:
            return
        if stop:
            end_training(env)


def end_training(env: Any) -> NoReturn:
    """End the training after this round, with all trees so far."""
    from lightgbm.callback import EarlyStopException

    raise EarlyStopException(env.iteration, env.evaluation_result_list)


def rebuild() -> Callable[..., Any]:
    """Return the function that unpickles a callback: one that does nothing without this package."""

    def make(name: str, route: tuple[str, str | None, bytes]) -> Any:  # pickled by value
        try:
            from dask_slaq.adapters import lightgbm
        except ImportError:
            return lambda env: None
        return getattr(lightgbm, name)(lightgbm.Address(*route))

    return make


def on_first_worker(params: Mapping[str, Any]) -> bool:
    """Return whether this worker is the first ``host:port`` in LightGBM's list of machines."""
    from distributed import get_worker

    host = urlparse(get_worker().address).hostname
    first, _, _ = str(params["machines"]).partition(",")
    return first == f"{host}:{params['local_listen_port']}"


class SlaqReport(RoundReport):
    """Callback of ``lightgbm.train`` and LightGBM's estimators; see `RoundReport`.

    A booster of LightGBM cannot be set to an earlier state once its training has begun. So the
    models go on after their worker has died, and elsewhere, if they begin with `go_on`.

    Examples
    --------
    >>> from dask_slaq.adapters.lightgbm import SlaqReport
    >>> lgb.train(
    ...     params, train, 100, valid_sets=[valid], callbacks=[SlaqReport()]
    ... )  # doctest: +SKIP
    """

    library = "lightgbm"
    before_iteration = False
    _goes_on = False  # whether the next training begins with what `go_on` has returned

    def __init__(
        self, metric: str | None = None, data: str | None = None, maximize: bool | None = None
    ) -> None:
        super().__init__(metric, data, maximize)
        self.order = LAST_ORDER  # LightGBM looks for it in the instance only

    def go_on(self, rounds: int) -> dict[str, Any]:
        """Return the arguments of ``lightgbm.train`` with which a model of `rounds` rounds goes on.

        Returns
        -------
        dict
            ``init_model``, the booster of the last state, None at first, and ``num_boost_round``,
            the rounds that are left.

        Examples
        --------
        >>> report = SlaqReport()
        >>> lgb.train(
        ...     params, train, valid_sets=[valid], callbacks=[report], **report.go_on(100)
        ... )  # doctest: +SKIP
        """
        from lightgbm import Booster

        self._goes_on = True
        kept = self.begin(keeps=True)
        if kept is None:
            return {"init_model": None, "num_boost_round": rounds}
        booster = Booster(model_str=kept)
        left = max(rounds - booster.current_iteration(), 1)
        return {"init_model": booster, "num_boost_round": left}

    def __call__(self, env: Any) -> None:
        if env.iteration == env.begin_iteration:
            check_not_stopped()
            if env.iteration == 0 and not self._goes_on:
                self.begin()
            self._goes_on = False

        def scores() -> Scores:
            found: dict[str, dict[str, tuple[float, bool]]] = {}
            for data, metric, value, higher, *_ in env.evaluation_result_list or ():
                found.setdefault(data, {})[metric] = (value, higher)
            return found

        # LightGBM cannot train for no round.
        is_last = env.iteration + 1 >= env.end_iteration
        if not self.report(scores, make_state=None if is_last else env.model.model_to_string):
            end_training(env)


LOOPS = (Loop("lightgbm.dask", "_train", LightgbmTraining, fit="lightgbm.dask"),)
