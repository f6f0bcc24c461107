"""Every example runs, and prints what it should."""

import contextlib
import io
import json
import re
import runpy
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from unittest import mock

import pytest
from driving import PATIENCE

EXAMPLES = Path(__file__).parent.parent / "examples"
pytestmark = pytest.mark.filterwarnings("ignore")


#: Those that start processes. The others are run in this one, which has imported the libraries.
OF_PROCESSES = ("boosting.py", "non_ml.py", "survives.py")


def run(name: str, *options: str) -> str:
    command = [str(EXAMPLES / name), *options]
    if name not in OF_PROCESSES:
        said = io.StringIO()
        with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(said):
            runpy.run_path(command[0], run_name="__main__")
        return said.getvalue()
    command = [sys.executable, *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0 and "ERROR" not in done.stderr, done.stderr
    return done.stdout


def seconds(line: str) -> list[float]:
    """The times in a line."""
    return [float(number) for number in re.findall(r"(\S+) s\b", line)]


@pytest.mark.slow
def test_each_point_of_a_grid_is_a_job():
    *lines, mean, when = run("grid.py").splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "C=100",
        "C=1",
        "C=0.01",
        "C=0.001",
        "C=0.0001",
    ]
    assert len({re.search(r"accuracy (\S+),", line)[1] for line in lines}) > 1
    assert len(seconds(mean)) == 2
    assert "gain when" in when


@pytest.mark.slow
def test_models_that_are_dask_computations_are_searched():
    plain, search = run("search_of_jobs.py").splitlines()
    (same,) = {re.search(r"\{.*?\} \(loss \S+\)", line)[0] for line in (plain, search)}
    assert "'decay': 0.0" in same
    assert len(seconds(plain)) == len(seconds(search)) == 2


@pytest.mark.slow
def test_boosting_reports_every_round():
    pytest.importorskip("xgboost")
    found = re.findall(r"(.+): \S+ s, (\d+) reports; a sum", run("boosting.py"))
    assert found == [("plain Dask", "60"), ("elastic job", "60")]


@pytest.mark.slow
def test_a_plain_torch_loop_learns():
    pytest.importorskip("torch")
    found = re.findall(r": (loss (\S+) to (\S+)), seen with 30 reports", run("pytorch.py"))
    (_, first, last), job = found
    assert job == found[0] and float(last) < 0.5 * float(first)


@pytest.mark.slow
def test_work_that_reports_nothing_keeps_its_share():
    plain, jobs = (re.findall(r"(\w+) (\d+)%", line) for line in run("non_ml.py").splitlines())
    assert [name for name, _ in plain] == [name for name, _ in jobs] == ["map", "svd", "training"]
    # A third is fair; the floor is half of that, and what others leave idle comes on top.
    assert min(int(share) for name, share in jobs if name != "training") >= 16


@pytest.mark.slow
def test_sampling_stops_when_the_estimate_is_good_enough():
    text = run("sampling_aggregation.py")
    true = dict(re.findall(r"(\w+), all partitions: (\S+)", text))
    found = re.findall(r"(\w+): (\S+) \+- (\S+) from (\d+) of 200 partitions", text)
    assert [name for name, *_ in found] == ["narrow", "wide"] * 2
    for name, mean, half, _ in found:
        assert float(half) <= 0.01 * float(mean) + 0.001
        assert abs(float(mean) - float(true[name])) <= 2 * float(half)
    assert found[0] == found[2] and found[1] == found[3]
    assert int(found[0][-1]) < int(found[1][-1]) < 200


@pytest.mark.slow
def test_acceleration_saves_sweeps():
    found = re.findall(
        r"(\w+) residual (\S+) after (\d+) sweeps and \S+ s, error ([\de.-]+)",
        run("linear_solver.py"),
    )
    assert [name for name, *_ in found] == ["accelerated", "not"] * 2
    assert all(float(residual) <= 1e-4 and float(error) < 0.01 for _, residual, _, error in found)
    assert int(found[0][2]) == int(found[2][2]) < int(found[1][2]) == int(found[3][2])


def test_every_example_is_run():
    text = Path(__file__).read_text()
    assert all(f'"{example.name}"' in text for example in EXAMPLES.glob("*.py"))


@pytest.mark.parametrize(
    ("name", "library", "extra"),
    [
        ("boosting.py", "xgboost", "xgboost"),
        ("optuna_search.py", "optuna", "optuna"),
        ("pytorch.py", "torch", "torch"),
        ("mlflow_runs.py", "mlflow", "mlflow"),
        ("wandb_runs.py", "wandb", "wandb"),
    ],
)
def test_an_example_whose_library_is_missing_says_what_to_install(name, library, extra):
    hidden = {module: None for module in sys.modules if module.partition(".")[0] == library}
    with (
        mock.patch.dict(sys.modules, {**hidden, library: None}),
        pytest.raises(SystemExit, match=re.escape(f"pip install 'dask-slaq[{extra}]'")),
    ):
        runpy.run_path(str(EXAMPLES / name))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["search.py", "optuna_search.py", "mlflow_runs.py", "wandb_runs.py"]
)
def test_the_same_models_train_under_plain_dask_and_in_a_search(name):
    library = {"optuna": "optuna_integration"}.get(name.split("_")[0], name.split("_")[0])
    if library in ("optuna_integration", "mlflow", "wandb"):
        pytest.importorskip(library)
    plain, search = run(name).splitlines()
    assert plain.startswith("plain Dask: ") and search.startswith("search: ")
    # But for the times, they say the same.
    assert re.sub(r"\S+ s\b", "", plain).split()[2:] == re.sub(r"\S+ s\b", "", search).split()[1:]


@pytest.mark.slow
def test_late_predictions_are_reconstructed():
    found = re.findall(
        r"(\w+): (\d+) of 200 reconstructed, accuracy (\S+) .* score (\S+)",
        run("coded_predictions.py"),
    )
    assert [name for name, *_ in found] == ["linear", "network"]
    assert all(int(count) > 0 and float(accuracy) >= 0.5 for _, count, accuracy, _ in found)
    assert float(found[0][-1]) < 1e-9  # exactly


@pytest.mark.slow
def test_advice_on_what_to_persist_saves_the_repeats():
    pytest.importorskip("dask_ml")
    text = run("what_to_persist.py")
    advice = re.findall(r"Persist (.*) \(.* saves about (\S+) of (\S+) core-seconds", text)
    worth = [found for found in advice if float(found[2]) > 0.5]  # not the persisted runs
    assert any("features" in layers for layers, _, _ in worth)
    assert all(0.9 * float(repeats) <= float(saves) for _, saves, repeats in worth)
    assert text.count("the models are equal") == 2


@pytest.mark.slow
def test_a_pipeline_is_one_job_per_stage():
    plain, jobs, *lines, when = run("pipeline.py").splitlines()
    assert len(seconds(plain)) == len(seconds(jobs)) == 1
    found = [re.match(r"(\w+): (\S+) core-seconds, (\d+) losses", line).groups() for line in lines]
    assert [name for name, *_ in found] == ["scale", "svd", "train"]
    assert all(float(seconds) > 0 for _, seconds, _ in found)
    assert [int(losses) > 0 for *_, losses in found] == [False, False, True]
    assert "gains when" in when


@pytest.mark.slow
def test_models_survive_the_kill_of_their_worker():
    found = re.findall(r"(.+): (\d+) steps for 80, lowest loss (\S+)", run("survives.py"))
    assert [way for way, *_ in found] == ["plain Dask", "slaq.steps"]
    assert int(found[0][1]) > 80 and found[0][2] == found[1][2]


def test_alerts_are_posted():
    got = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.headers["Content-Type"], self.path, json.loads(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *args):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever).start()
        post = runpy.run_path(str(EXAMPLES / "alerts.py"))["post"]
        post(f"http://127.0.0.1:{server.server_port}/token", {"event": "done"})
        server.shutdown()
    assert got == [("application/json", "/token", {"event": "done"})]


@pytest.mark.parametrize("given", [(), ("tcp://127.0.0.1:8786",)])
def test_alerts_without_an_address_say_how_they_are_run(given):
    with pytest.raises(SystemExit, match=r"usage: python alerts\.py SCHEDULER URL"):
        run("alerts.py", *given)


@pytest.mark.slow
def test_late_tasks_get_copies():
    without, copies = re.findall(r": (\S+) s", run("late_tasks.py"))
    assert float(copies) < float(without)
