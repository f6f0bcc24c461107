"""xgboost, LightGBM and CatBoost models trained in one task report each round to their search."""

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from adapters.libraries import ROUNDS, Catboost, Library, Lightgbm, Xgboost, reported
from hypothesis import given
from hypothesis import strategies as st


@pytest.fixture(params=[Xgboost, Lightgbm, Catboost])
def library(request) -> Library:
    return request.param()


def test_each_round_reports_the_last_set_and_a_loss(library, data, search):
    plain = library.train(data)
    model = library.train(data, library.module.SlaqReport())
    assert search.only == library.history[library.sets[1]][library.logloss]
    assert len(search.only) == ROUNDS
    assert library.rounds(model) == library.rounds(plain) == ROUNDS


def test_the_metric_is_chosen_and_maximized_ones_are_turned(library, data, search):
    report = library.module.SlaqReport
    library.train(data, report(metric=library.auc, data=library.sets[0]))
    assert search.only == [-value for value in library.history[library.sets[0]][library.auc]]
    search.losses.clear()
    library.train(data, report(metric=library.auc, maximize=False))
    assert search.only == library.history[library.sets[1]][library.auc]


@pytest.mark.parametrize("end", ["StopTraining", "TrialPruned"])
def test_an_end_keeps_the_model_so_far(library, data, search, end):
    from dask_slaq.core import errors

    search.ends_after, search.end = 3, getattr(errors, end)
    model = library.train(data, library.module.SlaqReport())
    assert len(search.only) == library.rounds(model) == 3
    assert len(library.history[library.sets[1]][library.logloss]) == 3
    if library.library.__name__ != "xgboost":
        assert len(model.predict(data[0])) == 200


def test_each_fit_is_a_trial_but_a_continued_one(library, data, search):
    report = library.module.SlaqReport()
    library.train(data, report)
    model = library.train(data, report)
    assert [len(losses) for losses in search.losses.values()] == [ROUNDS, ROUNDS]
    if library.library.__name__ != "catboost":  # which does not tell
        library.train(data, report, model=model)
        assert [len(losses) for losses in search.losses.values()] == [ROUNDS, 2 * ROUNDS]


@pytest.mark.parametrize("how", [{"metric": "nothing"}, {"data": "nothing"}])
def test_what_is_not_evaluated_costs_one_warning(library, data, search, how):
    with pytest.warns(RuntimeWarning, match=r"no metric .* logs .*(logloss|Logloss) of") as all:
        model = library.train(data, library.module.SlaqReport(**how))
    assert len([w for w in all if "to report" in str(w.message)]) == 1
    assert search.losses == {} and library.rounds(model) == ROUNDS


def test_without_an_evaluation_set(library, data, search):
    if library.library.__name__ == "catboost":  # evaluates the training data
        library.train(data, library.module.SlaqReport(), evaluate=False)
        assert search.only == library.history["learn"]["Logloss"]
    else:
        with pytest.warns(RuntimeWarning, match="pass it an evaluation set"):
            library.train(data, library.module.SlaqReport(), evaluate=False)


def test_reports_go_to_an_open_block_first(library, data, search):
    with reported() as losses:
        library.train(data, library.module.SlaqReport())
    assert len(losses) == ROUNDS and search.losses == {}


def test_is_sent_to_workers(library):
    copy = pickle.loads(pickle.dumps(library.module.SlaqReport("auc", maximize=True)))
    assert (copy.metric, copy.data, copy.maximize) == ("auc", None, True)


def test_catboost_rounds_without_an_evaluation_report_nothing(data, search):
    library = Catboost()
    library.train(data, library.module.SlaqReport(), metric_period=3)
    assert search.only == library.history["validation_1"]["Logloss"] and len(search.only) == 4


def test_a_cancelled_task_ends(data, search):
    from distributed import Reschedule

    search.end, search.ends_after = Reschedule, 2
    with pytest.raises(Reschedule):
        Xgboost().train(data, Xgboost().module.SlaqReport())
    assert len(search.only) == 2


ODD = st.one_of(
    st.none(),
    st.text(max_size=3),
    st.floats(),
    st.tuples(st.floats(), st.floats()),
    st.lists(st.floats(), max_size=2),
    st.just(np.zeros((2, 2))),
    st.just(object()),
)


@pytest.mark.parametrize("name", ["xgboost", "lightgbm", "catboost"])
@given(log=st.one_of(ODD, st.dictionaries(st.text(max_size=2), st.one_of(ODD, st.lists(ODD)))))
@pytest.mark.filterwarnings("ignore")
def test_no_odd_evaluation_fails_a_training(name, log):
    report = pytest.importorskip(f"dask_slaq.adapters.{name}").SlaqReport()
    if name == "xgboost":
        assert not report.after_iteration(None, 0, {"valid": log})
    elif name == "catboost":
        assert report.after_iteration(SimpleNamespace(metrics={"valid": log}, iteration=2))
    else:
        rows = [("valid", *item, False) for item in log.items()] if isinstance(log, dict) else log
        about = {"iteration": 1, "begin_iteration": 0, "end_iteration": 2}
        report(SimpleNamespace(evaluation_result_list=rows, **about))


def test_the_mean_of_folds_is_the_loss(data, search):
    xgboost = pytest.importorskip("xgboost")
    from dask_slaq.adapters.xgboost import SlaqReport

    matrix = xgboost.DMatrix(*data[:1], label=data[1])
    history = xgboost.cv({}, matrix, ROUNDS, callbacks=[SlaqReport()])
    assert search.only == list(history["test-rmse-mean"])
