"""Advice is close to the truth on logs of simulated clusters, and bad input is named."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner
from simulation.conftest import make, run

from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.simulation.advice import advise, iterations_of
from dask_slaq.simulation.recorded.iteration_time import running_time
from dask_slaq.simulation.recorded.runs import Trial, group_of


class DriverAlone:
    """An occupancy that says for how long the driver works before each iteration."""

    def __init__(self, seconds):
        self.seconds = seconds

    def add(self, job, now): ...
    def remove(self, job, now): ...
    def idle(self, job, now):
        return self.seconds

    def offered(self, threads, now):
        return 0.0


def log_of(path, jobs, cores, alone=0.0, scaling="waves"):
    """Record jobs on a simulated cluster; the log, and seconds of each from arrival to its end."""
    jobs = [replace(job, alone=np.full(len(job.loss), alone)) for job in jobs]
    with open(path, "w") as file:
        engine = Recorder(
            Engine("fair", epoch=3.0),
            lambda event: file.write(json.dumps(event) + "\n"),
            0.0,
            DriverAlone(alone),
        )
        found = run(jobs, engine=engine, cores=cores, dispatch="index", scaling=scaling)
    return str(path), found.completion


@pytest.fixture(scope="module")
def two_solvers(tmp_path_factory):
    """`few` takes 10 long iterations to a loss of 1, `many` 40 short ones; on 2, 4 and 8 threads
    each, alone."""
    logs, folder = [], tmp_path_factory.mktemp("logs")
    for cores in (2, 4, 8):
        few = make(f"few-{cores}", iterations=10, work=32.0, partitions=64)
        many = make(f"many-{cores}", arrival=1000.0, iterations=40, work=4.0, partitions=64)
        logs.append(log_of(folder / f"{cores}.jsonl", [few, many], cores, alone=0.5)[0])
    return logs


def completion(tmp_path, cores, **job):
    """Seconds that a job takes in truth."""
    return log_of(tmp_path / "truth.jsonl", [make(partitions=64, **job)], cores, alone=0.5)[1][0]


@pytest.mark.slow
def test_a_thread_count_that_was_left_out(two_solvers, tmp_path):
    found = advise(two_solvers, 1.0 + 1e-9, threads=[2, 16])
    for name, job in (
        ("few", {"iterations": 10, "work": 32.0}),
        ("many", {"iterations": 40, "work": 4.0}),
    ):
        group = found["groups"][name]
        assert group["tried"] == [2, 4, 8] and group["runs"] == 3
        assert group["iterations"]["reached"] == 3
        on_2, on_16 = group["options"]
        assert not on_2["extrapolated"] and on_16["extrapolated"]
        for option in (on_2, on_16):
            truth = completion(tmp_path, option["threads"], **job)
            assert option["seconds"] == pytest.approx(truth, rel=0.05)
            assert option["thread_seconds"] == option["threads"] * option["seconds"]
    # 16 threads: 10 x (.5 + 2) = 25 s against 40 x (.5 + .25) = 30 s; 2: 165 s against 100 s.
    assert (found["soonest"]["group"], found["soonest"]["threads"]) == ("few", 16)
    assert (found["cheapest"]["group"], found["cheapest"]["threads"]) == ("many", 2)


def test_shared_clusters_tell_of_the_threads_that_were_granted(tmp_path):
    """Two jobs share 16 threads; alone on 8, each would take as long."""
    jobs = [make(name, iterations=12, work=32.0, partitions=64) for name in ("a", "b")]
    log, took = log_of(tmp_path / "log.jsonl", jobs, 16)
    found = advise([log], 1.0 + 1e-9, threads=[8])["groups"]["a"]
    assert found["options"][0]["seconds"] == pytest.approx(took[0], rel=0.1)


def test_a_target_beyond_what_was_recorded_is_predicted(tmp_path):
    job = make("a", iterations=30, work=16.0, partitions=32)
    early = replace(job, loss=job.loss[:15], reports=job.loss[:15], slowdown=np.ones(15))
    log, _ = log_of(tmp_path / "log.jsonl", [early], 8)
    iterations = advise([log], float(job.loss[19]))["groups"]["a"]["iterations"]
    assert iterations["predicted"] and iterations["reached"] == 0
    assert iterations["low"] <= 20 <= iterations["high"]
    assert 15 < iterations["middle"] == pytest.approx(20, abs=3)


def a_trial(threads, seconds, width=np.inf, idle=0.0):
    n = len(threads)
    whole = np.ones(n)
    return Trial("a", "a", whole, np.array(seconds), np.array(threads), idle * whole, width)


def test_where_more_threads_slow_a_solver_down():
    """A law that neither waves nor a linear part explain."""
    tried = [1.0, 2.0, 4.0, 8.0, 16.0]
    truth = {n: 8.0 / n + 0.5 * n for n in (*tried, 6.0)}
    trials = [a_trial([n] * 8, [truth[n]] * 8) for n in tried]
    found = running_time(trials)
    assert found.form == "ernest"
    assert found.iteration(6.0) == pytest.approx(truth[6.0], rel=0.05)
    assert found.iteration(16.0) > found.iteration(4.0)


def test_one_thread_count_tells_of_the_driver_and_of_tasks():
    found = running_time([a_trial([4.0] * 6, [5.0] * 6, width=8.0, idle=1.0)])
    assert found.iteration(4) == pytest.approx(5.0)
    assert found.iteration(8) == pytest.approx(3.0) and found.extrapolated(8)
    assert found.iteration(100) == found.iteration(8), "beyond what was tried nothing is promised"


def test_runs_that_reached_the_target_count_others_do_not():
    def trial(losses):
        return replace(a_trial([1.0] * len(losses), [1.0] * len(losses)), losses=np.array(losses))

    found = iterations_of([trial([3.0, 2.0, 1.0]), trial([3.0, 1.0]), trial([3.0, 2.5])], 1.0)
    assert (found["low"], found["high"], found["reached"]) == (2, 3, 2)


def test_groups_by_name():
    assert [group_of(name) for name in ("a-1", "a#12", "a-b", "17", "C0.1")] == [
        "a", "a", "a-b", "17", "C0.1",
    ]  # fmt: skip
    assert group_of("svm/16/x", r"/(\d+)/") == "16" and group_of("svm", r"\d") is None


def invoke(*arguments):
    return CliRunner().invoke(slaq, ["advise", *map(str, arguments)])


@pytest.mark.slow
def test_the_command(two_solvers, tmp_path):
    shown = invoke(*two_solvers, "--target", 1.001)
    assert shown.exit_code == 0, shown.output
    for words in ("few", "many", "16*", "soonest", "cheapest"):
        assert words in shown.output
    written = invoke(*two_solvers, "--target", 1.001, "--threads", "2,4", "--json", "-")
    options = json.loads(written.output)["groups"]["few"]["options"]
    assert [option["threads"] for option in options] == [2, 4]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--target", "0.1", "--threads", "10000000000"], "thread counts must be from 1 to 100000"),
        (["--target", "nan"], "the target must be a finite loss"),
        (["--target", "1", "--group", "x(\\d"], "is no regular expression"),
        (["--target", "1", "--group", "lbfgs"], "no job is in a group by 'lbfgs'; the jobs are"),
        (["--target", "-1"], "no run reaches a loss of -1, or is predicted to: few came down to 1"),
        (["--target", "1", "--threads", "2,x"], "is not a list of whole numbers"),
        (["--target", "1", "--threads", "0"], "at least 1"),
    ],
)
def test_what_is_wrong_is_said(two_solvers, arguments, words):
    shown = invoke(two_solvers[0], *arguments)
    assert shown.exit_code != 0 and words in " ".join(shown.output.split())


def test_logs_that_are_cut_off_or_none(two_solvers, tmp_path):
    assert "does not exist" in invoke(tmp_path / "none", "--target", 1).output
    assert "give a LOG and --target" in invoke("--target", 1).output
    whole = Path(two_solvers[0]).read_text()
    cut = tmp_path / "cut.jsonl"
    cut.write_text(whole[:-20])
    assert "the last line is cut off" in invoke(cut, "--target", 1.001).output
    cut.write_text("")
    assert "no event in this log" in invoke(cut, "--target", 1).output
    cut.write_text(whole.splitlines()[0] + "\n")
    with pytest.raises(InvalidSetting, match="no job in these logs reported twice"):
        advise([cut], 1.0)
