"""The workload benchmark counts every report, and finds elastic runs equal and references near."""

from __future__ import annotations

import importlib.util
import json

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks.workloads.__main__ import main
from benchmarks.workloads.catalogue import CATALOGUE
from benchmarks.workloads.references import REFERENCES, difference, numbers
from benchmarks.workloads.svm import LinearSVM

SOME = ["k-means", "linear-svm", "boosting-regressor", "perceptron"]
HERE = [name for name in SOME if importlib.util.find_spec(CATALOGUE[name].source.partition(":")[0])]
#: Largest disagreement with the reference after three iterations.
NEAR = dict(zip(SOME, (1e-9, 1e-9, 0.05, 1e-6), strict=True))


def test_every_workload_has_a_reference():
    assert set(REFERENCES) == set(CATALOGUE)


@pytest.mark.slow
def test_workloads_are_measured(tmp_path):
    path = tmp_path / "workloads.json"
    arguments = ["--quick", "--rows", "1600", "--iterations", "3", "--workloads", ",".join(HERE)]
    shown = CliRunner().invoke(main, [*arguments, "--json", str(path)])
    assert shown.exit_code == 0, shown.output
    found = json.loads(path.read_text())["workloads"]
    assert list(found) == HERE
    for name, row in found.items():
        assert name in shown.stdout
        assert row["iterations"] == 3 and row["reports"] == 4, name
        assert row["loss_last"] < row["loss_first"], name
        assert row["agreement"]["value"] <= NEAR[name], name
        assert set(row["seconds"]) == {"1", "2", "4"} and min(row["seconds"].values()) > 0
        assert row["elastic_difference"] == 0.0, name
        assert row["worker_sets"] >= 2, name


def test_an_unknown_workload_is_named():
    result = CliRunner().invoke(main, ["--workloads", "linear-svm,svm"])
    assert result.exit_code != 0 and "unknown workload svm: one of k-means" in result.output


def test_a_difference_is_seen_in_any_number():
    X = np.random.default_rng(0).standard_normal((60, 3))
    one, other = (LinearSVM(max_iter=3, tol=0).fit(X, X[:, 0] > 0) for _ in range(2))
    assert len(numbers(one)) == 2 + 1 + 2 + 4  # coefficients, loss, counts, the loss of each report
    assert difference(one, other) == 0.0
    other.coef_ = np.nextafter(other.coef_, 1.0)
    assert 0 < difference(one, other) < 1e-15
    other.coef_ = other.coef_[:, :2]
    assert difference(one, other) == np.inf
    with pytest.raises(ValueError, match="no numbers"):
        difference(LinearSVM(), LinearSVM())
