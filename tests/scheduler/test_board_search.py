"""The page of a search shows its models as they are, in bounded columns, during it and after it."""

import json
import math

import numpy as np
import pytest
from distributed import Event
from driving import forget_shown, inside, let_end, page_of, until, with_plugin

import dask_slaq as slaq
from dask_slaq.core.trials import STATE_COLORS, SearchSettings

pytest.importorskip("bokeh", reason="bokeh is not installed")
from bokeh.document import Document

from dask_slaq.scheduler.board.pages import Note
from dask_slaq.scheduler.board.search_page import (
    MOST_POINTS,
    SearchPage,
    make_data,
    search_data_of,
    search_page,
)

PAGES = {"dashboard": True, "dashboard_address": "127.0.0.1:0"}


def train(params, hold=None):
    for k in range(5):
        slaq.report(params["rate"] + 1 / (k + 1))
        if hold is not None and k == 3:
            Event(hold).wait()
    if params["kind"] == "bad":
        raise ValueError("bad\x1b[31m")
    return k


def newest(scheduler, name):
    forget_shown()
    return search_data_of(scheduler, name)


@with_plugin([2])
async def test_states_curves_parameters_and_the_table(c, s, plugin, a):
    grid = [{"rate": 10.0**-k, "kind": kind} for k, kind in enumerate(("a", "b", "bad"))]
    async with slaq.search("grid", client=c, steps=5) as search:
        futures = search.map(train, grid)
        held = c.submit(train, {"rate": 5.0, "kind": "held"}, "go")
        await until(lambda: all(future.done() for future in futures))
        alive = inside(plugin).trials("grid").alive
        await until(lambda: held.key in alive and alive[held.key].params)
        await until(lambda: "1 training" in newest(s, "grid").head)
        found = newest(s, "grid")
        assert plugin.searches.tables.names() == ["grid"]
        assert "2 done" in found.head and "1 failed" in found.head
        states = dict(zip(found.curves["state"], found.curves["color"], strict=True))
        assert states == {state: STATE_COLORS[state] for state in states}
        assert {"params rate", "params kind", "params hold"} <= found.table.keys()
        await let_end(c, held)
    found = newest(s, "grid")
    assert found.table["rank"] == [1, 2, 3, 4]
    assert found.table["loss"] == sorted(found.table["loss"])
    assert found.table["params kind"] == ["bad", "b", "a", "held"]
    assert "\x1b" not in json.dumps(found.table, ensure_ascii=False)
    assert found.forecasts["x"] == []
    losses = [loss for curve in found.curves["y"] for loss in curve]
    assert len(losses) == 20 and found.low < min(losses)
    assert newest(s, "other").head == "No search 'other' is known."


@pytest.mark.parametrize("n", [0, 1, 8, 400])
def test_columns_are_bounded_whatever_the_models_are(n):
    states = list(STATE_COLORS)
    steps = np.arange(1, 501)
    rows = [
        {
            "key": f"m-{i}",
            "params": {"lr": 10.0 ** -(i % 4), "act": "ab"[i % 2], "odd": math.inf, "i": i},
            "state": states[i % len(states)],
            "iteration": 500 * (states[i % len(states)] != "pending"),
            "loss": math.nan if i % 7 == 3 else 1.0 / (i + 1),
            "predicted": 0.5 if i % 3 else math.nan,
            "computed": 1.0,
            "waited": 0.0,
            "worker": f"w{i % 3}",
            "error": "",
            "steps": b"" if i % 8 == 0 else steps.tobytes(),
            "losses": b"" if i % 8 == 0 else (1.0 / steps + i).tobytes(),
        }
        for i in range(n)
    ]
    found = make_data("x", rows, SearchSettings())
    clear = [alpha > 0.5 for alpha in found.curves["alpha"]]
    if n > 60:  # the best stand out, and are drawn over the others; none is hidden among forecasts
        assert sum(clear) == 9 and clear[-9:] == [True] * 9  # one of ten has no curve
        assert len(found.forecasts["x"]) <= 10
    else:
        assert all(clear)
    points = sum(map(len, found.curves["x"]))
    assert points <= max(MOST_POINTS, 6 * n)
    assert len(found.table["rank"]) == n
    for columns in (found.curves, found.forecasts, found.table):
        assert len({len(column) for column in columns.values()}) == 1
    text = json.dumps([found.curves, found.table], allow_nan=False)
    assert len(text) < 1_500_000


@with_plugin([1], scheduler_kwargs=PAGES)
async def test_the_page_is_served_and_linked(c, s, plugin, a):
    assert "No search runs" in SearchPage(s).head.text
    async with slaq.search("a&b", client=c, steps=5) as search:
        await c.gather(search.map(train, [{"rate": k, "kind": "x"} for k in range(3)]))
    assert "Slaq" in await page_of(s, "/slaq-search?name=a%26b")
    page = SearchPage(s, "a&b")
    assert page.choice.options == ["a&b"] and "3 done" in page.head.text
    assert len(page.curves.data["x"]) == 3
    names = [column.field for column in page.table.columns]
    assert names[:3] == ["rank", "state", "loss"] and "params rate" in names
    forget_shown()
    assert '<a href="slaq-search?name=a%26b">a&amp;b</a>' in Note(s).root.text
    doc = Document()
    search_page(s, {"prefix": "/"}, doc)
    assert doc.roots
