"""Documents of the board: one page with everything, and single plots."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from bokeh.layouts import column, row
from bokeh.models import (
    ColumnDataSource,
    DataTable,
    Div,
    FactorRange,
    HoverTool,
    HTMLTemplateFormatter,
    Range1d,
    Span,
    TableColumn,
)
from bokeh.plotting import figure
from distributed.dashboard.components import add_periodic_callback
from distributed.dashboard.components.scheduler import BOKEH_THEME, env
from distributed.dashboard.components.shared import DashboardComponent

from dask_slaq.scheduler.board.data import data_of, empty
from dask_slaq.scheduler.board.task_stream import JobTaskStream

if TYPE_CHECKING:
    from bokeh.document import Document
    from distributed import Scheduler

__all__ = ["board", "single_plots"]

#: Milliseconds between two updates of a page.
INTERVAL = 1000
SECONDS = "seconds from now"
NO_JOBS = "Open one with dask_slaq.job(name) in a program that trains on this cluster."
COLORS = {"deserved": "#bbbbbb", "got": "#1f77b4", "lent": "#98df8a", "borrowed": "#ff9896"}


class Losses(DashboardComponent):  # type: ignore[misc]
    """Normalized loss of each job, with its forecast and an 80 % band."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        data = empty()
        self.shown: object = None  # the first update brings the data
        self.lines = ColumnDataSource(data.losses)
        self.forecasts = ColumnDataSource(data.forecasts)
        self.bands = ColumnDataSource(data.bands)
        self.root = _figure("Remaining loss of each job, and its forecast", **kwargs)
        # With no job there is nothing to scale to.
        self.root.y_range = Range1d(-0.05, 1.1)
        at = {"xs": "x", "ys": "y", "color": "color"}
        self.root.patches(**at, fill_alpha=0.12, line_alpha=0.0, source=self.bands)
        self.root.multi_line(**at, line_dash="dashed", alpha=0.7, source=self.forecasts)
        lines = self.root.multi_line(**at, line_width=2, source=self.lines)
        self.root.add_tools(HoverTool(renderers=[lines], tooltips=[("job", "@job")]))
        self.root.yaxis.axis_label = "part of the predicted range"

    def update(self) -> None:
        """Read the newest data."""
        data = data_of(self.scheduler)
        if data.losses is self.shown:
            return
        self.shown = data.losses
        self.lines.data = data.losses
        self.forecasts.data = data.forecasts
        self.bands.data = data.bands


class Threads(DashboardComponent):  # type: ignore[misc]
    """Threads that each job used over time, stacked."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.shown: object = None
        self.source = ColumnDataSource(empty().threads)
        title = "Threads used by each job (core-seconds per second over ten epochs, stacked)"
        self.root = _figure(title, **kwargs)
        areas = self.root.patches(
            xs="x", ys="y", color="color", fill_alpha=0.8, line_width=0, source=self.source
        )
        self.root.add_tools(HoverTool(renderers=[areas], tooltips=[("job", "@job")]))
        self.root.yaxis.axis_label = "threads"
        self.all = Span(dimension="width", line_dash="dotted", line_color="#888888")
        self.root.add_layout(self.all)

    def update(self) -> None:
        """Read the newest data."""
        data = data_of(self.scheduler)
        columns = data.threads
        if self.all.location != data.capacity:
            self.all.location = data.capacity
        if columns is not self.shown:
            self.shown = self.source.data = columns


class Shares(DashboardComponent):  # type: ignore[misc]
    """Threads that each owner, or job, deserves, got, lent and borrowed."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        columns = empty().shares
        self.shown: object = None
        self.source = ColumnDataSource(_bars(columns))
        self.names = FactorRange(factors=columns["name"][::-1])
        kwargs = {"x_axis_label": "threads", **kwargs}
        self.root = _figure("Deserved, got, lent and borrowed", y_range=self.names, **kwargs)
        # One glyph for all of them: each one more makes the page slower to open.
        at = {"y": "y", "right": "right", "color": "color", "legend_field": "what"}
        self.root.hbar(**at, height=0.18, source=self.source)
        self.root.legend.location = "bottom_right"
        self.root.legend.background_fill_alpha = 0.6

    def update(self) -> None:
        """Read the newest data."""
        columns = data_of(self.scheduler).shares
        if columns is self.shown:
            return
        self.shown = columns
        if self.names.factors != columns["name"][::-1]:
            self.names.factors = columns["name"][::-1]
        self.source.data = _bars(columns)


def _bars(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    """Return four bars for each owner or job, one below the other."""
    bars = [
        (key, color, (name, 0.3 - 0.2 * i), threads)
        for i, (key, color) in enumerate(COLORS.items())
        for name, threads in zip(columns["name"], columns[key], strict=True)
    ]
    parts = zip(*bars, strict=True) if bars else [()] * 4
    return dict(zip(("what", "color", "y", "right"), map(list, parts), strict=True))


class Usage(DashboardComponent):  # type: ignore[misc]
    """Core-seconds of each owner per day, stacked."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.shown: object = None
        self.source = ColumnDataSource(empty().usage)
        kwargs = {"x_axis_type": "datetime", "x_axis_label": "day (UTC)", **kwargs}
        self.root = _figure("Core-seconds used per day by each owner", **kwargs)
        at = {key: key for key in ("left", "right", "bottom", "top", "color")}
        boxes = self.root.quad(**at, line_width=0, source=self.source)
        tips = [("owner", "@owner"), ("day", "@day{%F}"), ("up to", "@top{0} core-seconds")]
        hover = HoverTool(renderers=[boxes], tooltips=tips, formatters={"@day": "datetime"})
        self.root.add_tools(hover)

    def update(self) -> None:
        """Read the newest data."""
        columns = data_of(self.scheduler).usage
        if columns is not self.shown:
            self.shown = self.source.data = columns


class Jobs(DashboardComponent):  # type: ignore[misc]
    """Table of all jobs with the reason why each has what it has."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.shown: object = None
        self.source = ColumnDataSource(empty().jobs)
        swatch = HTMLTemplateFormatter(
            template='<div style="background:<%= value %>;height:1em;width:1em"></div>'
        )
        widths = {"job": 300, "owner": 130, "state": 80, "iteration": 70, "loss": 90}
        columns = [TableColumn(field="color", title="", width=25, formatter=swatch)]
        columns += [TableColumn(field=key, title=key, width=width) for key, width in widths.items()]
        columns.append(TableColumn(field="eta", title="time to target", width=150))
        columns.append(TableColumn(field="ends", title="end", width=330))
        columns.append(TableColumn(field="reason", title="what it does or waits for", width=700))
        self.root = DataTable(
            source=self.source,
            columns=columns,
            index_position=None,
            **kwargs,
        )

    def update(self) -> None:
        """Read the newest data."""
        columns = data_of(self.scheduler).jobs
        if columns is not self.shown:
            self.shown = self.source.data = columns


class Note(DashboardComponent):  # type: ignore[misc]
    """Line of text above the plots."""

    def __init__(self, scheduler: Scheduler, **kwargs: Any) -> None:
        self.scheduler = scheduler
        self.root = Div(text="", disable_math=True, styles={"padding": "4px 12px"}, **kwargs)
        self.update()

    def update(self) -> None:
        """Read the newest data."""
        from html import escape

        data = data_of(self.scheduler)
        note = data.note
        hint = f" {NO_JOBS}" if note == "No job is running." else ""
        text = escape(f"{data.head} {note}{hint}".strip())
        if not note:
            text += (
                " Tasks that are held until a slot of their job is free appear as "
                "<i>no-worker</i>, hatched, on Dask's own pages."
            )
        if self.root.text != text:
            self.root.text = text


def board(scheduler: Scheduler, extra: dict[str, Any], doc: Document) -> None:
    """Fill the document of the whole board.

    Parameters
    ----------
    scheduler : distributed.Scheduler
    extra : dict
        Variables of the dashboard's template.
    doc : bokeh.document.Document
    """
    note = Note(scheduler, sizing_mode="stretch_width", height=24)
    add_periodic_callback(doc, note, INTERVAL)
    boxes = [row([], sizing_mode="stretch_both") for _ in range(2)]
    below = row([], sizing_mode="stretch_width", height=280)
    doc.add_root(column(note.root, *boxes, below, sizing_mode="stretch_both"))
    waiting = iter(
        [
            (Losses, boxes[0], {"sizing_mode": "stretch_both"}),
            (Threads, boxes[0], {"sizing_mode": "stretch_both"}),
            (Shares, boxes[1], {"sizing_mode": "stretch_both"}),
            (JobTaskStream, boxes[1], {"sizing_mode": "stretch_both"}),
            (Jobs, below, {"sizing_mode": "stretch_width", "height": 280}),
            (Usage, below, {"width": 360, "height": 280}),
        ]
    )

    def add_next() -> None:
        """Add one plot: all of them at once would block the scheduler for a fifth of a second."""
        following: Any = next(waiting, None)
        if following is not None:
            kind, box, size = following
            component = kind(scheduler, **size)
            box.children = [*box.children, component.root]
            add_periodic_callback(doc, component, INTERVAL)
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


def single_plots() -> Iterator[tuple[str, str, Callable[..., None]]]:
    """Yield the path, title and document function of every single plot."""
    kinds = {
        "loss": Losses,
        "threads": Threads,
        "shares": Shares,
        "usage": Usage,
        "jobs": Jobs,
        "task-stream": JobTaskStream,
    }
    for name, kind in kinds.items():
        title = f"Slaq {name.replace('-', ' ').title()}"
        yield f"individual-slaq-{name}", title, _single(kind, title)


def _single(kind: Callable[..., Any], title: str) -> Callable[..., None]:
    def document(scheduler: Scheduler, extra: dict[str, Any], doc: Document) -> None:
        component = kind(scheduler, sizing_mode="stretch_both")
        component.update()
        add_periodic_callback(doc, component, INTERVAL)
        doc.add_root(component.root)
        doc.title = f"Dask: {title}"
        doc.theme = BOKEH_THEME

    return document


def _figure(title: str, **kwargs: Any) -> Any:
    kwargs = {"x_axis_label": SECONDS, "min_height": 160, **kwargs}
    return figure(title=title, tools="xpan,xwheel_zoom,reset", toolbar_location="right", **kwargs)
