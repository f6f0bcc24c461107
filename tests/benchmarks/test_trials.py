"""The trials benchmark trains the same models in every way, and gives the expected keys."""

import pytest
from commands import as_json

from benchmarks.trials.__main__ import figures, main, summarize
from benchmarks.trials.ways import STUDIES, Outcome

SMALL = ("--models", "6", "--steps", "6", "--step-seconds", "0.005", "--seeds", "1")


def run(*arguments):
    return as_json(main, *SMALL, *arguments)


@pytest.mark.parametrize("case", ["synthetic-4x1", "curves-2x2"])
def test_models_are_the_same_alone_and_in_a_search(case):
    found = run("--cases", case, "--ways", "plain,search")[case]
    for way in ("plain", "search"):
        assert found[way]["results_equal"] is True
        assert found[way]["steps"] == 36
        assert 0 < found[way]["best_s"] <= found[way]["top5_s"] <= found[way]["all_s"]
        assert [run["seed"] for run in found[way]["seeds"]] == [0]
    assert found["plain"]["best_value"] == found["search"]["best_value"]
    assert found["plain"]["over_plain"]["all_s"] == 1


def test_studies_train_the_models_that_they_are_given():
    pytest.importorskip("optuna_integration")
    arguments = ("--cases", "synthetic-4x1", "--sampler", "same")
    found = run(*arguments, "--ways", ",".join(("plain", *STUDIES)))["synthetic-4x1"]
    for way in ("optuna", "optuna-slaq"):
        assert found[way]["results_equal"] is True
        assert found[way]["steps"] == 36
        assert found[way]["best_value"] == found["plain"]["best_value"]
    assert found["optuna-median"]["steps"] <= 36


def test_figures_count_from_the_best_of_the_models_that_ended():
    ready = [(0.4, 1.0), (0.1, 5.0), (0.104, 2.0), (0.3, 3.0), (0.2, 4.0), (0.5, 9.0)]
    found = figures(Outcome(ready, 9.5, 60, True), best=0.1)
    times = {key: value for key, value in found.items() if key.endswith("_s")}
    assert times == {"best_s": 5.0, "top5_s": 5.0, "all_s": 9.5, "near_s": 2.0}
    few = figures(Outcome(ready[:1], 9.5, 12, False), best=0.1)
    assert few["best_s"] == 1.0 and few["top5_s"] is None and few["near_s"] is None


def test_ratios_are_of_runs_with_the_same_seed():
    plain = [figures(Outcome([(1.0, s)], s, 10, True), best=1.0) for s in (2.0, 4.0)]
    other = [figures(Outcome([(1.0, s)], s, 10, True), best=1.0) for s in (1.0, 3.0)]
    found = summarize(other, plain)
    assert found["best_s"] == 2.0 and found["over_plain"]["best_s"] == (1 / 2 + 3 / 4) / 2
    assert found["near_s"] == 2.0 and found["near_seeds"] == 2
    assert found["top5_s"] is None and found["over_plain"]["top5_s"] is None
