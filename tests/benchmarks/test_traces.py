"""Files of traces are read, and what is wrong in them is named."""

import json

import pytest

from benchmarks.live_jobs.traces import TraceError, read_trace

ONE = {
    "trace": "one",
    "arrivals_s": [100, 100, 400, 1000],
    "duration_s": [60, 600.5, 60, 20],
    "gpus": [1, 2, 8, 1],
}
TWO = {"trace": "two", "arrivals_s": [7, 7], "duration_s": [1, 1], "gpus": [1, 1]}


def written(path, *lines):
    path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return path


@pytest.fixture
def file(tmp_path):
    return written(tmp_path / "arrivals.jsonl", ONE, TWO)


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
        ("[" * 100_000, "line 2: brackets are nested more than 50 deep"),
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
    with pytest.raises(TraceError) as error:
        read_trace(path, "one")
    assert str(error.value).startswith(str(path)) and words in str(error.value)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("three", "no trace is called 'three'; there are: one, two"),
        (None, "name one of several traces; there are: one, two"),
    ],
)
def test_a_trace_that_cannot_be_had(file, name, words):
    with pytest.raises(TraceError, match=words):
        read_trace(file, name)


def test_files_without_a_trace(tmp_path):
    for path, words in (
        (tmp_path / "missing", "cannot be read"),
        (written(tmp_path / "empty", "", ""), "no trace"),
    ):
        with pytest.raises(TraceError, match=words):
            read_trace(path)
