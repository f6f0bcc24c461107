"""Concurrent boosting runs are started, and those that end, hang and fail are counted."""

import json
import threading
import time

import pytest
from click.testing import CliRunner

from benchmarks import boosting


def started(*targets):
    threads = [threading.Thread(target=target, daemon=True) for target in targets]
    for thread in threads:
        thread.start()
    return threads


def test_runs_that_go_on_while_none_ends_hang():
    end = threading.Event()
    assert boosting._wait(started(lambda: None, lambda: time.sleep(0.1), end.wait), 0.5) == 1
    end.set()


@pytest.mark.slow
@pytest.mark.parametrize("library, way", [("xgboost", "plugin"), ("lightgbm", "plain")])
def test_a_run_of_each_library(library, way):
    pytest.importorskip(library)
    arguments = ["--library", library, "--way", way, "--runs", "1", "--in-process", "--json", "-"]
    done = CliRunner().invoke(boosting.main, arguments)
    assert done.exit_code == 0, done.output
    found = json.loads(done.output[done.output.index("{\n") :])
    assert (found["ended"], found["hung"], found["failed"], found["errors"]) == (1, 0, 0, [])
