"""The callbacks in ``examples/trackers``, with the trackers that are installed."""

import importlib.util
import time
from pathlib import Path

import pytest
from distributed import wait

import dask_slaq as slaq

TRACKERS = Path(__file__).parent.parent / "examples" / "trackers"
RATES, STEPS = [0.1, 0.01, 1.0], 6


def example(name: str):
    spec = importlib.util.spec_from_file_location(name, TRACKERS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(rate: float) -> None:
    for k in range(STEPS):
        slaq.report({"loss": rate + 1 / (k + 1), "auc": k / STEPS})
    if rate == 1.0:
        raise ValueError("it diverged")


def losses(rate: float) -> list[float]:
    return [rate + 1 / (k + 1) for k in range(STEPS)]


@pytest.fixture(scope="module")
def search(client):
    """Make a search of three models, the last one of which fails, as a program does."""
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))

    def make(callback) -> None:
        with slaq.search("grid", callbacks=callback) as search:
            wait(search.map(train, RATES, pure=False))

    return make


def test_mlflow_has_a_run_per_model(search, tmp_path, caplog, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # new releases prefer a database
    uri = (tmp_path / "runs").as_uri()
    search(example("mlflow_runs").MLflowRuns("grid", uri))
    assert "failed" not in caplog.text
    client = mlflow.MlflowClient(uri)
    runs = client.search_runs([client.get_experiment_by_name("grid").experiment_id])
    assert sorted(float(run.data.params["rate"]) for run in runs) == sorted(RATES)
    for run in runs:
        rate = float(run.data.params["rate"])
        points = client.get_metric_history(run.info.run_id, "loss")
        assert [(p.step, p.value) for p in points] == list(enumerate(losses(rate), 1))
        assert run.data.metrics["auc"] == (STEPS - 1) / STEPS
        assert run.info.status == ("FAILED" if rate == 1.0 else "FINISHED")
        assert run.info.start_time <= points[0].timestamp <= run.info.end_time


def test_tensorboard_has_a_curve_per_model(search, tmp_path, caplog):
    pytest.importorskip("tensorboardX")
    search(example("tensorboard_runs").TensorBoardRuns(str(tmp_path)))
    assert "failed" not in caplog.text
    folders = sorted(tmp_path.iterdir())
    assert sorted(float(folder.name.partition("=")[2]) for folder in folders) == sorted(RATES)
    events = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for folder in folders:
        found = events.EventAccumulator(str(folder)).Reload()
        points = [(point.step, point.value) for point in found.Scalars("loss")]
        wanted = enumerate(losses(float(folder.name.partition("=")[2])), 1)
        assert points == [(step, pytest.approx(loss)) for step, loss in wanted]
        of_table = events.EventAccumulator(str(folder / "hparams")).Reload()
        assert of_table.Scalars("final_loss")[0].value == pytest.approx(points[-1][1])


def test_weights_and_biases_has_a_run_per_model(search, tmp_path, caplog, monkeypatch):
    pytest.importorskip("wandb")
    for name in ("WANDB_CACHE_DIR", "WANDB_CONFIG_DIR", "WANDB_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.setenv("WANDB_SILENT", "true")
    made = example("wandb_runs").WandbRuns("trial", mode="offline", dir=str(tmp_path))
    search(made)
    assert "failed" not in caplog.text and not made.runs
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == len(RATES)


def test_optuna_shows_a_search_as_a_study(search, caplog):
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(study_name="grid")
    distributions = {"rate": optuna.distributions.FloatDistribution(1e-3, 1, log=True)}
    search(example("optuna_study").OptunaStudy(study, distributions))
    assert "failed" not in caplog.text
    assert sorted(trial.params["rate"] for trial in study.trials) == sorted(RATES)
    for trial in study.trials:
        rate = trial.params["rate"]
        assert trial.intermediate_values == dict(enumerate(losses(rate), 1))
        assert trial.state.name == ("FAIL" if rate == 1.0 else "COMPLETE")
    assert study.best_params == {"rate": 0.01} and study.best_value == losses(0.01)[-1]


def again(made, callback_of_next_program) -> None:
    """Tell a model to the callbacks of two programs, of which the second has reattached."""
    about = {"job": "grid", "key": "x", "trial": None, "model": "m1", "params": {"rate": 0.1}}
    events = [{"event": "begin"}, {"event": "report", "step": 1}, {"event": "report", "step": 2}]
    ends = [{"event": "begin"}, {"event": "report", "step": 3}, {"event": "end", "state": "done"}]
    for callback, told in ((made, events), (callback_of_next_program, ends)):
        for event in told:
            callback({"metrics": {}, "loss": 0.5, "time": time.time(), **about, **event})


def test_mlflow_goes_on_with_the_run_of_another_program(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    uri, runs = (tmp_path / "runs").as_uri(), example("mlflow_runs").MLflowRuns
    again(runs("grid", uri), runs("grid", uri))
    client = mlflow.MlflowClient(uri)
    (run,) = client.search_runs([client.get_experiment_by_name("grid").experiment_id])
    points = client.get_metric_history(run.info.run_id, "loss")
    assert [p.step for p in points] == [1, 2, 3] and run.info.status == "FINISHED"


def test_tensorboard_goes_on_with_the_curve_of_another_program(tmp_path):
    pytest.importorskip("tensorboardX")
    runs = example("tensorboard_runs").TensorBoardRuns
    again(runs(str(tmp_path)), runs(str(tmp_path)))
    assert len(list(tmp_path.iterdir())) == 1


def test_an_optuna_study_goes_on_with_the_trial_of_another_program():
    optuna = pytest.importorskip("optuna")
    study = optuna.create_study(study_name="grid")
    distributions = {"rate": optuna.distributions.FloatDistribution(1e-3, 1, log=True)}
    shown = example("optuna_study").OptunaStudy
    again(shown(study, distributions), shown(study, distributions))
    (trial,) = study.trials
    assert sorted(trial.intermediate_values) == [1, 2, 3] and trial.state.name == "COMPLETE"


def diverge(rate: float) -> None:
    for _ in range(STEPS):
        slaq.report(float("nan") if rate == 1.0 else rate)


def test_models_without_a_loss_have_failed_in_an_optuna_study(client, caplog):
    optuna = pytest.importorskip("optuna")
    client.register_plugin(slaq.SlaqPlugin(epoch="1h"))
    study = optuna.create_study(study_name="grid")
    distributions = {"rate": optuna.distributions.FloatDistribution(1e-3, 1, log=True)}
    shown = example("optuna_study").OptunaStudy(study, distributions)
    with slaq.search("grid", callbacks=shown) as search:
        wait(search.map(diverge, RATES, pure=False))
    assert "failed" not in caplog.text
    found = {trial.params["rate"]: trial.state.name for trial in study.trials}
    assert found == {0.1: "COMPLETE", 0.01: "COMPLETE", 1.0: "FAIL"}
