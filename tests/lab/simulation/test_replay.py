"""Logs are read completely, their errors are named, and their decisions are reproduced."""

import json

import pytest
from click.testing import CliRunner
from lab.simulation.conftest import make, run

from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.lab.simulation.replay import LogError, replay_log


@pytest.fixture(scope="module")
def events():
    """Events of a simulated cluster."""
    jobs = [
        make(f"job-{k}", arrival=4.0 * k, iterations=8 + k, work=10.0 + 7 * (k % 3), partitions=24)
        for k in range(6)
    ]
    found = []
    run(jobs, engine=Recorder(Engine("fair", epoch=3.0), found.append, 0.0))
    return found


def written(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def test_older_files_are_read_first(events, tmp_path):
    again = {**events[0], "continued": True}
    path = tmp_path / "log"
    written(tmp_path / "log.2", events[:40])
    written(tmp_path / "log.1", [again, *events[40:80]])
    written(path, [again, *events[80:]])
    found = replay_log(path)
    assert found["reproduced"] == found["decisions"] > 20 and found["skipped"] == 0
    (tmp_path / "log.2").unlink()
    cut = replay_log(path)
    assert cut["decisions"] == 0 and cut["skipped"] > 0
    assert "the beginning of the recording is gone" in cut["said"]


@pytest.mark.parametrize(
    ("cut", "more", "said"),
    [
        ('{"event":"repo', False, "the last line is cut off and is left out"),
        ('{"event":"repo\n', True, "the line is cut off and is left out"),
    ],
)
def test_a_line_that_a_crash_cut_off_is_left_out(events, tmp_path, cut, more, said):
    """The next recording may go on after it."""
    path = tmp_path / "log"
    whole = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    path.write_text(whole + cut + whole * more)
    found = replay_log(path)
    assert any(f"{path}, line {len(events) + 1}: {said}" in note for note in found["notes"])
    assert found["reproduced"] == found["decisions"]


def test_a_cut_line_may_be_the_last_of_an_older_file(events, tmp_path):
    older = written(tmp_path / "log.1", events)
    older.write_text(older.read_text() + '{"event":"repo')
    found = replay_log(written(tmp_path / "log", [{**events[0], "continued": True}, *events]))
    assert "the line is cut off and is left out" in found["notes"][0]


def test_decisions_after_a_dropped_event_are_not_replayed(events, tmp_path):
    number = [k for k, event in enumerate(events) if event["event"] == "arrive"][2]
    dropped = [*events[:number], {"event": "dropped", "kind": "arrive"}, *events[number + 1 :]]
    found = replay_log(written(tmp_path / "log", dropped))
    assert found["decisions"] > 0 and found["skipped"] > 0 and found["difference"] is None
    assert found["why"] == "an event before them could not be recorded"


START = json.dumps(
    {
        "event": "start", "now": 1.0, "version": 13, "settings": {"policy": "fair", "owners": None},
        "predictor": "dask_slaq.core.forecast.predictor.LossPredictor",
    }
)  # fmt: skip
LEAVE = '{"event": "leave", "job": "a", "now": %s}'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no event in this log"),
        (["", "  "], "no event in this log"),
        (['{"event": "leave"}'], "line 1: 'leave' comes before 'start'"),
        (['{"event"'], "line 1: not JSON: Expecting ':' delimiter at column 9"),
        ([START, "{", '{"event": "leave"}'], "line 2: not JSON"),
        ([START, "3"], "line 2: no recorder writes 3 here"),
        (
            [START, '{"event": "begin"}'],
            "line 2: no recorder writes {'event': 'begin'} here (KeyError",
        ),
        ([START, LEAVE % "NaN"], "line 2: the time goes back, from 1.0 to nan s"),
        ([START, "[" * 100_000, ""], "line 2: not JSON: maximum recursion depth"),
        ([START, "", '{"event": "leave", "job": "a"}'], "line 3: no recorder writes"),
        ([START, LEAVE % "2"], "line 2: no job named 'a'"),
        ([START.replace('"fair"', '"best"')], "line 1: no policy is called 'best'"),
    ],
)
def test_what_is_wrong_is_told_with_file_and_line(tmp_path, lines, words):
    path = tmp_path / "slaq.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(LogError) as error:
        replay_log(path)
    assert str(path) in str(error.value) and words in str(error.value)
    result = CliRunner().invoke(slaq, ["replay", str(path)])
    assert result.exit_code == 1 and words in result.output and "Traceback" not in result.output


def test_arrivals_out_of_order(events, tmp_path):
    number = [k for k, event in enumerate(events) if event["event"] == "arrive"][3]
    early = [*events[:number], {**events[number], "now": 0.5}, *events[number + 1 :]]
    with pytest.raises(LogError, match=rf"line {number + 1}: the time goes back, from .* to 0.5 s"):
        replay_log(written(tmp_path / "log", early))


def test_the_command_ends_with_1_where_a_decision_differs(events, tmp_path):
    log, file = written(tmp_path / "log", events), tmp_path / "found.json"
    result = CliRunner().invoke(slaq, ["replay", str(log), "--json", str(file)])
    assert result.exit_code == 0 and "decisions reproduced" in result.output
    assert {"decisions", "reproduced", "difference"} <= set(json.loads(file.read_text()))
    events = json.loads(json.dumps(events))
    name, grant = next(
        item for event in events for item in event.get("grants", {}).items() if item[1]["share"]
    )
    grant["share"] += 0.5
    result = CliRunner().invoke(slaq, ["replay", str(written(log, events))])
    assert result.exit_code == 1
    assert f"differs in the share of job {name!r}" in result.output
