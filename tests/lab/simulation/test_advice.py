"""Advice is close to the truth on recordings of simulated clusters, and bad input is named."""

import json
import math

import pytest
from click.testing import CliRunner
from lab.simulation.conftest import make, run

from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.lab.simulation.advice import advise
from dask_slaq.lab.simulation.replay import LogError


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """`few` takes 10 long iterations to a loss of 1, `many` 80 short ones, on 2, 4, 8 threads."""
    path, events = tmp_path_factory.mktemp("log") / "log.jsonl", []
    for cores in (2, 4, 8):
        few = make(f"few-{cores}", iterations=10, work=32.0, partitions=64)
        many = make(f"many-{cores}", arrival=1000.0, iterations=80, work=2.0, partitions=64)
        recorder = Recorder(Engine("fair", epoch=3.0), events.append, 0.0)
        run([few, many], engine=recorder, cores=cores)
    path.write_text("".join(json.dumps(event) + "\n" for event in events))
    return path


def option(found, solver, threads):
    [only] = [o for o in found["options"] if (o["solver"], o["threads"]) == (solver, threads)]
    return only


def test_seconds_are_iterations_times_seconds_of_one(log):
    found = advise(log, 1.0 + 1e-9)
    for solver, iterations, work in (("few", 10, 32.0), ("many", 80, 2.0)):
        for threads in (2, 8, 16):
            told = option(found, solver, threads)
            assert told["iterations"] == iterations and not told["predicted"]
            assert told["seconds"] == pytest.approx(iterations * work / threads, rel=0.05)
            assert told["extrapolated"] == (threads == 16) and told["runs"] == 3
    best = found["options"][0]
    assert (best["solver"], best["threads"]) == ("many", 16)


def test_a_loss_that_was_not_reached_is_predicted(log):
    found = advise(log, 0.95)
    told = option(found, "many", 8)
    expected = 1 + 79 * math.log(10 / 0.95) / math.log(10)
    assert told["predicted"] and told["iterations"] == pytest.approx(expected, rel=0.05)


def test_what_is_out_of_reach_is_said(log):
    found = advise(log, -5.0)
    assert found["options"] == []
    assert found["out_of_reach"] == {"few": pytest.approx(1.0), "many": pytest.approx(1.0)}


def invoke(*arguments):
    return CliRunner().invoke(slaq, ["advise", *map(str, arguments)])


def test_the_command(log):
    shown = invoke(log, "--target", 1.001)
    assert shown.exit_code == 0, shown.output
    assert [line.split()[0] for line in shown.output.splitlines()[:2]] == ["solver", "many"]
    written = invoke(log, "--target", 1.001, "--json", "-")
    assert json.loads(written.output)["options"][0]["solver"] == "many"
    assert "not predicted to reach -5" in invoke(log, "--target", -5).output


def test_what_is_wrong_is_said(log, tmp_path):
    assert "both a LOG and --target" in invoke(log).output
    assert "both a LOG and --target" in invoke("--target", 1).output
    with pytest.raises(InvalidSetting, match="finite loss"):
        advise(log, math.nan)
    cut = tmp_path / "cut"
    cut.write_text(log.read_text().splitlines()[0] + "\n")
    with pytest.raises(LogError, match="no job here reported"):
        advise(cut, 1.0)
