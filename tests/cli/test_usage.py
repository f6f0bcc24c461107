"""``dask slaq usage``: from the file of a memory, and from a scheduler without one."""

import functools
import json
import time

import dask
import pytest
from commands import printed

from dask_slaq.cli.main import slaq
from dask_slaq.core.owners.usage import DAY_SECONDS, Usage, UsageKey
from dask_slaq.run_history import RunStore

TODAY = int(time.time() // DAY_SECONDS)
HOSTILE = "red \x1b[31m"  # owners are users' text
run = functools.partial(printed, slaq, "usage")


@pytest.fixture
def kept(tmp_path):
    """Usage of two owners, today and ten days ago."""
    store = RunStore(tmp_path / "runs.db")
    rows = [
        (UsageKey(day, owner, kind, job), Usage(seconds, waited=90.0, done=1))
        for day in (TODAY, TODAY - 10)
        for owner, kind, job, seconds in (
            ("ann", "svm", "svm-1", 3600.0),
            ("ann", "", "", 10.0),
            (HOSTILE, "net", "net", 1.25),
        )
    ]
    store.add_usage(rows)
    assert store.flush()
    store.close()
    return str(tmp_path / "runs.db")


def test_a_file_is_read(kept):
    lines = run(kept).splitlines()
    assert lines[0].split() == [
        *("owner", "core-s", "waited", "jobs"),
        *("done", "stopped", "failed", "lost"),
    ]
    assert lines[1].split()[:2] == ["ann", "7220.0"] and lines[2].startswith(r"red \x1b[31m")
    assert lines[-1] == "7222.5 core-seconds (2.01 core-hours)"
    assert run(kept, "--since", "7d").splitlines()[-1].startswith("3611.2")
    with dask.config.set({"slaq.run-history": kept, "scheduler-address": None}):
        assert run().splitlines() == lines


def test_it_is_summed_by_several_for_programs(kept):
    found = json.loads(run(kept, "--by", "day", "--by", "job", "--json"))
    assert (found["file"], found["since"], found["note"]) == (kept, None, None)
    days = [row["day"] for row in found["rows"]]
    assert days == sorted(days) and len(set(days)) == 2 and len(days) == 6
    rows = json.loads(run(kept, "--by", "kind", "--json"))["rows"]
    assert [row["kind"] for row in rows] == ["svm", "", "net"]
    assert rows[0]["core_seconds"] == 7200 and rows[0]["done"] == 2


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("FILE", "--since", "soon"), 2, "since must be a time such as 7d or 12h, not 'soon'"),
        (("FILE", "--by", "week"), 2, "'week' is not one of"),
        (("FILE", "--scheduler", "tcp://1.2.3.4:5"), 2, "give FILE or a scheduler, not both"),
        (("none.db",), 1, "there is no such file"),
        ((), 2, "nothing to read"),
    ],
)
def test_what_is_wrong_is_said(kept, arguments, code, words):
    with dask.config.set({"scheduler-address": None, "slaq.run-history": None}):
        output = run(*(kept if a == "FILE" else a for a in arguments), code=code)
    assert words in " ".join(output.replace("│", " ").split())


def test_a_scheduler_without_a_file_says_so(on_scheduler):
    result = on_scheduler("usage")
    assert result.exit_code == 0, result.output
    assert "since the scheduler's start" in result.output.splitlines()[-1]
    assert json.loads(on_scheduler("usage", "--json").stdout)["file"] is None
