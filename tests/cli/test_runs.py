"""``dask slaq runs``: what a store holds, and its pruning."""

import functools
import json
import time

import dask
import numpy as np
import pytest
from commands import printed

from dask_slaq.cli.main import slaq
from dask_slaq.core.run_history import Kind, PastRun
from dask_slaq.run_history import RunStore, read_kinds

DAY = 86_400.0
HOSTILE = "red \x1b[31m"  # kinds are users' text


run = functools.partial(printed, slaq)


@pytest.fixture
def file(tmp_path):
    """Eight runs each of two kinds, the last one of each just now, the first a week ago."""
    store = RunStore(tmp_path / "runs.db")
    for number in range(8):
        for kind, rate in (("svm", 0.9), (HOSTILE, 0.8)):
            n = 40 + number
            at, now = np.arange(1, n + 1), time.time()
            loss = 0.1 + (rate - 0.01 * number) ** (at - 1.0)
            ended = now - (7 - number) * DAY
            known = {"work": 2.0, "tasks": 4.0, "ended": ended}
            store.add(PastRun(f"{kind}-{number}", Kind(kind), at, loss, n, **known))
    assert store.flush()
    store.close()
    return str(tmp_path / "runs.db")


def test_it_lists_kinds(file, monkeypatch):
    now = time.time()
    monkeypatch.setattr("time.time", lambda: now)  # else a second may pass
    lines = run("runs", file).splitlines()
    assert lines[0].split() == ["kind", "runs", "done", "iterations", "last", "run"]
    assert lines[2].startswith("svm") and "8     8" in lines[2] and "43.5 (40 to 47)" in lines[2]
    assert r"red \x1b[31m" in lines[1] and "\x1b" not in lines[1]
    assert lines[-1] == "16 runs of 2 kinds"
    assert run("runs", file, "--kind", "svm").splitlines()[-1] == "8 runs of 1 kind"
    with dask.config.set({"slaq.run-history": file}):
        assert run("runs").splitlines() == lines


def test_it_lists_kinds_as_json(file):
    found = json.loads(run("runs", file, "--json"))
    assert (found["file"], found["runs"], len(found["kinds"])) == (file, 16, 2)
    assert {"kind", "runs", "done", "least", "mean", "most", "last"} == {*found["kinds"][0]}


def test_it_prunes(file):
    assert run("runs", file, "--prune", "--older-than", "3.5d", "--kind", "svm") == (
        "4 runs deleted\n"
    )
    assert json.loads(run("runs", file, "--prune", "--older-than", "5.5d", "--json")) == {
        "deleted": 2
    }
    assert run("runs", file, "--prune", "--kind", "svm") == "4 runs deleted\n"
    (left,) = read_kinds(file)
    assert (left.kind, left.runs) == (HOSTILE, 6)
    run("runs", file, "--prune", "--kind", HOSTILE)
    assert run("runs", file) == "no runs\n"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "no file given"),
        (("/no/such",), 1, "cannot use '/no/such' as a store of runs: there is no such file"),
        (("FILE", "--prune"), 2, "--prune needs --kind or --older-than"),
        (("FILE", "--prune", "--older-than", "soon"), 2, "a time such as 30d or 12h, not 'soon'"),
        (("FILE", "--prune", "--older-than", "-3d"), 2, "a time such as 30d or 12h, not '-3d'"),
        (("TEXT",), 1, "it is damaged, or not a store of runs"),
    ],
    ids=str,
)
def test_it_says_what_is_wrong(file, tmp_path, arguments, code, words):
    text = tmp_path / "text"
    text.write_text("notes " * 1000)
    names = {"FILE": file, "TEXT": text}
    output = run("runs", *(names.get(a, a) for a in arguments), code=code)
    assert words in " ".join(output.split())
    assert text.read_text() == "notes " * 1000
