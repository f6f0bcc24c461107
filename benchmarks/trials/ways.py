"""Ways to run a search's models on a cluster, one task each, and what workers run for them."""

from __future__ import annotations

import copy
import math
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from distributed import Client, as_completed

from benchmarks.common.cluster import local_cluster, register
from benchmarks.trials.spaces import Space

#: Ways that let Optuna choose the parameters.
STUDIES = ("optuna", "optuna-median", "optuna-slaq")
WAYS = ("plain", "search", *STUDIES)
#: Ways whose reports yield.
YIELDING = ("search", "optuna-slaq")
#: A search that takes this many times as long as its steps need, and a minute more, is stuck.
STUCK = 10


@dataclass(frozen=True)
class Search:
    """Models to train, and the cluster to train them on."""

    space: Space
    models: list[dict[str, Any]]  # parameters, where Optuna does not choose
    seed: int
    step_s: float  # seconds per step
    workers: int
    threads: int  # of each worker
    processes: bool  # whether workers are processes of their own
    sampler: str  # whether Optuna samples by "tpe", its default, or trains the "same" `models`

    @property
    def steps(self) -> int:
        """Number of steps of each model."""
        return len(self.space.losses(self.models[0]))

    @property
    def patience_s(self) -> float:
        """Seconds after which the search is given up as stuck."""
        work = len(self.models) * self.steps * self.step_s / (self.workers * self.threads)
        return STUCK * work + 60


@dataclass(frozen=True)
class Outcome:
    """What became of the models of a search."""

    #: Final loss of each model that was trained to its end, and seconds from the submission of the
    #: first until its result was ready.
    ready: list[tuple[float, float]]
    all_s: float  # seconds until nothing was left to do
    steps: int  # made, of all models
    #: Whether as many models as there are were trained to their ends, and each made exactly the
    #: losses that its parameters make alone.
    equal: bool


def require_optuna() -> None:
    """Raise an `ImportError` with what to install, unless Optuna and its Dask storage are there."""
    try:
        import optuna
        from optuna_integration import DaskStorage

        del optuna, DaskStorage
    except ImportError as error:
        raise ImportError("Optuna is not installed: pip install 'dask-slaq[optuna]'") from error


def run(way: str, search: Search) -> Outcome:
    """Run a search in one of `WAYS` on a fresh cluster; a stuck search raises `TimeoutError`."""
    with local_cluster(search.workers, threads=search.threads, processes=search.processes) as (
        _,
        client,
    ):
        if way in YIELDING:
            register(client, "max-total")
        client.run(_warm_up, way)
        with client.as_current():
            return _study(way, search, client) if way in STUDIES else _tasks(way, search, client)


def _warm_up(way: str) -> None:
    """Import what tasks will need, which would otherwise delay the first ones; be quiet."""
    if way in YIELDING:
        import dask_slaq

        assert dask_slaq.report
    if way in STUDIES:
        import optuna
        import optuna_integration.dask

        assert optuna_integration.dask
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)


def _block(way: str, search: Search, client: Client) -> AbstractContextManager[Any]:
    """Return the block in which a way submits its tasks."""
    if way not in YIELDING:
        return nullcontext()
    import dask_slaq as slaq

    return slaq.search(way, steps=search.steps, client=client)


# One task per model


def train(
    model: dict[str, Any], space: Space, step_s: float, report: Callable[[float], Any] | None
) -> list[float]:
    """Train one model: sleep and report each step. Returns the loss after each step."""
    made = []
    for loss in space.losses(model):
        time.sleep(step_s)
        made.append(loss)
        if report is not None:
            report(loss)
    return made


def _tasks(way: str, search: Search, client: Client) -> Outcome:
    report = None
    if way in YIELDING:
        import dask_slaq as slaq

        report = slaq.report
    begin = time.perf_counter()
    with _block(way, search, client):
        futures = client.map(
            train, search.models, space=search.space, step_s=search.step_s, report=report,
            pure=False,
        )  # fmt: skip
    seconds: dict[str, float] = {}
    for future in as_completed(futures, timeout=search.patience_s):
        seconds[future.key] = time.perf_counter() - begin
    results = client.gather(futures)
    return Outcome(
        ready=[(r[-1], seconds[f.key]) for r, f in zip(results, futures, strict=True)],
        all_s=max(seconds.values()),
        steps=sum(map(len, results)),
        equal=results == [search.space.losses(model) for model in search.models],
    )


# Optuna


@dataclass(frozen=True)
class Objective:
    """Objective of a study: one model with suggested parameters, the same under every pruner."""

    space: Space
    step_s: float

    def __call__(self, trial: Any) -> float:
        """Train a model, and return its final loss."""
        import optuna

        loss = math.inf
        for step, loss in enumerate(self.space.losses(self.space.suggest(trial))):
            time.sleep(self.step_s)
            trial.report(loss, step)
            if trial.should_prune():
                raise optuna.TrialPruned
        return loss


def _pruner(way: str) -> Any:
    import optuna

    if way == "optuna-slaq":
        from dask_slaq.adapters.optuna import Pruner

        return Pruner()
    return optuna.pruners.MedianPruner() if way == "optuna-median" else optuna.pruners.NopPruner()


def _study(way: str, search: Search, client: Client) -> Outcome:
    import optuna
    from optuna_integration import DaskStorage

    _warm_up(way)
    study = optuna.create_study(storage=DaskStorage(client=client), pruner=_pruner(way))
    if search.sampler == "same":
        for model in search.models:
            study.enqueue_trial(model)
    objective = Objective(search.space, search.step_s)
    begin = time.time()
    with _block(way, search, client):
        futures = [
            client.submit(_seeded(study, search, i).optimize, objective, n_trials=1, pure=False)
            for i in range(len(search.models))
        ]
    for future in as_completed(futures, timeout=search.patience_s):
        future.result()
    all_s = time.time() - begin
    made = [
        (t, [t.intermediate_values[k] for k in sorted(t.intermediate_values)]) for t in study.trials
    ]
    done = [(t, losses) for t, losses in made if t.state == optuna.trial.TrialState.COMPLETE]
    return Outcome(
        ready=[(t.value, t.datetime_complete.timestamp() - begin) for t, _ in done],
        all_s=all_s,
        steps=sum(len(losses) for _, losses in made),
        equal=len(done) == len(search.models)
        and all(losses == search.space.losses(t.params) for t, losses in done),
    )


def _seeded(study: Any, search: Search, number: int) -> Any:
    """Return the study with a seeded sampler of its own.

    A task gets a copy of the sampler. With one seed, all tasks would draw the same parameters.
    """
    import optuna

    seeded = copy.copy(study)
    seeded.sampler = optuna.samplers.TPESampler(seed=1000 * search.seed + number)
    return seeded
