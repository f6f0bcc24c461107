"""The benchmark of libraries names tests that fail only with dask_slaq."""

import json

import pytest
from click.testing import CliRunner

from benchmarks import library_suites

TESTS = """
import sys
import pytest

def test_good(): pass
def test_bad(): assert False
def test_left_out(): pytest.skip()
@pytest.mark.parametrize("k", [1, 2])
def test_with_us_only(k): assert k == 1 or "dask_slaq" in sys.modules
def test_without_us_only(): assert "dask_slaq" not in sys.modules
@pytest.fixture
def broken():
    yield
    1 / 0
def test_teardown(broken): pass
"""

SEARCH = """
from dask_ml.model_selection import IncrementalSearchCV
from dask_ml.datasets import make_classification
from distributed import Client, LocalCluster
from distributed.utils_test import gen_cluster
from sklearn.linear_model import SGDClassifier

def search(**kwargs):
    X, y = make_classification(n_samples=80, n_features=3, chunks=20, random_state=0)
    found = IncrementalSearchCV(SGDClassifier(), {"alpha": [1e-3, 1e-2]}, max_iter=2, **kwargs)
    return found.fit(X, y, classes=[0, 1])

@gen_cluster(client=True)
async def test_async(c, s, a, b):
    assert len((await search()).model_history_) == 2
    assert "slaq" in s.plugins

def test_sync(loop):
    with LocalCluster(processes=False, n_workers=1, dashboard_address=None, loop=loop) as cluster:
        with Client(cluster, loop=loop):
            assert len(search().model_history_) == 2
"""


@pytest.mark.slow
def test_what_fails_here_and_passes_there_is_named(tmp_path):
    suite = tmp_path / "library"
    suite.mkdir()
    (suite / "test_library.py").write_text(TESTS)
    out = tmp_path / "out.json"
    arguments = [str(suite), "--pytest=-pno:cacheprovider"]
    done = CliRunner().invoke(library_suites.main, [*arguments, "--json", str(out)])
    assert done.exit_code == 1, done.output
    found = json.loads(out.read_text())["library"]
    assert found["here"] == {"passed": 3, "failed": 2, "skipped": 1, "error": 1}
    assert found["newly_failing"] == ["test_library::test_without_us_only"]
    assert found["newly_passing"] == ["test_library::test_with_us_only[2]"]
    assert found["observed"]["losses"] == 0
    assert "fails here, passes there: test_library::test_without_us_only: Assert" in done.output


@pytest.mark.slow
def test_tests_can_run_as_jobs_whose_tasks_are_held(tmp_path):
    suite = tmp_path / "library"
    suite.mkdir()
    (suite / "test_search.py").write_text(SEARCH)
    (suite / "conftest.py").write_text("from distributed.utils_test import *\n")
    run = library_suites.run_suite(
        suite, plugins=library_suites.AS_JOBS, arguments=("-pno:cacheprovider",)
    )
    assert run.outcomes == dict.fromkeys(
        ("test_search::test_async", "test_search::test_sync"), "passed"
    ), run.reasons
    assert run.seen["jobs"] == 2
    assert run.seen["held"] > 0
    assert run.seen["losses"] >= 4
    # On a busy machine the scheduler may have no time to choose, and says so.
    warnings = [told for told in run.seen["warnings"] if "no time to choose" not in told]
    assert (run.seen["failed"], warnings, run.seen["unanswered"]) == ([], [], 0)


def test_what_did_not_run_here_but_passed_there_has_not_passed():
    found = library_suites.compare(
        {"a": "passed", "b": "skipped"}, {"a": "failed", "b": "passed", "c": "passed", "d": "error"}
    )
    assert found["newly_failing"] == ["c"]
    assert found["newly_skipped"] == ["b"]
    assert found["newly_passing"] == ["a"]
    assert (found["only_here"], found["only_in_baseline"]) == (0, 2)


def test_a_baseline_that_lacks_the_library_is_refused(tmp_path):
    baseline = tmp_path / "baseline.json"
    baseline.write_text('{"another": {}}')
    done = CliRunner().invoke(library_suites.main, [str(tmp_path), "--baseline", str(baseline)])
    assert done.exit_code == 1
    assert f"the baseline has no {tmp_path.name}, only another" in done.output
