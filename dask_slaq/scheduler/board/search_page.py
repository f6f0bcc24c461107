"""Document of the page of a search: its models' curves, threads, parameters and table."""

from __future__ import annotations

from html import escape
from typing import Any

from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    DataTable,
    Div,
    FactorRange,
    FixedTicker,
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

from dask_slaq.core.trials import STATE_COLORS
from dask_slaq.scheduler.board.pages import draw_again
from dask_slaq.scheduler.board.search_data import SearchData, search_data_of, searches_of

#: Milliseconds between two updates of the page.
INTERVAL = 1000
SWATCH = "display:inline-block;width:0.8em;height:0.8em;margin:0 4px 0 12px"
TIPS = [("state", "@state"), ("loss", "@loss"), ("parameters", "@params")]


class SearchPage(DashboardComponent):  # type: ignore[misc]
    """The whole page, of the search that is chosen: by default the newest."""

    def __init__(self, scheduler: Scheduler, name: str = "") -> None:
        self.scheduler = scheduler
        self.shown: SearchData | None = None
        self.choice = Select(options=[], value=name, width=220)
        self.choice.on_change("value", lambda attr, old, new: self.update())
        legend = "".join(
            f'<span style="background:{color};{SWATCH}"></span>{state}'
            for state, color in reversed(STATE_COLORS.items())
        )
        self.head = Div(text="", render_as_text=True, styles={"padding": "6px 12px"})
        self.legend = Div(text=legend, styles={"padding": "0 0 4px 0", "font-size": "12px"})
        empty = SearchData()
        self.sources = {
            name: ColumnDataSource(getattr(empty, name))
            for name in ("curves", "forecasts", "threads", "parallel", "ticks")
        }
        self.rows = ColumnDataSource({})
        self.table = DataTable(source=self.rows, columns=[], index_position=None, height=275)
        self.table.sizing_mode = "stretch_width"
        size: dict[str, Any] = {"sizing_mode": "stretch_both", "min_height": 240}
        plots = row(self._curves(), self._threads(), sizing_mode="stretch_both", min_height=260)
        top = row(self.choice, self.head, sizing_mode="stretch_width")
        below = [self._parallel(), self.table]
        self.root = column(top, self.legend, plots, *below, **size)
        self.update()

    def _figure(self, title: str, **kwargs: Any) -> Any:
        kwargs = {"sizing_mode": "stretch_both", "min_height": 220, **kwargs}
        tools = "xpan,ypan,xwheel_zoom,ywheel_zoom,reset"
        return figure(title=title, tools=tools, toolbar_location="right", **kwargs)

    def _lines(self, plot: Any, name: str, **style: Any) -> Any:
        at = {"xs": "x", "ys": "y", "line_color": "color", "line_alpha": "alpha"}
        return plot.multi_line(**at, line_width="width", source=self.sources[name], **style)

    def _curves(self) -> Any:
        self.losses = Range1d(0, 1)
        plot = self._figure(
            "Loss of each model, and its forecast", x_axis_label="step", y_range=self.losses
        )
        self._lines(plot, "forecasts", line_dash="dashed")
        lines = self._lines(plot, "curves")
        plot.add_tools(HoverTool(renderers=[lines], tooltips=TIPS))
        return plot

    def _threads(self) -> Any:
        self.workers = FactorRange(factors=[])
        plot = self._figure(
            "Threads of workers, and models that wait",
            y_range=self.workers,
            x_axis_label="models",
            sizing_mode="stretch_height",
            width=420,
        )
        at = {"y": "worker", "left": "left", "right": "right", "fill_color": "color"}
        boxes = plot.hbar(**at, height=0.7, line_color="#bbbbbb", source=self.sources["threads"])
        tips = [("model", "@model"), ("state", "@state"), ("loss", "@loss")]
        plot.add_tools(HoverTool(renderers=[boxes], tooltips=tips))
        return plot

    def _parallel(self) -> Any:
        plot = self._figure("Parameters of each model, and its loss: the best are dark", height=260)
        plot.y_range, plot.yaxis.visible = Range1d(-0.08, 1.08), False
        plot.x_range, plot.ygrid.visible = Range1d(-0.2, 1.6), False
        lines = self._lines(plot, "parallel")
        plot.add_tools(HoverTool(renderers=[lines], tooltips=TIPS))
        plot.text(
            *("x", "y", "text"),
            source=self.sources["ticks"],
            text_font_size="11px",
            x_offset=4,
            text_baseline="middle",
            background_fill_color="white",
            background_fill_alpha=0.75,
        )
        self.ticks = FixedTicker(ticks=[])
        plot.xaxis[0].ticker = plot.xgrid[0].ticker = self.ticks
        self.parameters = plot
        return plot

    def update(self) -> None:
        """Read the newest data of the chosen search."""
        names = searches_of(self.scheduler)
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
        if self.head.text != data.head:
            self.head.text = data.head
        for name, source in self.sources.items():
            source.data = getattr(data, name)
        self.losses.update(start=data.low, end=data.high)
        if self.workers.factors != data.workers[::-1]:
            self.workers.factors = data.workers[::-1]
        axis = self.parameters.xaxis[0]
        if self.ticks.ticks != (ticks := list(range(len(data.axes)))):
            self.ticks.ticks = ticks
        axis.major_label_overrides = dict(enumerate(data.axes))
        self.parameters.x_range.end = max(len(data.axes) - 1, 1) + 0.4
        self.parameters.visible = bool(data.axes)
        self._show_table(data)

    def _show_table(self, data: SearchData) -> None:
        names = list(data.table)
        if [each.field for each in self.table.columns] != [n for n in names if n != "color"]:
            self.table.columns = [self._column(name) for name in names if name != "color"]
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
    add_periodic_callback(doc, page, INTERVAL)
    doc.add_root(page.root)
    doc.title = "Dask: Slaq search"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME
