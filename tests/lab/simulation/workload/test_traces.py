"""Traces give the arrivals and sizes of jobs, and errors in trace files are named."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from lab.simulation.conftest import run

import dask_slaq
from dask_slaq.cli.main import slaq
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.lab.simulation import Settings, TraceError
from dask_slaq.lab.simulation.study import job_lists
from dask_slaq.lab.simulation.workload.curves import make_curves
from dask_slaq.lab.simulation.workload.simulated_jobs import offered_load
from dask_slaq.lab.simulation.workload.traces import read_trace

ONE = {
    "trace": "one",
    "arrivals_s": [100, 100, 400, 1000],
    "duration_s": [60, 600.5, 60, 20],
    "gpus": [1, 2, 8, 1],
}
TWO = {"trace": "two", "arrivals_s": [7, 7], "duration_s": [1, 1], "gpus": [1, 1]}
SMALL = {"jobs": 4, "cores": 32, "seeds": 2, "load": 0.7, "interarrival": 6.0}


def written(path, *lines):
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "arrivals.jsonl", ONE, TWO)


def lists(file, **settings):
    trace = read_trace(file, "one")
    return [jobs for _, jobs in job_lists(make_curves(0), Settings(**SMALL | settings), trace)]


def test_arrivals_and_sizes_are_those_of_the_trace_scaled(file):
    for jobs in lists(file):
        arrivals = [job.arrival for job in jobs]
        assert arrivals == pytest.approx([0.0, 0.0, 6.0, 18.0])  # a mean gap of 6 s, not of 300
        size = np.array([job.total for job in jobs])
        assert size / size[0] == pytest.approx([1, 1201 / 60, 8, 1 / 3])
        assert offered_load(jobs, 32) == pytest.approx(0.7)


def test_seeds_draw_the_losses_alone(file):
    one, other = lists(file)
    assert [job.arrival for job in one] == [job.arrival for job in other]
    assert [job.total for job in one] == pytest.approx([job.total for job in other])
    assert [job.curve for job in one] != [job.curve for job in other]


def test_the_first_jobs_are_taken(file):
    (jobs, _) = lists(file, jobs=3)
    assert [job.arrival for job in jobs] == pytest.approx([0.0, 0.0, 12.0])


def test_without_a_load_jobs_are_as_large_as_without_a_trace(file):
    settings = Settings(jobs=4, seeds=1)
    with_trace, without = (
        job_lists(make_curves(0), settings, trace)[0][1]
        for trace in (read_trace(file, "one"), None)
    )
    total = [sum(job.total for job in jobs) for jobs in (with_trace, without)]
    assert total[0] == pytest.approx(total[1])


def test_a_job_uses_no_more_cores_than_its_gpus_allow(file):
    (jobs, _) = lists(file, cores_per_gpu=2.0)
    assert [job.cap for job in jobs] == [2.0, 4.0, 16.0, 2.0]
    found = run([replace(jobs[3], arrival=0.0)], cores=32)
    assert found.outcome.times[0][-1] == pytest.approx(jobs[3].total / 2.0)


def test_the_result_says_what_was_assumed(file, tmp_path):
    found = dask_slaq.simulate(["fair"], arrivals=file, trace="one", **SMALL)
    settings = found["settings"]
    assert settings["trace"]["name"] == "one" and settings["trace"]["interarrival"] == 300
    assert settings["trace"]["place"] == f"{file}, line 1"
    assert "it has no losses: which curve a job has is drawn by the seed" in settings["assumption"]
    assert settings["offered_load"] == pytest.approx(0.7)
    arguments = [f"--{key}={value}" for key, value in SMALL.items()]
    arguments += ["--trace=one", "--cores-per-gpu=4", "--policies=fair"]
    result = CliRunner().invoke(slaq, ["simulate", f"--arrivals={file}", *arguments])
    assert result.exit_code == 0, result.output
    assert "at most 4 cores a GPU" in result.output and "drawn by the" in result.output


def test_names_may_have_any_character(tmp_path):
    name = "a\u2028b\x85c\x0c" + "[" * 100
    path = tmp_path / "one"
    path.write_text(json.dumps({**ONE, "trace": name}, ensure_ascii=False), "utf-8")
    assert read_trace(path).name == name


def test_a_file_of_one_trace_needs_no_name(tmp_path):
    assert read_trace(written(tmp_path / "one", "", ONE)).name == "one"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("{", "line 2: not JSON: Expecting property name"),
        ("[1]", "line 2: a trace is an object, not [1]"),
        ({**ONE, "trace": 3}, "line 2: 'trace' must be a name, not 3"),
        ({k: v for k, v in ONE.items() if k != "gpus"}, "line 2: 'gpus' must be a list, and is mi"),
        ({**ONE, "gpus": [1, "two", 1, 1]}, "line 2: gpus[1] is 'two'; it must be a number"),
        ({**ONE, "gpus": [1, 0, 1, 1]}, "line 2: gpus[1] is 0; it must be from 0.001 to 1e+06"),
        ({**ONE, "duration_s": [1, 1, -5, 1]}, "line 2: duration_s[2] is -5; it must be from"),
        (json.dumps(ONE).replace("600.5", "NaN"), "line 2: duration_s[1] is nan; it must be fini"),
        ({**ONE, "arrivals_s": [0, 1, 2, 1e308]}, "arrivals_s[3] is 1e+308; it must be from"),
        ({**ONE, "gpus": [1, 10**400, 1, 1]}, "line 2: gpus[1] is 1000"),
        ("[" * 100_000, "line 2: not JSON: maximum recursion depth"),
        ({**ONE, "arrivals_s": [1, 2, 3]}, "have 3, 4 and 4 values; they need one a job"),
        (
            {**ONE, "arrivals_s": [1, 9, 3, 2]},
            "line 2: arrivals out of order: arrivals_s[2] is 3, before arrivals_s[1], which is 9",
        ),
        (
            {"trace": "x", "arrivals_s": [], "duration_s": [], "gpus": []},
            "line 2: the trace is empty",
        ),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path, line, words):
    path = written(tmp_path / "bad.jsonl", ONE, line)
    result = CliRunner().invoke(slaq, ["simulate", f"--arrivals={path}", "--trace=one"])
    assert result.exit_code == 1 and "Traceback" not in result.output
    assert str(path) in result.output and words in result.output


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("three", {}, "no trace is called 'three'; there are: one, two"),
        (None, {}, "name one of several traces; there are: one, two"),
        ("one", {"jobs": 5}, "line 1: trace 'one' has 4 jobs, fewer than 5; ask for fewer"),
        ("two", {"jobs": 2}, "line 2: the first 2 jobs of trace 'two' arrive all at once"),
    ],
)
def test_a_trace_that_cannot_be_had(file, name, settings, words):
    with pytest.raises(TraceError) as error:
        dask_slaq.simulate(["fair"], arrivals=file, trace=name, **SMALL | settings)
    assert str(error.value).startswith(str(file)) and words in str(error.value)


def test_files_without_a_trace(tmp_path):
    for path, words in (
        (tmp_path / "missing", "cannot be read"),
        (written(tmp_path / "empty", "", ""), "no trace"),
    ):
        with pytest.raises(TraceError, match=words):
            read_trace(path)


def test_options_of_a_trace_need_one():
    for options in ({"trace": "one"}, {"cores_per_gpu": 2.0}):
        with pytest.raises(InvalidSetting, match="there are no arrivals to take"):
            dask_slaq.simulate(["fair"], **SMALL, **options)
