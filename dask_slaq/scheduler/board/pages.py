"""Documents of the board: one page with everything, and single plots."""

from __future__ import annotations

from functools import partial
from html import escape
from time import time
from typing import Any, ClassVar
from urllib.parse import quote

from bokeh.core.serialization import Serializer
from bokeh.document import Document
from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    DataRange1d,
    DataTable,
    DatetimeTickFormatter,
    DaysTicker,
    Div,
    FactorRange,
    HoverTool,
    HTMLTemplateFormatter,
    Range1d,
    Span,
    TableColumn,
    TapTool,
)
from bokeh.models import Legend as BokehLegend
from bokeh.plotting import figure
from distributed import Scheduler
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, TaskStream, env
from distributed.dashboard.components.shared import DashboardComponent
from distributed.diagnostics.task_stream import TaskStreamPlugin

from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.core.text import shortened
from dask_slaq.scheduler.board.data import (
    COLUMNS,
    GREY,
    UNOWNED,
    BoardData,
    Plain,
    color_of,
    data_of,
)
from dask_slaq.scheduler.board.routes import PLOTS, SEARCH

#: Prefixes of the names of rectangles that show no computation.
NOT_COMPUTE = ("transfer-", "disk-read-", "disk-write-", "deserialize-")


class JobTaskStreamPlugin(TaskStreamPlugin):  # type: ignore[misc]
    """Records which job owns each task of the stream."""

    name = "slaq-task-stream"

    def transition(self, key: Any, start: str, finish: str, *args: Any, **kwargs: Any) -> None:
        """Record a task that ended."""
        before = self.index
        super().transition(key, start, finish, *args, **kwargs)
        if self.index > before:
            ts = self.scheduler.tasks.get(key)
            annotations = (ts.annotations or {}) if ts is not None else {}
            self.buffer[-1]["slaq_job"] = annotations.get("slaq_job")

    def rectangles(self, istart: int, **kwargs: Any) -> dict[str, list[Any]]:
        """Return the rectangles of the stream, in the colors of the jobs."""
        job_of: dict[Any, Any] = {
            message["key"]: message.get("slaq_job") for message in self.buffer
        }
        found: dict[str, list[Any]] = super().rectangles(istart, **kwargs)
        for i, (key, name) in enumerate(zip(found["key"], found["name"], strict=True)):
            if not name.startswith(NOT_COMPUTE):
                job = job_of.get(key)
                if isinstance(job, str):
                    found["color"][i] = color_of(job)
                    found["name"][i] = f"{job}: {name}"
                else:
                    found["color"][i] = UNOWNED
        return found


class JobTaskStream(TaskStream):  # type: ignore[misc]
    """Task stream whose colors are those of the jobs."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        if JobTaskStreamPlugin.name not in scheduler.plugins:
            scheduler.add_plugin(JobTaskStreamPlugin(scheduler))
        super().__init__(scheduler, n_rectangles=500, clear_interval="20s", **kwargs)
        plugin: Any = scheduler.plugins[JobTaskStreamPlugin.name]
        self.plugin = plugin
        self.index = max(0, plugin.index - self.n_rectangles)
        self.root.title.text = "Tasks by job"
        # It would open a profile of the name, to which the job was added.
        self.root.tools = [tool for tool in self.root.tools if not isinstance(tool, TapTool)]

    def update(self) -> None:
        """Read the newest tasks. Without any, the axis would show the times of Dask's dummy."""
        super().update()
        self.root.xaxis.visible = list(self.source.data["key"]) not in ([], ["start"])


#: Milliseconds between two updates of a page.
INTERVAL_MILLISECONDS = 1000
SECONDS = "seconds from now"
NO_JOBS = "Open one with dask_slaq.job(name) in a program that trains on this cluster."
HELD = (
    "Tasks that are held until a slot of their job is free appear as <i>queued</i> on Dask's own "
    "pages."
)
#: Styles of the legend.
SWATCH = "display:inline-block;width:0.8em;height:0.8em;margin-right:4px"
FLOW = "display:flex;flex-wrap:wrap;gap:2px 14px;font-size:12px"
RED = "#c00000"
#: Name of a job in the table, of which a narrow column cuts the middle: many differ at their end.
NAME = """<span style="color:<%= ink %>;display:flex" title="<%- value %>"><span
style="overflow:hidden;text-overflow:ellipsis;white-space:pre"><%-
Array.from(value).slice(0, -12).join('') %></span><span style="white-space:pre"><%-
Array.from(value).slice(-12).join('') %></span></span>"""
Serializer.register(Plain, lambda column, serializer: column)
COLORS = {
    "deserved": "#bbbbbb",
    "got": "#1f77b4",
    "lent": "#98df8a",
    "borrowed": "#ff9896",
    "idle": "#e7e7e7",
}


class _Plot(DashboardComponent):  # type: ignore[misc]
    """Part of the board that shows some columns of `BoardData`."""

    shows: tuple[str, ...]

    def __init__(self, scheduler: Scheduler) -> None:
        self.scheduler, data = scheduler, BoardData()
        self.sources = [ColumnDataSource(getattr(data, name)) for name in self.shows]
        self.shown: BoardData | None = None  # the first update brings the data

    def update(self) -> None:
        """Read the newest data."""
        data = data_of(self.scheduler)
        if data is not self.shown:
            self.shown = data
            self._show(data)

    def _show(self, data: BoardData) -> None:
        for name, source in zip(self.shows, self.sources, strict=True):
            source.data = getattr(data, name)


class LossesPlot(_Plot):
    """Normalized loss of each job, with its forecast and an 80 % band."""

    shows = ("losses", "forecasts", "bands")

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        super().__init__(scheduler)
        losses, forecasts, bands = self.sources
        kwargs = {"x_range": DataRange1d(default_span=20), **kwargs}
        self.root = _figure("Remaining loss of each job, and its forecast", **kwargs)
        # With no job there is nothing to scale to.
        self.root.y_range = Range1d(-0.05, 1.1)
        self.root.line([0, 0], [-0.05, 1.1], color="#888888", line_dash="dotted")  # now
        at = {"xs": "x", "ys": "y", "color": "color"}
        self.root.patches(**at, fill_alpha=0.12, line_alpha=0.0, source=bands)
        self.root.multi_line(**at, line_dash="dashed", alpha=0.7, source=forecasts)
        lines = self.root.multi_line(**at, line_width=2, source=losses)
        self.root.add_tools(HoverTool(renderers=[lines], tooltips=[("job", "@job")]))
        self.root.yaxis.axis_label = "part of its range"


class Threads(_Plot):
    """Threads that each job used over time, stacked."""

    shows = ("threads",)

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        super().__init__(scheduler)
        title = "Threads used by each job (core-seconds per second over ten epochs, stacked)"
        self.root = _figure(title, x_range=DataRange1d(default_span=20), **kwargs)
        areas = self.root.patches(
            xs="x", ys="y", color="color", fill_alpha=0.8, line_width=0, source=self.sources[0]
        )
        self.root.add_tools(HoverTool(renderers=[areas], tooltips=[("job", "@job")]))
        self.root.yaxis.axis_label = "threads"
        self.all = Span(dimension="width", line_dash="dotted", line_color="#888888")
        self.root.add_layout(self.all)
        # Now, which gives an empty plot its axes.
        self.now = self.root.line([0, 0], [0, 0], color="#888888", line_dash="dotted")

    def _show(self, data: BoardData) -> None:
        super()._show(data)
        if self.all.location != data.capacity:
            self.all.location = data.capacity
            self.now.data_source.data = {"x": [0, 0], "y": [0, data.capacity]}


class Shares(_Plot):
    """Threads that each owner, or job, deserves, got, lent, borrowed and left idle."""

    shows = ()

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        super().__init__(scheduler)
        self.bars = ColumnDataSource(_bars(BoardData().shares))
        self.names = FactorRange(factors=[])
        kwargs = {"x_axis_label": "threads", **kwargs}
        self.root = _figure("Deserved, got, lent, borrowed and idle", y_range=self.names, **kwargs)
        self.root.add_layout(BokehLegend(border_line_alpha=0), "right")
        # One glyph for all of them: each one more makes the page slower to open.
        at = {"y": "y", "right": "right", "color": "color", "legend_field": "what"}
        self.root.hbar(**at, height=0.14, source=self.bars)

    def _show(self, data: BoardData) -> None:
        names = data.shares["name"][::-1]
        if self.names.factors != names:
            self.names.factors = names
        self.root.legend.visible = bool(names)
        self.bars.data = _bars(data.shares)


def _bars(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return five bars for each owner or job, one below the other."""
    bars = [
        (key, color, (name, 0.32 - 0.16 * i), threads)
        for i, (key, color) in enumerate(COLORS.items())
        for name, threads in zip(columns["name"], columns[key], strict=True)
    ]
    parts = zip(*bars, strict=True) if bars else [()] * 4
    return dict(zip(("what", "color", "y", "right"), map(list, parts), strict=True))


class UsagePlot(_Plot):
    """Core-seconds of each owner per day, stacked."""

    shows = ("usage",)

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        super().__init__(scheduler)
        # Without data a range of its own would have no ends, and the browser make ticks for ever.
        today = time() * 1000
        days = Range1d(start=today - 1000 * DAY_SECONDS, end=today + 1000 * DAY_SECONDS)
        kwargs = {"x_axis_type": "datetime", "x_axis_label": "day (UTC)", "x_range": days, **kwargs}
        self.root = _figure("Core-seconds used per day by each owner", **kwargs)
        self.root.xaxis.ticker = DaysTicker(days=list(range(1, 32)))
        day = dict.fromkeys(("days", "months", "years"), "%b %d")
        self.root.xaxis.formatter = DatetimeTickFormatter(**day)
        at = {key: key for key in ("left", "right", "bottom", "top", "color")}
        small = {"label_text_font_size": "11px", "glyph_height": 12, "spacing": 0, "padding": 2}
        self.root.add_layout(BokehLegend(border_line_alpha=0, **small), "right")
        boxes = self.root.quad(**at, line_width=0, legend_field="owner", source=self.sources[0])
        tips = [("owner", "@owner"), ("day", "@day{%F}"), ("up to", "@top{0} core-seconds")]
        hover = HoverTool(renderers=[boxes], tooltips=tips, formatters={"@day": "datetime"})
        self.root.add_tools(hover)

    def _show(self, data: BoardData) -> None:
        left, right = data.usage["left"], data.usage["right"]
        self.root.legend.visible = bool(left)
        days = self.root.x_range
        if left and (days.start, days.end) != (min(left), max(right)):
            days.update(start=min(left), end=max(right))
        super()._show(data)


class JobsPlot(_Plot):
    """Table of all jobs with the reason why each has what it has."""

    shows = ("jobs",)

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        super().__init__(scheduler)
        swatch = HTMLTemplateFormatter(
            template='<div style="background:<%= value %>;height:1em;width:1em"></div>'
        )
        # The title shows on hovering what a narrow column cuts.
        text = HTMLTemplateFormatter(
            template='<span style="color:<%= ink %>" title="<%- value %>"><%- value %></span>'
        )
        columns = [TableColumn(field="color", title="", width=25, formatter=swatch)]
        for each in COLUMNS:
            about = {"field": each.name, "title": each.title or each.name, "width": each.board}
            name = HTMLTemplateFormatter(template=NAME) if each.name == "job" else text
            columns.append(TableColumn(**about, formatter=name))
        data = self.sources[0]
        self.root = DataTable(source=data, columns=columns, index_position=None, **kwargs)

    def _show(self, data: BoardData) -> None:
        super()._show(data)
        for each in self.root.columns[1:]:  # a small window has no room for empty columns
            each.visible = not data.jobs["job"] or any(data.jobs[each.field])
        draw_again(self.root)


class _Text(DashboardComponent):  # type: ignore[misc]
    """Part of the board that is HTML, made by `_text`."""

    styles: ClassVar[dict[str, str]]

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.root = Div(text="", disable_math=True, styles=self.styles, **kwargs)
        self.update()

    def update(self) -> None:
        """Read the newest data."""
        text = self._text(data_of(self.scheduler))
        if self.root.text != text:
            self.root.text = text

    def _text(self, data: BoardData) -> str:
        raise NotImplementedError


class Note(_Text):
    """Line of text above the plots, red if something is broken."""

    styles: ClassVar = {"padding": "4px 12px"}

    def _text(self, data: BoardData) -> str:
        note = escape(data.note)
        if data.broken:
            note = f'<b style="color:{RED}" role="alert">{note}</b>'
        elif note == "No job is running.":
            note += f" {NO_JOBS}"
        elif not note:
            note = HELD
        links = ", ".join(
            f'<a href="{SEARCH}?name={quote(name, safe="")}">{escape(name)}</a>'
            for name in data.searches
        )
        return (
            f"{escape(data.head)} {f'Models of searches: {links}. ' if links else ''}{note}".strip()
        )


class Legend(_Text):
    """Name of each job beside its color, by owner."""

    styles: ClassVar = {"padding": "0 12px", "max-height": "120px", "overflow-y": "auto"}

    def _text(self, data: BoardData) -> str:
        parts, before = [], ""
        for name, owner, color, outcome in zip(*data.legend.values(), strict=True):
            if owner != before:
                parts.append(f'<b style="color:#666666">{escape(owner)}</b>')
                before = owner
            swatch = f'<span style="background:{color};{SWATCH}"></span>' if color else ""
            name = escape(shortened(name, 40))
            if outcome:
                name = f'<span style="color:{GREY}">{name} ({outcome})</span>'
            parts.append(f'<span style="white-space:nowrap">{swatch}{name}</span>')
        return f'<div style="{FLOW}">{"".join(parts)}</div>' if parts else ""


def board(scheduler: Scheduler, extra: dict[str, Any], doc: Document) -> None:
    """Fill the document of the whole board; `extra` are variables of the dashboard's template."""
    note = Note(scheduler, sizing_mode="stretch_width")
    legend = Legend(scheduler, sizing_mode="stretch_width")
    for component in (note, legend):
        add_periodic_callback(doc, component, INTERVAL_MILLISECONDS)
    # A low window scrolls; without a minimum, plots would overlap.
    boxes = [row([], sizing_mode="stretch_both", min_height=220) for _ in range(2)]
    below = row([], sizing_mode="stretch_width", height=280)
    doc.add_root(column(note.root, legend.root, *boxes, below, sizing_mode="stretch_both"))
    waiting = iter(
        [
            (LossesPlot, boxes[0], {"sizing_mode": "stretch_both"}),
            (Threads, boxes[0], {"sizing_mode": "stretch_both"}),
            (Shares, boxes[1], {"sizing_mode": "stretch_both"}),
            (JobTaskStream, boxes[1], {"sizing_mode": "stretch_both"}),
            (JobsPlot, below, {"sizing_mode": "stretch_width", "height": 280}),
            (UsagePlot, below, {"width": 360, "height": 280}),
        ]
    )

    def add_next() -> None:
        """Add one plot: all of them at once would block the scheduler for a fifth of a second."""
        following: Any = next(waiting, None)
        if following is not None:
            kind, box, size = following
            component = kind(scheduler, **size)
            box.children = [*box.children, component.root]
            add_periodic_callback(doc, component, INTERVAL_MILLISECONDS)
            doc.add_next_tick_callback(partial(fill, component))

    def fill(component: Any) -> None:
        """Bring the data of a plot, in a step of their own."""
        component.update()
        doc.add_next_tick_callback(add_next)

    doc.add_next_tick_callback(add_next)
    doc.title = "Dask: Slaq"
    doc.template = env.get_template("simple.html")
    doc.template_variables.update(extra)
    doc.theme = BOKEH_THEME


def single_plot(
    scheduler: Scheduler, extra: dict[str, Any], plot: str, title: str, doc: Document
) -> None:
    """Draw one of `PLOTS` as a page of its own."""
    kinds = (LossesPlot, Threads, Shares, UsagePlot, JobsPlot, JobTaskStream)
    component: Any = dict(zip(PLOTS, kinds, strict=True))[plot](
        scheduler, sizing_mode="stretch_both"
    )
    component.update()
    legend = Legend(scheduler, sizing_mode="stretch_width")
    for each in (component, legend):
        add_periodic_callback(doc, each, INTERVAL_MILLISECONDS)
    doc.add_root(column(legend.root, component.root, sizing_mode="stretch_both"))
    doc.title = f"Dask: {title}"
    doc.theme = BOKEH_THEME


def draw_again(table: DataTable) -> None:
    """Let a table show its new data: Bokeh 3.9 does not if it has as many rows as before."""
    (number,) = table.view.tags or [0]
    table.view.tags = [number + 1]  # what follows a change of the view shows the data


def _figure(title: str, **kwargs: Any) -> Any:
    kwargs = {"x_axis_label": SECONDS, "min_height": 220, **kwargs}
    return figure(title=title, tools="xpan,xwheel_zoom,reset", toolbar_location="right", **kwargs)
