"""Jobs of a trace fail, come back and are killed; the scheduler keeps nothing of them."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from benchmarks import live
from benchmarks.live_jobs.philly import Assumptions, Attempt, TraceJob, make_trace, make_trace_jobs
from benchmarks.live_jobs.trace_figures import delays
from benchmarks.live_jobs.trace_runs import Ledger, Place, Span, run_trace
from dask_slaq.simulation.workload.curves import make_curves

LOSS = np.geomspace(10.0, 1.0, 6)


def job(name, *attempts, arrival=0.0, gpus=2, status="passed"):
    seconds = np.full((len(LOSS), gpus), 0.2)
    return TraceJob(name, "curve", arrival, gpus, LOSS, seconds, status, attempts)


def made(count=400, **assumed):
    return make_trace_jobs(
        make_trace(0, count),
        make_curves(0),
        0,
        threads=4,
        load=0.7,
        scale=1.0,
        assumed=Assumptions(**assumed),
    )


def test_jobs_fail_as_assumed_and_continue_at_their_checkpoints():
    jobs = made(unsuccessful=0.3, killed=0.2, recovered=0.5, retries=2, checkpoint=4)
    share = {s: np.mean([j.status == s for j in jobs]) for s in ("unsuccessful", "killed")}
    assert share == pytest.approx({"unsuccessful": 0.3, "killed": 0.2}, abs=0.06)
    assert max(j.gpus for j in jobs) == 4
    work = sum(j.seconds.sum() for j in jobs)
    assert work / (4 * jobs[-1].arrival) == pytest.approx(0.7, rel=0.02)
    for one in jobs:
        *failed, last = one.attempts
        assert last.how == {"passed": "done", "killed": "killed"}.get(one.status, last.how)
        if one.status == "unsuccessful":
            assert len(one.attempts) == 3 and last.how in ("task", "worker")
        assert all(attempt.how in ("task", "worker") for attempt in failed)
        for before, after in zip(one.attempts, one.attempts[1:], strict=False):
            assert after.begin == before.end - before.end % 4
    again = made(unsuccessful=0.3, killed=0.2, recovered=0.5, retries=2)
    assert [j.status for j in again] == [j.status for j in jobs]
    assert all(attempt.begin == 0 for j in again for attempt in j.attempts)


@pytest.mark.parametrize("policy", ["none", "first-to-target"])
def test_nothing_is_left_of_attempts_that_fail_in_each_way(policy):
    jobs = [
        job("a", Attempt(0, 3, "task"), Attempt(2, 6, "done")),
        job("b", Attempt(0, 1, "worker"), Attempt(0, 6, "done"), arrival=0.1),
        job("c", Attempt(0, 2, "killed"), arrival=0.2, status="killed"),
        job("d", Attempt(0, 0, "task"), Attempt(0, 0, "worker"), status="unsuccessful"),
        job("e", Attempt(0, 6, "done"), gpus=4),
    ]
    ledger = run_trace(jobs, policy, seed=0, workers=6)  # it asserts that nothing is left
    reported = {one.name: set() for one in jobs}
    for place in ledger.reported:
        reported[place.job].add((place.attempt, place.iteration))
    assert reported["a"] == {(0, 0), (0, 1), (0, 2), (1, 2), (1, 3), (1, 4), (1, 5)}
    assert reported["b"] == {(0, 0), *((1, k) for k in range(6))}
    assert reported["c"] == {(0, 0), (0, 1)}
    assert reported["d"] == set()
    assert reported["e"] == {(0, k) for k in range(6)}
    assert len(ledger.down) == 2


def test_all_tasks_of_an_iteration_start_together():
    done = Attempt(0, 6, "done")
    jobs = [job("a", done, gpus=3), job("b", done), job("c", done, arrival=0.1, gpus=3)]
    starts = {}
    for place, _, start, _ in run_trace(jobs, "fair", seed=0, workers=4).spans:
        starts.setdefault(place, []).append(start)
    spreads = {place: max(found) - min(found) for place, found in starts.items()}
    assert {place: spread for place, spread in spreads.items() if spread > 0.1} == {}


def test_a_wait_counts_as_that_of_a_gang_while_threads_are_idle():
    ledger = Ledger(0.0)
    first, other = Place("a", 0, 0), Place("b", 0, 0)
    ledger.submitted = {first: 1.0, other: 0.0}
    # Both threads are busy until 2, one of them until 3.
    ledger.spans = [
        *(Span(other, w, 0.0, stop) for w, stop in (("x", 2.0), ("y", 3.0))),
        *(Span(first, w, 3.0, 4.0) for w in "xy"),
    ]
    done = Attempt(0, 6, "done")
    found = delays([job("a", done, arrival=0.5), job("b", done)], ledger, threads=2)
    assert found["a"] == {"delay_s": 2.0, "delay_gang_s": 1.0, "first_s": 2.5, "first_gang_s": 1.0}
    assert found["b"]["delay_s"] == 0.0


@pytest.mark.slow
def test_the_command_prints_what_failures_cost(tmp_path):
    output = tmp_path / "trace.json"
    arguments = (
        *("--trace", "--jobs", "6", "--scale", "0.05", "--seeds", "1", "--workers", "4"),
        *("--policies", "none,fair", "--unsuccessful", "0.4", "--early", "0", "--parallel", "1"),
    )
    result = CliRunner().invoke(live.main, [*arguments, "--json", str(output)])
    assert result.exit_code == 0, result.output
    assert "44.5%" in result.stdout and "load of 0.7" in result.stdout
    found = json.loads(output.read_text())
    for row in found["policies"].values():
        assert sum(row["by_status"].values()) == pytest.approx(1.0)
        assert row["lost"] == pytest.approx(row["failed_attempts"]) and row["lost"] > 0
        assert row["gpus"]["all"]["jobs"] == len(row["jobs"]) == 6
        assert all(math.isfinite(each["delay_s"]) for each in row["jobs"])
    made, kept = (found["policies"]["fair"]["promises"][key] for key in ("made", "kept"))
    assert 0 <= kept <= made


def test_a_trace_with_too_few_jobs_is_refused(tmp_path):
    file = tmp_path / "trace.jsonl"
    columns = {"arrivals_s": [0, 1, 5], "duration_s": [9, 9, 9], "gpus": [1, 2, 4]}
    file.write_text(json.dumps({"trace": "small", **columns}))
    result = CliRunner().invoke(live.main, ["--trace", str(file), "--jobs", "2"])
    assert result.exit_code != 0
    assert "has 3 jobs, and seed 1 takes 2 jobs from job 2" in result.output
