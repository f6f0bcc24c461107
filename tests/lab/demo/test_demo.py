"""The demos work from end to end, with few models and little work."""

import json
import re
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from driving import PATIENCE

from dask_slaq.lab.demo import fits, local, report, search


def demo(html: Path, *arguments: str) -> tuple[dict[str, Any], str]:
    """Run the demo as a program of its own, as people do; its figures, and what it says."""
    command = [sys.executable, "-m", "dask_slaq", "demo", "--json=-", "--seconds=1", "--seed=5"]
    result = subprocess.run(
        [*command, f"--html={html}", *arguments], capture_output=True, text=True, timeout=PATIENCE
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), result.stderr


@pytest.mark.slow
def test_models_train_both_ways(tmp_path):
    html = tmp_path / "report.html"
    found, said = demo(html, "--count=6", "--steps=5")
    ways = found["ways"]
    assert list(ways) == ["plain", "search"]
    for figures in ways.values():
        assert 0 < figures["best_s"] <= figures["top5_s"] <= figures["all_s"]
        assert len(figures["models"]) == 6
    assert ways["plain"]["models"] == ways["search"]["models"]
    busy = "run it again when the machine is idle" in said
    assert busy or "Every model ended with the same loss both ways" in said
    assert said.count("6 of 6 done") == 4
    assert re.findall(r"Run (\d) of 4: (.*)", said) == [
        ("1", "plain client.map"), ("2", "a search"), ("3", "a search"), ("4", "plain client.map")
    ]  # fmt: skip
    assert "unregistered" not in said
    assert str(html) in said
    assert "Warning" not in said
    draws(html, charts=9)


@pytest.mark.slow
def test_jobs_train_under_every_policy(tmp_path):
    html = tmp_path / "report.html"
    found, said = demo(html, "--jobs", "--count=2", "--steps=6")
    policies = found["policies"]
    assert list(policies) == ["fair", "max-total"]
    for figures in policies.values():
        assert figures["makespan_s"] > 0
        assert figures["bytes_moved"] >= 0
        assert len(figures["jobs"]) == 2
        for job in figures["jobs"]:
            assert job["seed"] == 5
            assert 0 <= job["t90_s"] <= job["t95_s"] <= job["completion_s"]
    assert "mean time to 90 % loss reduction" in said
    assert "2 of 2 done" in said and "Run 2 of 2: the policy max-total" in said
    draws(html, charts=4)


@pytest.mark.slow
def test_fits_of_dask_ml_run_on_plain_dask_and_as_jobs(tmp_path):
    html = tmp_path / "report.html"
    found, said = demo(html, "--fits", "--count=3", "--steps=6")
    policies = found["policies"]
    assert list(policies) == ["none", "first-to-target"]
    for figures in policies.values():
        assert 0 < figures["t90_mean_s"] <= figures["makespan_s"]
        assert len(figures["jobs"]) == 3 and len(figures["runs"]) == 2
    assert "plain Dask" in said and said.count("3 of 3 done") == 4
    assert "Run 3 of 4: each fit a job" in said and "unregistered" not in said
    draws(html, charts=4)


@pytest.mark.parametrize(
    "plain, ours, firm",
    [
        ((10.0, 13.0), (6.0, 8.0), True),
        ((10.0, 13.0), (9.0, 11.0), False),
        ((10.0, 10.5), (10.2, 10.4), True),
        ((10.0, None), (6.0, 6.0), False),
    ],
)
def test_runs_of_fits_disagree_if_they_differ_by_more_than_what_is_gained(plain, ours, firm):
    ways = {"none": plain, "first-to-target": ours}
    runs = {way: {"runs": [{"t90_mean_s": t} for t in times]} for way, times in ways.items()}
    said = local.judge("Much was gained.", runs, "t90_mean_s")
    assert ("Much" in said) == firm and ("run it again when the machine is idle" in said) != firm


def test_losses_of_a_fit_are_drawn_as_the_part_of_its_fall():
    both = [
        local.DemoTraining("fit", curve=[(1.0, 30.0), (2.0, 20.0), (3.0, low)]) for low in (10, 12)
    ]
    fits._normalize(both)
    assert both[0].losses == [1.0, 0.5, 0.001] and both[1].losses == [1.0, 0.5, 0.1]


def draws(html: Path, charts: int) -> None:
    page = html.read_text()
    assert page.count('"name":"Figure"') == charts


def test_a_model_that_fails_is_shown_and_left_out(monkeypatch, capsys, tmp_path):
    good = local.DemoTraining("01 good", curve=[(1.0, 0.5)], done=2.0)
    bad = local.DemoTraining("02 bad", done=1.0, error="Traceback\nValueError: no such thing")
    runs = [local.DemoRun(way, [good, bad], start=0.0) for way in ("plain", "search")]
    ways = local.figures_of(runs, search.measure)
    assert ways["plain"]["all_s"] == 2.0
    assert ways["plain"]["models"] == {"01 good": 0.5}
    monkeypatch.setattr(report, "cluster", ExitStack)
    page = str(tmp_path / "page.html")
    found = local.Result("about", runs, {"ways": ways}, {}, search.verdict(ways), ranked=True)
    assert report.show(lambda *_: found, local.Options(), None, page) == 1
    said = capsys.readouterr().err
    assert "02 bad failed (search)" in said
    assert "ValueError: no such thing" in said
