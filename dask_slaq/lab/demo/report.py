"""Report of a demo as one HTML file with Bokeh's charts, which needs no network."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from html import escape
from pathlib import Path
from typing import Any

import click
import numpy as np

from dask_slaq.lab.demo.local import NAMES, DemoRun, Options, Result, cluster, compare

#: Colors of the ways; of the five best models, and of all others; and of jobs.
WAYS = ("#999999", "#d55e00")
BEST, OTHER = ("#3b0f6f", "#2c6fbb", "#149c8f", "#58b947", "#a3a300"), "#f0c9a0"
JOBS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#7a5195", "#8c8c00", "#555555", "#b07d62", "#2f4b7c", "#ef5675",
)  # fmt: skip
CELL = "padding:0.25em 1.2em 0.25em 0;border-bottom:1px solid #ddd"


def show(demo: Callable[..., Result], options: Options, json_file: str | None, html: str) -> int:
    """Run a `demo` with its `options`, print the results, and write them to the files.

    The figures go to `json_file`, which may be "-" for stdout, the page to `html`. Returns 1 if a
    model or job failed, else 0.
    """
    # If the figures go to stdout, all other output goes to stderr.
    with redirect_stdout(sys.stderr if json_file == "-" else sys.stdout):
        with cluster() as client:
            found = demo(client, options)
        rows = compare(next(iter(found.figures.values())), found.shown)
        print()
        for label, *cells in rows:
            print(f"{label:36}{''.join(f'{cell:>17}' for cell in cells)}".rstrip())
        print(f"\n{found.verdict}\n")
        try:
            Path(html).write_text(page(found, rows), encoding="utf-8")
            print(f"Curves, and who had which thread when: {html}")
        except ImportError:
            print("For a page with all curves install bokeh: pip install 'dask-slaq[demo]'")
    if json_file:
        with click.open_file(json_file, "w", encoding="utf-8") as file:
            file.write(json.dumps(found.figures, indent=2) + "\n")
    failed = [(run.way, t) for run in found.runs for t in run.trainings if t.error]
    for way, training in failed:
        print(f"\n{training.name} failed ({way}):\n{training.error}", file=sys.stderr)
    return 1 if failed else 0


def page(found: Result, rows: Sequence[Sequence[str]]) -> str:
    """Return the report as HTML on what a demo has `found`, with the `rows` of its comparison."""
    from bokeh.embed import file_html
    from bokeh.layouts import column, gridplot, row
    from bokeh.models import Div
    from bokeh.resources import INLINE

    runs = found.runs
    losses = [loss for run in runs for t in run.trainings for loss in t.losses] or [1.0]
    low = max(0.9 * min(losses), 1e-3)
    ranges = {
        "x_range": (0.0, max(run.seconds for run in runs) or 1.0),
        "y_range": (low, max(min(1.1 * max(losses), 3.0), 2 * low)),
    }
    order = {t.name: t.loss for run in runs for t in run.trainings}
    colors = dict(zip(order, JOBS * len(order), strict=False))
    if found.ranked:
        ranking = sorted(order, key=order.__getitem__)
        colors = dict(zip(ranking, [*BEST, *[OTHER] * len(order)], strict=False))
    cells = (
        "<tr>" + "".join(f'<td style="{CELL}">{escape(cell)}</td>' for cell in each) + "</tr>"
        for each in rows
    )
    text = f"<h1>dask slaq demo</h1><p>{escape(found.about)}</p>"
    text += f"<table>{''.join(cells)}</table><p><b>{escape(found.verdict)}</b></p>"
    head = [Div(text=text, disable_math=True, width=560)]
    if found.ranked:
        head.append(_ready(runs, ranges))
    charts = [[draw(run, colors, ranges) for run in runs] for draw in (_curves, _threads)]
    for run_of, chart in zip(_titles(runs), charts[0], strict=True):
        chart.title.text = f"Loss: {run_of}"
    for run_of, chart in zip(_titles(runs), charts[1], strict=True):
        chart.title.text = f"Who had which thread: {run_of}"
    shown = [chart for each in charts for chart in each if chart.renderers]
    return file_html(
        column(row(*head), gridplot(shown, ncols=2, toolbar_location=None)),
        INLINE,
        "dask slaq demo",
    )


def _figure(**kwargs: Any) -> Any:
    from bokeh.plotting import figure

    return figure(width=560, height=260, x_axis_label="seconds", tools="", **kwargs)


def _titles(runs: Sequence[DemoRun]) -> list[str]:
    """Return what to call each of `runs`: by its way, and which one it is if there are two."""
    ways, titles = [run.way for run in runs], []
    for number, way in enumerate(ways):
        turn = ", second" if way in ways[:number] else ", first"
        titles.append(NAMES.get(way, way) + turn * (ways.count(way) > 1))
    return titles


def _ready(runs: Sequence[DemoRun], ranges: dict[str, Any]) -> Any:
    """Draw the lowest loss among the models that are ready, as a step line per run."""
    title = "Lowest loss among the models that are ready"
    chart = _figure(title=title, y_axis_type="log", **ranges)
    color_of = dict(zip(dict.fromkeys(run.way for run in runs), WAYS, strict=True))
    for run in runs:
        ready = sorted((t.done - run.start, t.loss) for t in run.trainings if t.curve and t.done)
        if ready:
            x, losses = np.array([*ready, (ranges["x_range"][1], np.inf)]).T
            best = np.minimum.accumulate(losses)
            line = {"line_color": color_of[run.way], "line_width": 2.6, "legend_label": run.way}
            chart.step(x, best, mode="after", **line)
    return chart


def _curves(run: DemoRun, colors: dict[str, str], ranges: dict[str, Any]) -> Any:
    from bokeh.models import HoverTool

    chart = _figure(y_axis_type="log", title="", **ranges)
    begun = [t for t in sorted(run.trainings, key=lambda t: -t.loss) if t.curve]  # the best on top
    chart.multi_line(
        *("xs", "ys"),
        color="color",
        source={
            "xs": [[at - run.start for at, _ in t.curve] for t in begun],
            "ys": [t.losses for t in begun],
            "color": [colors[t.name] for t in begun],
            "name": [t.name for t in begun],
        },
    )
    chart.add_tools(HoverTool(tooltips="@name"))
    return chart


def _threads(run: DemoRun, colors: dict[str, str], ranges: dict[str, Any]) -> Any:
    from bokeh.models import HoverTool

    spans = [(t.name, *span) for t in run.trainings for span in t.spans]
    rows = {w: f"worker {n}" for n, w in enumerate(sorted({worker for _, worker, *_ in spans}))}
    chart = _figure(title="", x_range=ranges["x_range"], y_range=list(rows.values()))
    if spans:
        chart.hbar(
            y="y",
            left="left",
            right="right",
            height=0.8,
            color="color",
            source={
                "y": [rows[worker] for _, worker, _, _ in spans],
                "left": [start - run.start for _, _, start, _ in spans],
                "right": [stop - run.start for *_, stop in spans],
                "color": [colors[name] for name, *_ in spans],
                "name": [name for name, *_ in spans],
            },
        )
        chart.add_tools(HoverTool(tooltips="@name"))
    return chart
