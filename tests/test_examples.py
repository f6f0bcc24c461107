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
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_each_point_of_a_grid_is_a_job():
    lines = run("grid.py").splitlines()
    assert [line.split(":")[0] for line in lines] == ["C=0.1", "C=1.0", "C=10.0", "C=100.0"]
    for line in lines:
        accuracy, reports = re.search(r"accuracy (\S+), seen with (\d+)", line).groups()
        assert float(accuracy) > 0.8
        assert 2 <= int(reports) <= 7  # the start, and at most six iterations


@pytest.mark.slow
def test_models_that_are_dask_computations_are_searched():
    *models, best = run("search_of_jobs.py").splitlines()
    losses = [float(re.search(r"loss (\S+) after 12 steps", line)[1]) for line in models]
    assert len(losses) == 6 and losses == sorted(losses)
    assert best.startswith("best: {'rate': ") and best.count(",") >= 8


@pytest.mark.slow
def test_boosting_reports_every_round():
    pytest.importorskip("xgboost")
    lines = run("boosting.py").splitlines()
    said = [line for line in lines if "reports" in line]
    assert said == ["elastic: seen with 12 reports", "unmodified: seen with 12 reports"]


@pytest.mark.slow
def test_a_plain_torch_loop_learns():
    pytest.importorskip("torch")
    (line,) = run("pytorch.py").splitlines()
    first, last, reports = re.search(r"loss (\S+) to (\S+), seen with (\d+)", line).groups()
    assert float(last) < 0.5 * float(first)
    assert int(reports) == 30


@pytest.mark.slow
def test_work_that_reports_nothing_keeps_its_share():
    shares = dict(re.findall(r"(\w+): (\d+)% of the threads' time", run("non_ml.py")))
    assert list(shares) == ["training", "map", "svd"]
    # A third is fair; the floor is half of that, and what others leave idle comes on top.
    assert min(int(shares["map"]), int(shares["svd"])) >= 16


@pytest.mark.slow
def test_sampling_stops_when_the_estimate_is_good_enough():
    lines = run("sampling_aggregation.py").splitlines()
    assert [line.split(":")[0] for line in lines] == ["narrow", "wide"]
    read = []
    for line in lines:
        mean, half, n, true = map(
            float, re.search(r": (\S+) \+- (\S+) from (\d+) of 200 .* all: (\S+)", line).groups()
        )
        assert half <= 0.01 * mean + 0.001
        assert abs(mean - true) <= 2 * half
        read.append(n)
    assert read[0] < read[1] < 200


@pytest.mark.slow
def test_acceleration_saves_sweeps():
    found = re.findall(
        r"(\w+): residual (\S+) after (\d+) sweeps, error (\S+)", run("linear_solver.py")
    )
    assert [name for name, *_ in found] == ["accelerated", "plain"]
    assert all(float(residual) <= 1e-4 and float(error) < 0.01 for _, residual, _, error in found)
    assert int(found[0][2]) < int(found[1][2])


def test_every_example_is_run():
    text = Path(__file__).read_text()
    assert all(f'"{example.name}"' in text for example in EXAMPLES.glob("*.py"))


@pytest.mark.slow
def test_the_best_models_of_a_search_are_ready_first():
    *ready, counts, waited = run("search.py").splitlines()
    places = [int(re.match(r"place (\d+): rate \S+, loss", line)[1]) for line in ready]
    assert sorted(places) == list(range(1, 13))
    assert 1 in places[:6]
    assert counts == "12 models, 180 reports"
    assert float(re.search(r"for (\S+) s", waited)[1]) > 0


@pytest.mark.slow
def test_an_optuna_study_is_a_search():
    pytest.importorskip("optuna_integration")
    counts, best = run("optuna_search.py").splitlines()
    assert counts == "12 trials of 12 models, 180 reports"
    assert float(re.search(r"loss (\S+) with", best)[1]) < 0.5


@pytest.mark.slow
def test_late_predictions_are_reconstructed():
    found = re.findall(
        r"(\w+): (\d+) of 100 reconstructed, accuracy (\S+) .* score (\S+)",
        run("coded_predictions.py", "--queries", "100"),
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
    pytest.importorskip("dask_ml")
    lines = run("pipeline.py").splitlines()
    found = [re.match(r"(\w+): (\S+) core-seconds, (\d+) losses", line).groups() for line in lines]
    assert [name for name, *_ in found] == ["scale", "svd", "train"]
    assert all(float(seconds) > 0 for _, seconds, _ in found)
    assert [int(losses) > 0 for *_, losses in found] == [False, False, True]


@pytest.mark.slow
def test_models_survive_the_kill_of_their_worker():
    lines = run("survives.py").splitlines()
    assert lines[0] == "8 models, 120 steps"
    assert int(re.match(r"(\d+) of them", lines[1]).group(1)) >= 1


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


@pytest.mark.slow
def test_late_tasks_get_copies():
    without, copies = re.findall(r": (\S+) s", run("late_tasks.py"))
    assert float(copies) < float(without)
