"""Unmodified libraries train in tasks of a search on real workers: each fit is a trial of it."""

import functools
import itertools
from time import sleep
from typing import Any

import numpy as np
import pytest
from adapters.libraries import ROUNDS, objective
from distributed import Event
from driving import PATIENCE

import dask_slaq as slaq
from dask_slaq.core.trials.pruning import Peers

MODELS = 4


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="50ms"))


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
@pytest.mark.parametrize("per_task", [1, 2])
def test_a_study(client, optuna, monkeypatch, per_task):
    DaskStorage = pytest.importorskip("optuna_integration").DaskStorage
    fetched = []
    monkeypatch.setattr(DaskStorage, "get_all_trials", lambda *_, **__: fetched.append(1) or [])
    study = optuna.create_study(
        storage=DaskStorage(client=client),
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=slaq.optuna.Pruner(),
    )
    with slaq.search("study", steps=ROUNDS) as search:
        runs = [
            client.submit(study.optimize, objective, n_trials=per_task, pure=False)
            for _ in range(MODELS // per_task)
        ]
        client.gather(runs)
        trials = search.trials()
    assert len(fetched) <= MODELS  # Optuna's own, at the start of each trial
    monkeypatch.undo()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * MODELS
    assert len(trials) == MODELS
    assert [trial["iteration"] for trial in trials] == [ROUNDS] * MODELS
    ends = sorted(trial.value for trial in study.trials)
    assert sorted(trial["loss"] for trial in trials) == pytest.approx(ends)
    # Optuna's durations have what was waited.
    computed = search.results().set_index("trial").computed
    assert {trial.number for trial in study.trials} == {*computed.index} and (computed > 0).all()


def endless(trial: Any, end: float = 0.0, begun: str | None = None) -> float:
    import optuna

    for step in itertools.count():
        trial.report(end + 1 / (step + 1), step)
        if trial.should_prune():
            raise optuna.TrialPruned
        if step == 5 and begun is not None:
            Event(begun).set()
    raise AssertionError


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_stopped_study_ends(client, optuna):
    DaskStorage = pytest.importorskip("optuna_integration").DaskStorage
    study = optuna.create_study(storage=DaskStorage(client=client), pruner=slaq.optuna.Pruner())
    aim = functools.partial(endless, begun="study-begun")
    with slaq.search("study") as search:
        runs = [client.submit(study.optimize, aim, n_trials=5, pure=False) for _ in range(2)]
        assert Event("study-begun", client=client).wait(PATIENCE)
        slaq.stop("study")
        client.gather(runs)
        assert [trial["state"] for trial in search.trials()] == ["stopped"] * 2
    assert [trial.state.name for trial in study.trials] == ["PRUNED"] * 2


@pytest.mark.filterwarnings("ignore::optuna.exceptions.ExperimentalWarning")
def test_a_hopeless_trial_is_pruned(client, optuna):
    DaskStorage = pytest.importorskip("optuna_integration").DaskStorage
    study = optuna.create_study(storage=DaskStorage(client=client), pruner=slaq.optuna.Pruner())
    with slaq.search("study", prune=True) as search:
        client.submit(study.optimize, objective, n_trials=1, pure=False).result()
        aim = functools.partial(endless, end=5.0)
        client.submit(study.optimize, aim, n_trials=2, pure=False).result()
        trials = search.trials()
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "PRUNED"]
    assert sorted(trial["state"] for trial in trials) == ["done", "pruned", "pruned"]
    # The verdict on the first does not end the second, in the same task.
    assert all(trial["iteration"] >= 8 for trial in trials)


def test_a_grid_search_of_scikit_learn(client, data):
    pytest.importorskip("sklearn.callback")
    from joblib import parallel_config
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    from dask_slaq.adapters.sklearn import SlaqReport

    grid = {"C": [0.01, 0.1, 1, 10]}
    plain = GridSearchCV(LogisticRegression(), grid, cv=3).fit(*data)
    model = LogisticRegression().set_callbacks(SlaqReport())
    with slaq.search("grid") as search, parallel_config(backend="dask"):
        found = GridSearchCV(model, grid, cv=3).fit(*data)
        trials = search.trials()
    assert len(trials) == 12 and min(trial["iteration"] for trial in trials) >= 2
    for score in ("mean_test_score", "std_test_score"):
        np.testing.assert_array_equal(found.cv_results_[score], plain.cv_results_[score])
    # So has ``mean_fit_time``.
    assert [*search.results().groupby("params_C").computed.mean().index] == grid["C"]


def fall_with_norm(model, X, y):
    sleep(0.1 if model.C == 10 else 0.0)
    return -1 / (1 + abs(model.coef_).sum())


@pytest.mark.filterwarnings("ignore:.*fits failed", "ignore:.*are non-finite", "ignore:lbfgs")
def test_a_mean_holds_no_score_of_a_fit_that_was_cut_short(client, data, monkeypatch):
    pytest.importorskip("sklearn.callback")
    from joblib import parallel_config
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    from dask_slaq.adapters.sklearn import SlaqReport

    monkeypatch.setattr(Peers, "is_hopeless", lambda self, trial, *_: trial.params["C"] == 10)
    model = LogisticRegression().set_callbacks(SlaqReport(fall_with_norm))
    with slaq.search("grid", prune=True) as search, parallel_config(backend="dask"):
        found = GridSearchCV(model, {"C": [0.5, 1, 2, 10]}, cv=3).fit(*data)
        ends = {(row["params"]["C"], row["state"]) for row in search.trials()}
    assert ends == {(0.5, "done"), (1, "done"), (2, "done"), (10, "pruned")}
    assert np.isnan(found.cv_results_["mean_test_score"]).tolist() == [False] * 3 + [True]
    assert found.best_params_["C"] < 10
