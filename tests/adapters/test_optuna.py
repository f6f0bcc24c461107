"""Optuna's trials report to their search where they ask whether they should be pruned."""

import pytest
from adapters.libraries import objective

import dask_slaq as slaq

optuna = pytest.importorskip("optuna")
pytestmark = pytest.mark.usefixtures("optuna")


def study_of(*, wrapped=None, **settings):
    return optuna.create_study(
        sampler=optuna.samplers.RandomSampler(seed=0),
        pruner=slaq.optuna.Pruner(wrapped),
        **settings,
    )


def values_of(trial):
    return list(trial.intermediate_values.values())


def test_steps_are_passed_on(search):
    trial = study_of().ask()
    for epoch in (0, 10, 20):
        trial.report(1.0, epoch)
        trial.should_prune()
    assert search.steps == {trial.number: [0, 10, 20]}


def test_the_direction_of_the_study_counts(search):
    study = study_of(direction="maximize")
    study.optimize(objective, n_trials=1)
    assert search.only == [-value for value in values_of(study.trials[0])]


def test_a_stopped_search_ends_the_study(search):
    search.ends_after = 2
    study = study_of()
    study.optimize(objective, n_trials=5)
    assert [trial.state.name for trial in study.trials] == ["PRUNED"]
    asked = study.ask()  # outside `optimize`, nothing else is to end
    for step in range(2):
        asked.report(1.0, step)
        pruned = asked.should_prune()
    assert pruned


def test_a_value_is_reported_once(search):
    study = study_of()
    trial = study.ask()
    assert not trial.should_prune() and search.losses == {}
    trial.report(1.0, 0)
    assert not trial.should_prune() and not trial.should_prune()
    trial.report(0.5, 1)
    assert not trial.should_prune()
    assert search.only == [1.0, 0.5]


def test_another_pruner_is_asked_after_the_wait(search):
    study = study_of(wrapped=optuna.pruners.ThresholdPruner(upper=1.0))
    study.optimize(objective, n_trials=1)
    assert study.trials[0].state.name == "PRUNED"
    assert search.only == values_of(study.trials[0]) and len(search.only) == 1


def test_does_nothing_elsewhere():
    study = study_of()
    study.optimize(objective, n_trials=2)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE"] * 2


def test_optunas_callbacks_of_other_libraries_report_too(search):
    xgboost = pytest.importorskip("xgboost")
    integration = pytest.importorskip("optuna_integration")
    rows = xgboost.DMatrix([[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1])

    def boost(trial):
        history = {}
        xgboost.train(
            {"nthread": 1, "min_child_weight": 0},
            rows,
            4,
            evals=[(rows, "all")],
            evals_result=history,
            callbacks=[integration.XGBoostPruningCallback(trial, "all-rmse")],
            verbose_eval=False,
        )
        assert search.losses[trial.number] == history["all"]["rmse"]
        return history["all"]["rmse"][-1]

    study = study_of()
    study.optimize(boost, n_trials=1)
    assert len(search.only) == 4
