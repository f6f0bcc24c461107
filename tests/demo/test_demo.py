"""The demo works from end to end on small data."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys

import pytest
from driving import PATIENCE

from dask_slaq.demo import run as show
from dask_slaq.demo.drivers import Record
from dask_slaq.demo.meters import ComputeLog
from dask_slaq.demo.workload import plan
from dask_slaq.simulation.recorded.what_if import RECORDED, replay_log


def demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the demo as a program of its own, as people do."""
    return subprocess.run(
        [sys.executable, "-m", "dask_slaq", "demo", *arguments],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


@pytest.mark.slow
def test_a_small_demo(tmp_path):
    html = tmp_path / "report.html"
    result = demo(
        "--jobs=2",
        "--rows=1000",
        "--iterations=6",
        "--json=-",
        f"--html={html}",
        f"--log={tmp_path / 'logs'}",
        "--seed=5",
    )
    assert result.returncode == 0, result.stderr
    policies = json.loads(result.stdout)["policies"]
    assert list(policies) == ["fair", "max-total"]
    for policy, figures in policies.items():
        are_of_two_jobs(figures)
        replays(tmp_path / "logs" / f"{policy}.jsonl", policy, figures)
    assert "mean time to 90 % loss reduction" in result.stderr
    assert "2/2 done" in result.stderr
    assert str(html) in result.stderr
    draws_in_a_browser(html, tmp_path / "browser")


def are_of_two_jobs(figures):
    assert figures["makespan_s"] > 0
    assert 0 < figures["busy_fraction"] <= 1
    assert len(figures["jobs"]) == 2
    for job in figures["jobs"]:
        assert job["seed"] == 5
        # The loss where training starts, and one after each iteration.
        assert job["iterations"] >= 6
        assert 0 <= job["t90_s"] <= job["t95_s"] <= job["completion_s"]


def replays(log, policy, live):
    found = replay_log(log)
    assert found["difference"] is None
    assert found["reproduced"] == found["decisions"] > 5
    assert (found["policy"], found["settings"]["jobs"]) == (policy, 2)
    assert 0 < found["overhead"] < 1
    # The scheduler's times are those of the drivers, but for the way of a message.
    measured = found["policies"][RECORDED]["t90_mean_s"]
    assert measured == pytest.approx(live["t90_mean_s"], rel=0.5)


def draws_in_a_browser(html, profile):
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser is None:
        pytest.skip("all but the page was tested: no headless browser here")
    shown = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            f"--user-data-dir={profile}",
            "--dump-dom",
            html.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert shown.stdout.count("<svg") == 5
    assert shown.stdout.count("<polyline") == 4
    assert "NaN" not in shown.stdout


def test_a_job_that_fails_is_shown(capsys):
    job = plan(1, 0)[0]
    record = Record(job, error="Traceback\nValueError: no such thing")
    run = show.Run("fair", 0, 2, 0.0, 1.0, [record], [], 0)
    assert show._complain([run]) == 1
    said = capsys.readouterr().err
    assert f"{job.name} failed under fair" in said
    assert "ValueError: no such thing" in said


def test_there_are_two_to_four_workers_unless_told(monkeypatch):
    for cores, workers in ((1, 2), (2, 2), (3, 3), (64, 4)):
        monkeypatch.setattr(show, "CPU_COUNT", cores)
        assert show.Options().n_workers == workers
    assert show.Options(workers=7).n_workers == 7


@pytest.mark.slow
def test_the_algorithms_of_table_1_are_a_mix(local_client):
    assert len({training.kind for training in plan(9, 0, mix="nine")}) == 9
    trainings = plan(1, 0, iterations=2, mix="nine")
    local_client.register_plugin(ComputeLog())
    show._prepare(local_client, trainings, show.Options(mix="nine", rows=200))
    run = show._run(local_client, "max-total", trainings, show.Options(mix="nine", rows=200))
    (record,) = run.records
    assert record.error is None
    assert len(record.losses) >= 2
