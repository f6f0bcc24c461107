"""A search whose tasks do not report says so once in the client, with the reason and a remedy."""

import logging
import threading
import time

import dask
import numpy as np
import pytest
from distributed import wait
from distributed.utils_test import inc
from driving import PATIENCE

import dask_slaq as slaq


@pytest.fixture(scope="module", autouse=True)
def plugin(client):
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))


@pytest.fixture
def said(caplog, client):
    """The warnings of the client, once those of a search that is over have arrived."""
    caplog.set_level(logging.WARNING, logger="dask_slaq.client.messages")

    def wait_for(n: int) -> list[str]:
        # Without any to come, a few answers of the scheduler are awaited.
        for look in range(PATIENCE * 20):
            found = [r.getMessage() for r in caplog.records if r.name.endswith(".messages")]
            if len(found) >= n > 0 or (n == 0 and look > 10):
                break
            client.run_on_scheduler(lambda: None)
            time.sleep(0.05)
        return found

    return wait_for


def report_once(params, *inputs):
    slaq.report(params)
    return params


def test_a_search_that_reports_is_silent_about_its_helpers(client, said):
    with slaq.search("grid"):
        data = client.submit(np.ones, 5, pure=False)
        parts = client.map(inc, range(5), pure=False)
        futures = client.map(lambda p, *x: report_once(p), [1.0, 2.0], data=data, parts=parts)
        wait(futures)
    assert said(0) == []


def objective(trial):
    for step in range(3):
        trial.report(trial.suggest_float("x", 0, 1) + 1 / (step + 1), step)
        if trial.should_prune():
            raise RuntimeError
    return 1.0


@pytest.mark.parametrize("way", ["no pruner", "loaded with another pruner", "n_jobs=2"])
def test_a_study_without_our_pruner(client, said, way):
    optuna = pytest.importorskip("optuna")
    storage = pytest.importorskip("optuna_integration").DaskStorage(client=client)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = None if way == "no pruner" else slaq.optuna.Pruner()
    study = optuna.create_study(storage=storage, pruner=pruner, study_name=way)
    if way == "loaded with another pruner":
        study = optuna.load_study(storage=storage, study_name=way)
    n_jobs = 2 if way == "n_jobs=2" else 1
    with slaq.search("study"):
        runs = [
            client.submit(study.optimize, objective, n_trials=2, n_jobs=n_jobs, pure=False)
            for _ in range(4)
        ]
        wait(runs)
    (text,) = said(1)
    assert "'study'" in text and "pruner=slaq.optuna.Pruner()" in text and "n_jobs at 1" in text


@pytest.mark.parametrize("seed", [0, None])
def test_models_with_equal_parameters(client, said, seed):
    optuna = pytest.importorskip("optuna")
    storage = pytest.importorskip("optuna_integration").DaskStorage(client=client)
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        storage=storage,
        pruner=slaq.optuna.Pruner(),
        sampler=optuna.samplers.RandomSampler(seed=seed),
    )
    with slaq.search("study") as search:
        runs = [client.submit(study.optimize, objective, n_trials=1, pure=False) for _ in "abcd"]
        wait(runs)
        found = {row["params"]["x"] for row in search.trials()}
    if seed is None:
        assert len(found) == 4 and said(0) == []
    else:
        (text,) = said(1)
        assert len(found) == 1 and "equal parameters (x=" in text and "sampler" in text


def fall(model, steps):
    for step in range(steps):
        slaq.report(model["offset"][0] + 1 / (step + 1))


def test_models_that_their_data_tells_apart_have_no_equal_parameters(client, said):
    """What a table leaves out is what differs: two models, or the data that they see."""
    models = [{"offset": np.full(3, i)} for i in range(3)]
    with slaq.search("objects") as search:
        wait(client.map(fall, models, steps=4, pure=False))
        assert [row["params"] for row in search.trials()] == [{"steps": 4}] * 3
    assert said(0) == []


@pytest.mark.parametrize("what", ["folds", "forest"])
def test_scikit_learn_without_callbacks(client, said, what):
    from joblib import parallel_config
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    rows = np.random.default_rng(0)
    X, y = rows.normal(size=(60, 3)), rows.integers(0, 2, 60)
    with slaq.search(what, client=client), parallel_config("dask"):
        if what == "folds":
            GridSearchCV(LogisticRegression(), {"C": [0.1, 1, 10]}, cv=3).fit(X, y)
        else:
            RandomForestClassifier(12, random_state=0).fit(X, y)
    texts = [text for text in said(1) if f"search {what!r}" in text]
    assert len(texts) == 1, texts
    assert ("set_callbacks" if what == "folds" else "slaq.job instead of slaq.search") in texts[0]


def train(p, fold):
    for step in range(40):
        time.sleep(0.02)
        slaq.report((0.0, 0.0, 50.0)[fold] + 0.8**step)


@pytest.mark.parametrize("by", [None, "fold", "split", lambda params: params["fold"]])
def test_a_fold_is_not_compared_with_another_one(client, said, by):
    with slaq.search("folds", steps=40, prune=True, group=by) as search:
        for some in ([(0, 0), (0, 1), (1, 0), (1, 1)], [(p, 2) for p in range(6)]):
            wait(client.map(train, *zip(*some, strict=True), pure=False))
        rows = search.trials()
    ends = {(row["params"]["p"], row["params"]["fold"]): row["state"] for row in rows}
    kept = [p for p in range(6) if ends[p, 2] == "done"]
    assert len(kept) <= 3 if by in (None, "split") else kept == [*range(6)]
    texts = {None: "pass group='fold'", "split": "no parameter 'split'; they have 'p', 'fold'"}
    assert any(texts[by] in text for text in said(1)) if by in texts else said(0) == []


@pytest.mark.parametrize("anew", [True, False])
def test_several_models_in_one_task(client, said, anew):
    def train_all(models):
        for model in range(models):
            for step in range(4):
                slaq.report(model + 1 / (step + 1), **({"step": step} if anew else {}))

    with slaq.search("one", steps=4, client=client):
        client.submit(train_all, 2, pure=False).result()
    assert said(0) == []
    with slaq.search("several", steps=4, client=client):
        client.gather(client.map(train_all, [3, 4], pure=False))
    (text,) = said(1)
    assert (
        "more than twice its 4 steps" in text and "one per task" in text and "raise steps" in text
    )


def test_a_job_where_a_search_was_meant(client, said):
    with slaq.job("models"):
        wait(client.map(report_once, [1.0, 2.0, 3.0], pure=False))
    (text,) = said(1)
    assert "job 'models'" in text and "open the block with slaq.search" in text


def test_tasks_that_are_computed_after_the_block(client, said):
    with slaq.search("late"):
        lazy = [dask.delayed(report_once)(float(i)) for i in range(3)]
    dask.compute(*lazy)
    (text,) = said(1)
    assert "'late'" in text and "no task was submitted in its block" in text


def test_a_function_that_never_reports(client, said):
    with slaq.search("grid"):
        wait(client.map(inc, range(4), pure=False))
    (text,) = said(1)
    assert "must call dask_slaq.report(loss)" in text and "'inc'" in text


def score_slowly(model, X, y):
    time.sleep(0.05)
    return model.score(X, y)


def test_a_stopped_grid_search_raises(client):
    pytest.importorskip("sklearn.callback")
    from joblib import parallel_config
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    from dask_slaq.adapters.sklearn import SlaqReport

    rows = np.random.default_rng(0)
    X, y = rows.normal(size=(200, 5)), rows.integers(0, 2, 200)
    model = LogisticRegression(max_iter=100_000, tol=1e-12).set_callbacks(SlaqReport(score_slowly))
    grid = GridSearchCV(model, {"C": [0.1, 1, 10]}, cv=2)
    with slaq.search("grid") as search:

        def stop():
            while not any(row["iteration"] for row in search.trials()):
                time.sleep(0.05)
            search.stop()

        stopper = threading.Thread(target=stop)
        stopper.start()
        with parallel_config("dask"), pytest.raises(slaq.StopTraining, match="was stopped"):
            grid.fit(X, y)
        stopper.join()
    assert not hasattr(grid, "best_params_")
    assert all(row["params"]["max_iter"] == 100_000 for row in search.trials())


def test_an_incremental_search_is_told_once_to_be_a_job(client, said):
    pytest.importorskip("dask_ml")
    import dask.array as da
    from dask_ml.model_selection import IncrementalSearchCV
    from sklearn.linear_model import SGDClassifier

    rows = np.random.default_rng(0)
    X = da.from_array(rows.normal(size=(200, 3)), chunks=(50, 3))
    y = da.from_array(rows.integers(0, 2, 200), chunks=50)
    found = {"alpha": [1e-4, 1e-3, 1e-2]}
    with slaq.search("incremental"):
        IncrementalSearchCV(
            SGDClassifier(), found, n_initial_parameters=3, max_iter=5, decay_rate=None
        ).fit(X, y, classes=[0, 1])
    said(1)
    client.run_on_scheduler(lambda: None)
    time.sleep(0.2)
    (text,) = said(1)
    assert "use slaq.job instead of slaq.search" in text and "IncrementalSearchCV" in text


def report_all(losses):
    for loss in losses:
        slaq.report(loss)


RISES = [[0.1 * model + 0.1 * step for step in range(6)] for model in range(4)]


@pytest.mark.parametrize(
    ("losses", "maximize", "n"),
    [
        (RISES, False, 1),
        ([curve[:2] for curve in RISES], False, 1),  # that have ended
        (RISES, True, 0),
        ([*RISES[:2], [1.0, 0.9, 2.0, 2.0, 2.0, 2.0]], False, 0),
        ([[0.5] * 6] * 4, False, 0),
        ([[0.5, *[np.nan] * 5]] * 4, False, 0),
        ([[0.5, 0.6, *[np.nan] * 4]] * 4, False, 0),
    ],
)
def test_scores_that_are_reported_as_losses(client, said, losses, maximize, n):
    with slaq.search("grid", maximize=maximize):
        wait(client.map(report_all, losses, pure=False))
    assert [("maximize=True" in text and "'grid'" in text) for text in said(n)] == [True] * n


@pytest.mark.parametrize(
    ("losses", "n"),
    [
        ([0.1 * step for step in range(40)], 1),
        ([0.1 * step for step in range(19)], 0),
        ([0.5, 0.4, *range(1, 40)], 0),
        ([0.5] * 40, 0),
        ([*range(10), *[np.nan] * 5, *range(10, 40)], 0),
    ],
)
def test_a_job_whose_loss_only_rises(client, caplog, losses, n):
    with slaq.job("mine") as mine:
        for loss in losses:
            mine.report(loss)
    texts = [text for text in caplog.messages if "has only risen in 20 reports" in text]
    assert len(texts) == n and all("report a score with a minus" in text for text in texts)
