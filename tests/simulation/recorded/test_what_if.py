"""Logs are read completely, their errors are named, and what-if runs predict other policies.

The logs come from simulated clusters, so the true outcome under other policies is known.
"""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from simulation.conftest import make, run

from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.recording import Replay
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.simulation.recorded.log_reader import LogError, Recording, read
from dask_slaq.simulation.recorded.what_if import RECORDED, replay_log, simulated_jobs


class Known:
    """An activity that says that drivers work alone for a quarter of a second, and that threads
    wait as long as they compute."""

    def add(self, job, now): ...
    def remove(self, job, now): ...
    def idle(self, job, now):
        return 0.25

    def offered(self, threads, now):
        since, self.last = now - getattr(self, "last", 0.0), now
        return 2.0 * threads * since


def record(jobs, policy="fair", activity=None, **settings):
    """The events of a simulated cluster, and its run."""
    events = []
    engine = Recorder(Engine(policy, epoch=3.0), events.append, 0.0, activity)
    found = run(jobs, engine=engine, dispatch="index", **settings)
    return events, found


def written(path, events):
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def jobs_in(path):
    """The jobs of the first recording in a log."""
    return read(path, Replay())[0][0].jobs


@pytest.fixture(scope="module")
def recorded():
    jobs = [
        make(f"job-{k}", arrival=4.0 * k, iterations=8 + k, work=10.0 + 7 * (k % 3), partitions=24)
        for k in range(6)
    ]
    return {policy: record(jobs, policy, cores=16) for policy in ("fair", "max-total")}


@pytest.fixture
def log(recorded, tmp_path):
    return written(tmp_path / "slaq.jsonl", recorded["max-total"][0])


def test_decisions_are_reproduced_and_so_are_the_times(log, recorded):
    found = replay_log(log, ["fair"])
    assert found["reproduced"] == found["decisions"] > 20 and found["difference"] is None
    assert found["policy"] == "max-total"
    assert list(found["policies"]) == [RECORDED, "max-total", "fair"]
    _, real = recorded["max-total"]
    figures = found["policies"]
    assert figures[RECORDED]["t90_mean_s"] == pytest.approx(np.nanmean(real.time_to(0.9)))
    assert figures[RECORDED]["decisions"] == found["decisions"]
    for key in ("t90_mean_s", "t95_mean_s", "completion_mean_s", "makespan_s", "area"):
        assert figures["max-total"][key] == pytest.approx(figures[RECORDED][key], rel=0.03)


def test_what_another_policy_would_have_done(log, recorded):
    """The run under fair is known too."""
    _, real = recorded["fair"]
    found = replay_log(log, ["fair"])["policies"]["fair"]
    assert found["t90_mean_s"] == pytest.approx(np.nanmean(real.time_to(0.9)), rel=0.01)
    assert found["makespan_s"] == pytest.approx(real.makespan, rel=0.01)


def test_work_settings_and_workers_come_from_the_log(tmp_path):
    jobs = [make("a", work=8.0, slowdown=[1, 3, 2, 1]), make("b", 1.0, partitions=4)]
    events, _ = record(jobs, cores=32, capacity=[(3.0, 16)], max_cores=4.0)
    found = replay_log(written(tmp_path / "log", events))
    assert found["settings"]["cores"] == 32
    ((time, cores),) = found["settings"]["capacity"]
    assert (time, cores) == (pytest.approx(3.0), 16)
    again = simulated_jobs(jobs_in(tmp_path / "log"))
    assert [job.total for job in again] == pytest.approx([job.total for job in jobs])
    assert again[0].slowdown * again[0].work == pytest.approx(jobs[0].slowdown * 8.0)
    assert (again[1].partitions, again[1].arrival, again[1].max_share) == (4.0, 1.0, 4.0)


def test_a_recorded_job_is_as_long_as_it_told_last(tmp_path):
    jobs = [replace(make("a"), max_iter=40), replace(make("b"), max_iter=30), make("c")]
    events, _ = record(jobs)
    first_end = next(i for i, event in enumerate(events) if event["event"] == "leave")
    events.insert(first_end, {"event": "max_iter", "job": "b", "max_iter": None})
    again = simulated_jobs(jobs_in(written(tmp_path / "log", events)))
    assert [job.max_iter for job in again] == [40, None, None]


def test_names_that_came_twice_are_told_apart(tmp_path):
    jobs = [make("a"), make("b", 100.0)]
    events, _ = record(jobs)
    for event in events:
        if event.get("job") == "b":
            event["job"] = "a"
        grants = event.get("grants", {})
        if "b" in grants:
            grants["a"] = grants.pop("b")
    found = replay_log(written(tmp_path / "log", events))
    assert found["settings"]["jobs"] == 2
    assert found["reproduced"] == found["decisions"]


def test_iterations_without_tasks_take_the_time_of_the_driver():
    jobs = [make("a", work=8.0)]
    alone = np.full(10, 0.5)
    (busy,), (waits,) = run(jobs).outcome.times, run([stops(jobs[0], alone)]).outcome.times
    assert waits == pytest.approx(busy + np.cumsum(alone))


def test_others_compute_while_a_driver_works():
    # Each on its own takes .5 s and then .5 s of 16 threads: two of them take turns.
    jobs = [stops(make(name, work=8.0), np.full(10, 0.5)) for name in "ab"]
    found = run(jobs, dispatch="index")
    ends = [times[-1] for times in found.outcome.times]
    assert max(ends) < 0.8 * 20
    assert found.outcome.busy == pytest.approx(160.0)


def stops(job, alone):
    return replace(job, alone=alone)


def test_overhead_is_no_compute_of_the_job():
    jobs = [replace(make("a", work=8.0), charged=0.25)]
    events, _ = record(jobs)
    told = sum(event["seconds"] for event in events if event["event"] == "tasks")
    assert told == pytest.approx(20.0)


def test_overhead_and_drivers_are_taken_from_the_log(tmp_path):
    events, _ = record([make("a", work=80.0), make("b", work=80.0)], activity=Known())
    path = written(tmp_path / "log", events)
    assert replay_log(path)["overhead"] == pytest.approx(0.5, abs=0.03)
    one, _ = simulated_jobs(jobs_in(path))
    assert one.alone == pytest.approx(np.full(10, 0.25))
    assert one.total == pytest.approx(1600.0, rel=0.05)
    assert one.charged == pytest.approx(0.5, abs=0.03)


def test_a_little_less_than_no_time_is_read_as_none(tmp_path):
    """As older releases wrote it, where clocks were read out of order."""
    events, _ = record([make("a", work=80.0)])
    for event in events:
        if event["event"] == "report":
            event["idle"] = -0.00024
    path = written(tmp_path / "log", events)
    assert set(jobs_in(path)[0].idle) == {0.0}
    assert replay_log(path)["difference"] is None


def test_overhead_counts_at_the_time_at_which_it_came():
    """In the second half of a run, threads wait for as long as they compute."""
    events, _ = record([make("a", work=80.0, iterations=20)])
    last = 0.0
    for event in events:
        if event["event"] == "decide":
            since, last = event["time"] - last, event["time"]
            event["offered"] = (16.0 if last <= 50.0 else 32.0) * since
    found = Recording(events[0])
    for event in events[1:]:
        found.feed(event)
    (job,) = found.jobs
    assert sum(job.overhead[:8]) < 0.1 * sum(job.work[:8])
    assert sum(job.overhead[-8:]) == pytest.approx(sum(job.work[-8:]), rel=0.2)


def test_strict_sets_are_known_without_the_beginning_of_the_recording(tmp_path):
    """A job alone could use all threads only if its worker set was not strict."""
    events, _ = record([make("a")], cores=16, max_cores=4.0)
    for strict, most in ((False, 16), (True, 4)):
        events[0] |= {"strict": strict, "continued": True}
        (job,) = jobs_in(written(tmp_path / "log", events))
        assert job.threads[-1] == pytest.approx(most)


def test_what_cannot_be_simulated_is_counted(tmp_path):
    events, _ = record([make("a"), make("b", iterations=1), make("c")])
    for event in events:
        if event["event"] == "arrive" and event["job"] == "c":
            event["reports"] = False
    events = [e for e in events if not (e["event"] == "report" and e["job"] == "c")]
    events = [e for e in events if not (e["event"] == "leave" and e["job"] == "a")]
    notes = replay_log(written(tmp_path / "log", events))["notes"]
    assert "left out: 1 of fewer than two reports, 1 unowned tasks of clients" in notes
    assert "1 jobs had not ended: they end with their last report" in notes


def test_a_log_without_jobs_is_replayed_alone(tmp_path):
    events, _ = record([make("a", iterations=1)])
    found = replay_log(written(tmp_path / "log", events))
    assert found["reproduced"] == found["decisions"] > 0
    assert "policies" not in found and "nothing to simulate" in found["notes"][-1]


def test_older_files_are_read_first(recorded, tmp_path):
    events, _ = recorded["fair"]
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
    assert 0 < cut["settings"]["jobs"] < found["settings"]["jobs"]
    assert "that came before the log begins" in cut["notes"][0]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("cut", "more", "said"),
    [
        ('{"event":"repo', False, "the last line is cut off and is left out"),
        ('{"event":"repo\n', True, "the line is cut off and is left out"),
        # As plugins before version 4 of the log wrote it after a crash.
        ('{"event":"report","jo', True, "the beginning of the line is cut off"),
    ],
)
def test_a_line_that_a_crash_cut_off_is_left_out(recorded, tmp_path, cut, more, said):
    """The next recording may go on after it."""
    events, _ = recorded["fair"]
    path = tmp_path / "log"
    whole = "".join(json.dumps(event, separators=(",", ":")) + "\n" for event in events)
    path.write_text(whole + cut + whole * more)
    found = replay_log(path)
    assert any(f"{path}, line {len(events) + 1}: {said}" in note for note in found["notes"])
    assert any("of 2 recordings" in note for note in found["notes"]) == more
    assert found["reproduced"] == found["decisions"]


def test_a_cut_line_may_be_the_last_of_an_older_file(recorded, tmp_path):
    events = recorded["fair"][0]
    older = written(tmp_path / "log.1", events)
    older.write_text(older.read_text() + '{"event":"repo')
    found = replay_log(written(tmp_path / "log", [{**events[0], "continued": True}, *events]))
    assert "the line is cut off and is left out" in found["notes"][0]
    assert "of 2 recordings" in found["notes"][1]


def test_what_comes_after_a_dropped_event_is_simulated_but_not_replayed(recorded, tmp_path):
    events = recorded["fair"][0].copy()
    number = [k for k, event in enumerate(events) if event["event"] == "arrive"][2]
    name, events[number] = events[number]["job"], {"event": "dropped", "kind": "arrive"}
    found = replay_log(written(tmp_path / "log", events))
    assert found["decisions"] > 0 and found["skipped"] > 0 and found["difference"] is None
    assert found["why"] == "an event before them could not be recorded"
    assert found["settings"]["jobs"] == 5 and name


START = json.dumps(
    {
        "event": "start", "time": 1.0, "version": 1, "policy": "fair", "epoch": 1.0,
        "normalizer": "range", "floor": 0.5, "strict": False, "move_pause": 0.0,
        "predictor": "dask_slaq.core.forecast.predictor.LossPredictor",
    }
)  # fmt: skip


LEAVE = '{"event": "leave", "job": "a", "time": %s}'
DECIDE = '{"event": "decide", "time": 2, "threads": 4, "grants": {}, %s}'


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ([], "no event in this log"),
        (["", "  "], "no event in this log"),
        (['{"event": "taken"}'], "line 1: 'taken' comes before 'start'"),
        (['{"event"'], "line 1: not JSON: Expecting ':' delimiter at column 9"),
        ([START, "{", '{"event": "taken"}'], "line 2: not JSON"),
        ([START, "3"], "line 2: an event is an object, not 3"),
        ([START, '{"event": "begin"}'], "line 2: no event is called 'begin'"),
        ([START, LEAVE % "1e17"], "line 2: 'time' of 'leave' must be a number from 0 to 1e+10"),
        ([START, LEAVE % "NaN"], "line 2: 'time' of 'leave' must be a number from 0 to 1e+10"),
        ([START.replace('"epoch": 1.0', '"epoch": 5e-324')], "line 1: 'epoch' of 'start' must be"),
        ([START, DECIDE % '"workers": {"w": "two"}'], "'workers' of 'decide' must be an object"),
        ([START, DECIDE % '"eligible": {"a": 3}'], "'eligible' of 'decide' must be an object"),
        ([START, DECIDE % '"affinity": [1]'], "'affinity' of 'decide' must be an object"),
        ([START, DECIDE % '"offered": "all"'], "line 2: 'offered' of 'decide' must be a number"),
        ([START, DECIDE % '"grants": {"a": 3}'], "'grants' of 'decide' must be an object"),
        ([START, DECIDE % '"grants": {"a": {"workers": 3}}'], "'grants' of 'decide' must be"),
        ([START, "[" * 100_000, ""], "line 2: brackets are nested more than 50 deep"),
        ([START, "", '{"event": "leave", "job": "a"}'], "line 3: 'time' is missing in 'leave'"),
        ([START, '{"event": "leave", "job": "a", "time": 2}'], "line 2: no job named 'a'"),
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


def test_a_recording_that_lasts_too_long_is_replayed_and_not_simulated(recorded, tmp_path):
    events = [dict(event) for event in recorded["fair"][0]]
    last = max(k for k, event in enumerate(events) if event["event"] == "report")
    for event in events[last:]:
        if "time" in event:
            event["time"] = event["time"] + 9e9
    found = replay_log(written(tmp_path / "log", events))
    assert found["decisions"] > 20 and "policies" not in found
    assert "too many to simulate" in found["notes"][-1]


def test_arrivals_out_of_order(recorded, tmp_path):
    events = recorded["fair"][0].copy()
    number = [k for k, event in enumerate(events) if event["event"] == "arrive"][3]
    events[number] = {**events[number], "time": 0.5}
    with pytest.raises(LogError, match=rf"line {number + 1}: the time goes back, from .* to 0.5 s"):
        replay_log(written(tmp_path / "log", events))


@pytest.mark.slow
def test_the_command_shows_the_table(log, tmp_path):
    result = CliRunner().invoke(slaq, ["replay", str(log), "--policy", "fair"])
    assert result.exit_code == 0, result.output
    assert "decisions reproduced" in result.output
    for name in (RECORDED, "max-total", "fair"):
        assert f"\n{name} " in result.output
    file = tmp_path / "found.json"
    CliRunner().invoke(slaq, ["replay", str(log), "--json", str(file)])
    assert {"decisions", "reproduced", "policies"} <= set(json.loads(file.read_text()))


def test_the_command_ends_with_1_where_a_decision_differs(recorded, tmp_path):
    events = json.loads(json.dumps(recorded["fair"][0]))
    name, grant = next(
        item for event in events for item in event.get("grants", {}).items() if item[1]["share"]
    )
    grant["share"] += 0.5
    log = written(tmp_path / "log", events)
    result = CliRunner().invoke(slaq, ["replay", str(log)])
    assert result.exit_code == 1
    assert f"differs in the share of job {name!r}" in result.output


def test_an_unknown_policy_is_refused(log):
    result = CliRunner().invoke(slaq, ["replay", str(log), "--policy", "best"])
    assert result.exit_code == 2 and "best" in result.output and "max-total" in result.output


def test_lost_jobs_and_workers_that_came_later_are_told(tmp_path):
    jobs = [make("a", work=8.0), make("b", 1.0)]
    events, _ = record(jobs, cores=2, capacity=[(3.0, 16)])
    for event in events:
        if event["event"] == "leave" and event["job"] == "b":
            event.pop("outcome", None)  # so of a client that is gone
    log = written(tmp_path / "log", events)
    assert "jobs that were lost, which end with their last report: 1" in replay_log(log)["notes"]
    assert "2 jobs, 2 to 16 cores" in CliRunner().invoke(slaq, ["replay", str(log)]).output
