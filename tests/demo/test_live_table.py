"""The terminal shows the state of every job."""

from __future__ import annotations

import io
import math

import pytest

from dask_slaq.demo import live_table as table
from dask_slaq.demo import workload as jobs
from dask_slaq.demo.drivers import Record


@pytest.fixture
def records() -> list[Record]:
    def record(name, **what):
        return Record(jobs.Training(name, name, "classes", 0.0, estimator=lambda: None), **what)

    return [
        record("waits"),
        record("trains", arrived=1.0),
        record("ended", arrived=1.0, ended=2.0),
        record("broke", arrived=1.0, ended=2.0, error="Traceback"),
    ]


STATUS = {
    "jobs": {
        "trains": {
            "iteration": 7,
            "normalized_loss": 0.25,
            "predicted": math.nan,
            "share": 1.5,
            "workers": ["tcp://b", "tcp://a"],
        },
        "other:client": {"workers": ["tcp://c"]},
    }
}


def test_states(records):
    assert [table.state(r) for r in records] == ["waiting", "training", "done", "failed"]


def test_plain_lines_without_a_terminal(records, capsys):
    view = table.view("Policy fair", start=0.0)
    assert isinstance(view, table.PlainLines)
    with view:
        view.update(records, STATUS)
        view.update(records, STATUS)
    title, line = capsys.readouterr().out.splitlines()
    assert title == "Policy fair"
    assert "1/4 done" in line
    assert "trains #7 0.250" in line
    assert "other:client" not in line


def test_live_table_shows_every_job(records, monkeypatch):
    rich_console = pytest.importorskip("rich.console")
    live = table.LiveTable("Policy fair", start=0.0)
    shown = []
    monkeypatch.setattr(live._live, "update", shown.append)
    live.update(records, STATUS)
    console = rich_console.Console(width=120, record=True, file=io.StringIO())
    console.print(shown[0])
    text = console.export_text()
    for word in ("trains", "0.250", "1.50", "0 1", "waiting", "done", "failed"):
        assert word in text
    assert "nan" not in text


@pytest.mark.parametrize("fraction", [-1.0, 0.0, 0.3, 0.999, 1.0, 7.0, math.nan])
def test_bars_have_one_width(fraction):
    assert len(table.bar_of(fraction)) == len(table.bar_of(0.5))
