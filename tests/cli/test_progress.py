"""Commands that compute or read for long show how far they are, on a terminal and nowhere else."""

import io
import json
import sys

import numpy as np
import pytest
from simulation.conftest import make, run

from dask_slaq.cli import progress
from dask_slaq.cli.main import slaq
from dask_slaq.core.engine import Engine
from dask_slaq.core.memory import Kind, PastRun
from dask_slaq.core.recording.recorder import Recorder
from dask_slaq.memory import RunStore


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    events = []
    engine = Recorder(Engine("fair", epoch=3.0), events.append, 0.0)
    jobs = [make(f"job-{k}", arrival=4.0 * k, iterations=8, partitions=24) for k in range(3)]
    run(jobs, engine=engine, dispatch="index", cores=16)
    (folder / "log").write_text("".join(json.dumps(event) + "\n" for event in events))
    store = RunStore(folder / "runs.db")
    for number in range(4):
        at, losses = np.arange(1, 4), np.array([1.0, 0.5, 0.25])
        store.add(f"key-{number}", PastRun("a", Kind("svm", ()), at, losses, 3))
    store.close()
    return folder


COMMANDS = {
    "simulate": (["simulate", "--jobs=2", "--seeds=2", "--policies=fair"], "Simulating"),
    "in-processes": (
        ["simulate", "--jobs=2", "--seeds=2", "--policies=fair", "--processes=2"],
        "Simulating",
    ),
    "replay": (["replay", "log", "--policy=fair"], "Replaying Simulating"),
    "advise": (["advise", "log", "--target=0.9"], "Reading Estimating"),
    "memory": (["memory", "runs.db"], "Reading"),
    "prune": (["memory", "runs.db", "--prune", "--kind=none"], "Deleting"),
}


def call(arguments):
    try:
        slaq(arguments, standalone_mode=False)
    except SystemExit as end:
        assert end.code == 0


SLOW = {"in-processes": pytest.mark.slow}


@pytest.mark.parametrize("name", [pytest.param(n, marks=SLOW.get(n, ())) for n in COMMANDS])
def test_a_terminal_shows_how_far_a_command_is(files, monkeypatch, capsys, name):
    arguments, shown = COMMANDS[name]
    monkeypatch.chdir(files)
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    monkeypatch.setattr("dask_slaq.memory.reading.STEPS", 1)
    with monkeypatch.context() as patch:
        patch.setattr("sys.stderr", Terminal())
        call(arguments)
        said = sys.stderr.getvalue()
    for what in shown.split():
        assert what in said
    if name not in ("memory", "prune"):  # of which nobody knows how long they take
        assert "100%" in said
    out = capsys.readouterr().out
    call(arguments)
    elsewhere = capsys.readouterr()
    assert elsewhere.err == ""
    assert elsewhere.out.splitlines()[0] == out.splitlines()[0]


def test_what_takes_no_time_shows_no_bar(files, monkeypatch):
    monkeypatch.setattr("sys.stderr", Terminal())
    monkeypatch.setattr(progress, "PATIENCE", 1e9)
    slaq(["memory", str(files / "runs.db")], standalone_mode=False)
    assert sys.stderr.getvalue() == ""
