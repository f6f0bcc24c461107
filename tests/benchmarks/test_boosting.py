"""Concurrent boosting runs are started, and those that end, hang and fail are counted."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import boosting


@pytest.mark.parametrize("library, way", [("xgboost", "plugin"), ("lightgbm", "plain")])
def test_a_run_of_each_library(library, way):
    pytest.importorskip(library)
    arguments = ["--library", library, "--way", way, "--runs", "1", "--in-process", "--json", "-"]
    done = CliRunner().invoke(boosting.main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output[done.output.index("{\n") :])
    assert (found["ended"], found["hung"], found["failed"], found["errors"]) == (1, 0, 0, [])
