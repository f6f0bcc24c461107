"""The suite benchmark counts a test as different only if it passes in the baseline alone."""

import json

from click.testing import CliRunner

from benchmarks import distributed_suite

TESTS = """
from distributed import Client, Event, LocalCluster
from distributed.collections import HeapSet
from distributed.utils_test import async_poll_for, gen_cluster, inc

@gen_cluster(client=True)
async def test_same(c, s, a, b):
    assert await c.gather(c.map(inc, range(20))) == list(range(1, 21))

@gen_cluster(client=True)
async def test_looks_at_the_queue(c, s, a, b):
    event = Event()
    futures = c.map(lambda i: event.wait(), range(20))
    await async_poll_for(lambda: len(s.tasks) == 20, timeout=5)
    queued = isinstance(s.queued, HeapSet)
    await event.set()
    await c.gather(futures)
    assert queued

@gen_cluster(client=True)
async def test_fails_anyhow(c, s, a, b):
    assert False

def test_in_processes(loop):
    with LocalCluster(processes=False, n_workers=1, dashboard_address=None, loop=loop) as cluster:
        with Client(cluster, loop=loop) as client:
            assert client.submit(inc, 1).result() == 2
"""


def test_tests_that_look_at_what_dask_queues_differ_where_tasks_are_held(tmp_path):
    (tmp_path / "test_tasks.py").write_text(TESTS)
    (tmp_path / "conftest.py").write_text("from distributed.utils_test import *\n")
    id = "test_tasks.py::test_looks_at_the_queue"
    before = {"test_tasks.py::test_same": "passed", id: "passed"}
    before["test_tasks.py::test_fails_anyhow"] = "failed"
    earlier, out = tmp_path / "earlier.json", tmp_path / "out.json"
    earlier.write_text(
        json.dumps({"files": {"test_tasks.py": {"baseline": {"outcomes": before, "reasons": {}}}}})
    )
    arguments = [str(tmp_path), "--file=test_tasks.py", "--quick", "--json", str(out)]
    arguments += ["--baseline", str(earlier), "--mode=contended"]
    done = CliRunner().invoke(distributed_suite.main, arguments)
    assert done.exit_code == 1, done.output
    found = json.loads(out.read_text())["files"]["test_tasks.py"]
    assert found["baseline"]["outcomes"] == before
    assert {**found["contended"]["outcomes"], id: "passed"} == before
    assert found["contended"]["differ"] == {id: [1, 0]}
    notes = found["contended"]["notes"]
    assert sum(note.get("held", 0) for note in notes) == 40
    assert [note for note in notes if "problem" in note] == []
    assert f"contended: {id} (again 1 of 1 times, 0 in the baseline)" in done.output


def test_what_did_not_pass_differs_only_if_it_passes_in_the_baseline():
    here = {"a": "failed", "b": "skipped", "c": "failed"}
    baseline = {"a": "passed", "b": "passed", "c": "failed", "d": "passed", "e": "skipped"}
    assert distributed_suite.differences(here, baseline) == ["a", "b", "d"]
