"""Page of a search: the curves of its models, with their forecasts, and a table."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from html import escape
from itertools import islice
from typing import Any

import numpy as np
from bokeh import layouts
from bokeh.document import Document
from bokeh.models import (
    ColumnDataSource,
    DataTable,
    Div,
    HoverTool,
    HTMLTemplateFormatter,
    Range1d,
    Select,
    TableColumn,
)
from bokeh.plotting import figure
from distributed import Scheduler
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.components.shared import DashboardComponent

from dask_slaq.core.text import in_cell, number, printable
from dask_slaq.core.trials import STATE_COLORS, SearchSettings
from dask_slaq.scheduler.board.data import Columns, empty, recent
from dask_slaq.scheduler.board.pages import INTERVAL_MILLISECONDS, SWATCH, draw_again
from dask_slaq.scheduler.current import registered_plugin

#: Maximum number of points of all curves, though each has at least six.
MOST_POINTS = 12_000
#: Maximum number of parameters in the table.
MOST_PARAMETERS = 8
#: Number of models above which all but the first are faint, and only these have their forecast.
CROWDED_MODELS = 60
LINE = ("x", "y", "color", "alpha", "model", "state", "loss", "params")


@dataclass
class SearchData:
    """Everything that the page of one search shows, as columns for Bokeh."""

    head: str = ""
    curves: Columns = field(default_factory=lambda: empty(*LINE))
    forecasts: Columns = field(default_factory=lambda: empty(*LINE))
    table: Columns = field(default_factory=dict)
    low: float = 0.0  # of the losses that the plot shows
    high: float = 1.0


def search_data_of(scheduler: Scheduler, name: str) -> SearchData:
    """Return the data of a search; the same object until there are newer ones."""
    return recent(scheduler, f"search {name}", lambda: _data(scheduler, name))


def _data(scheduler: Scheduler, name: str) -> SearchData:
    plugin = registered_plugin(scheduler)
    if plugin is not None:
        rows, settings = plugin.searches.tables.table(name)
        if settings is not None:
            return make_data(name, rows, settings)
    return SearchData(f"No search {printable(name)!r} is known.")


def make_data(name: str, rows: list[dict[str, Any]], settings: SearchSettings) -> SearchData:
    """Return the data of a search from its trials."""
    data, sign = SearchData(), -1.0 if settings.maximize else 1.0
    order = list(STATE_COLORS)
    ranked = sorted(rows, key=lambda r: (not math.isfinite(r["loss"]), sign * r["loss"]))
    counts = [(state, sum(row["state"] == state for row in rows)) for state in reversed(order)]
    counted = ", ".join(f"{n} {state}" for state, n in counts if n)
    best = f"; best {number(ranked[0]['loss'])}" if ranked and ranked[0]["iteration"] else ""
    data.head = f"Search {printable(name)}: {counted or 'no models yet'}{best}."
    _add_curves(data, sorted(rows, key=lambda row: order.index(row["state"])), settings)
    _add_table(data, ranked)
    return data


def _add_curves(data: SearchData, rows: list[dict[str, Any]], settings: SearchSettings) -> None:
    points = max(MOST_POINTS // max(len(rows), 1), 6)
    best, promising = (_first(rows, by, settings.maximize) for by in ("loss", "predicted"))
    rows = sorted(rows, key=lambda row: row["key"] in best)  # over the others
    longest = max((row["iteration"] for row in rows), default=0)
    known = []
    for row in rows:
        x = np.frombuffer(row.get("steps", b""), np.int64)
        y = np.frombuffer(row.get("losses", b""), float)
        if not len(x):
            continue
        if len(x) > points:
            some = np.unique(np.linspace(0, len(x) - 1, points).round().astype(int))
            x, y = x[some], y[some]
        known.append(y)
        clear = len(rows) <= CROWDED_MODELS or row["key"] in best
        _add(data.curves, row, x.tolist(), y.tolist(), 0.9 if clear else 0.25)
        if row["key"] in promising:
            known.append(np.array([row["predicted"]]))
            end = max(settings.steps or longest, row["iteration"] + 1)
            line = [row["iteration"], end], [row["loss"], row["predicted"]]
            _add(data.forecasts, row, *line, 0.5)
    # Part of the losses, from the lowest, that the plot of curves shows.
    shown = 0.97
    if known:
        # The first losses of bad models would take the whole plot.
        losses = np.concatenate(known)
        cut = (0.0, shown) if not settings.maximize else (1 - shown, 1.0)
        low, high = np.quantile(losses, cut).tolist()
        room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
        data.low, data.high = low - room, high + room


def _first(rows: list[dict[str, Any]], by: str, maximize: bool) -> set[Any]:
    """Return the keys of the models that stand out: the best, or all if there are not many."""
    known = [row for row in rows if math.isfinite(row[by])]
    if len(rows) > CROWDED_MODELS:
        known = sorted(known, key=lambda row: row[by], reverse=maximize)[:10]
    return {row["key"] for row in known}


def _add(columns: Columns, row: dict[str, Any], x: list[Any], y: list[Any], alpha: float) -> None:
    text = ", ".join(f"{k}={in_cell(v)}" for k, v in list(row["params"].items())[:MOST_PARAMETERS])
    about = (str(row["key"]), row["state"], number(row["loss"]), text)
    values = (x, y, STATE_COLORS[row["state"]], alpha, *about)
    for key, value in zip(LINE, values, strict=True):
        columns[key].append(value)


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Return the names of the parameters in which models differ, the first ones."""
    rows = [row for row in rows if row["params"]]  # others have not reported
    names = dict.fromkeys(name for row in rows for name in row["params"])
    differ = (n for n in names if len({repr(row["params"].get(n)) for row in rows}) > 1)
    return list(islice(differ, MOST_PARAMETERS))


def _add_table(data: SearchData, ranked: list[dict[str, Any]]) -> None:
    rows = ranked[:500]
    data.table = {
        "rank": list(range(1, len(rows) + 1)),
        "color": [STATE_COLORS[row["state"]] for row in rows],
        "state": [row["state"] for row in rows],
        "loss": [_finite(row["loss"]) for row in rows],
        "predicted": [_finite(row["predicted"]) for row in rows],
        "step": [row["iteration"] for row in rows],
        **{
            f"params {name}": [in_cell(row["params"].get(name, "")) for row in rows]
            for name in _names(rows)
        },
        "computed": [round(row["computed"], 2) for row in rows],
        "waited": [round(row["waited"], 2) for row in rows],
        "worker": [row["worker"] for row in rows],
        "error": [printable(row["error"]) for row in rows],
    }


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None


class SearchPage(DashboardComponent):  # type: ignore[misc]
    """The whole page, of the search that is chosen: by default the newest."""

    def __init__(self, scheduler: Scheduler, name: str = "") -> None:
        self.scheduler = scheduler
        self.shown: SearchData | None = None
        self.choice = Select(options=[], value=name, width=220)
        self.choice.on_change("value", lambda attr, old, new: self.update())
        legend = "".join(
            f'<span style="background:{color};{SWATCH}"></span>{state} '
            for state, color in reversed(STATE_COLORS.items())
        )
        self.head = Div(text="", render_as_text=True, styles={"padding": "6px 12px"})
        self.curves, self.forecasts = (ColumnDataSource(empty(*LINE)) for _ in range(2))
        self.rows = ColumnDataSource({})
        self.table = DataTable(source=self.rows, columns=[], index_position=None, height=320)
        self.table.sizing_mode = "stretch_width"
        top = layouts.row(self.choice, self.head, Div(text=legend), sizing_mode="stretch_width")
        self.root = layouts.column(top, self._plot(), self.table, sizing_mode="stretch_both")
        self.update()

    def _plot(self) -> Any:
        self.losses = Range1d(0, 1)
        plot = figure(
            title="Loss of each model, and its forecast",
            tools="xpan,ypan,xwheel_zoom,ywheel_zoom,reset",
            x_axis_label="step",
            y_range=self.losses,
            sizing_mode="stretch_both",
            min_height=260,
        )
        at = {"xs": "x", "ys": "y", "line_color": "color", "line_alpha": "alpha"}
        plot.multi_line(**at, line_width=1.5, source=self.forecasts, line_dash="dashed")
        lines = plot.multi_line(**at, line_width=1.5, source=self.curves)
        tips = [("state", "@state"), ("loss", "@loss"), ("parameters", "@params")]
        plot.add_tools(HoverTool(renderers=[lines], tooltips=tips))
        return plot

    def update(self) -> None:
        """Read the newest data of the chosen search."""
        plugin = registered_plugin(self.scheduler)
        names = [] if plugin is None else plugin.searches.tables.names()
        chosen = self.choice.value or (names[0] if names else "")
        options = names if not chosen or chosen in names else [chosen, *names]
        if self.choice.options != options:
            self.choice.options = options
        if self.choice.value != chosen:
            self.choice.value = chosen  # which calls this method again
        if not chosen:
            self.head.text = (
                "No search runs. Open one with dask_slaq.search(name) in a program that trains."
            )
            return
        data = search_data_of(self.scheduler, chosen)
        if data is not self.shown:
            self.shown = data
            self._show(data)

    def _show(self, data: SearchData) -> None:
        self.head.text = data.head
        self.curves.data, self.forecasts.data = data.curves, data.forecasts
        self.losses.update(start=data.low, end=data.high)
        names = [name for name in data.table if name != "color"]
        if [each.field for each in self.table.columns] != names:
            self.table.columns = [self._column(name) for name in names]
        self.rows.data = data.table
        draw_again(self.table)

    @staticmethod
    def _column(name: str) -> TableColumn:
        title = escape(name.removeprefix("params "))  # the table takes it for HTML
        width = {"rank": 40, "error": 200, "worker": 160}.get(name, 80)
        template = '<span title="<%- value %>"><%- value === null ? "" : value %></span>'
        if name == "state":
            template = '<b style="color:<%= color %>">■</b> <%- value %>'
        shown = HTMLTemplateFormatter(template=template)
        return TableColumn(field=name, title=title, width=width, formatter=shown)


def search_page(scheduler: Scheduler, extra: dict[str, Any], doc: Document) -> None:
    """Fill the document of the page; its address names the search, as in ``?name=grid``."""
    session = doc.session_context
    given = session.request.arguments.get("name", [b""])[0] if session is not None else b""
    page = SearchPage(scheduler, given.decode(errors="replace"))
    add_periodic_callback(doc, page, INTERVAL_MILLISECONDS)
    doc.add_root(page.root)
    doc.title = "Dask: Slaq search"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME
