"""Report of a demo as one HTML file with inline charts, which needs no network."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import redirect_stdout
from html import escape
from pathlib import Path

import click
import numpy as np

from dask_slaq.lab.demo.local import NAMES, DemoRun, Options, Result, cluster, compare

_WAYS = ("#999999", "#d55e00")
#: Of the five best models; the others fade from the first to the second of _OTHERS.
_BEST = ("#3b0f6f", "#2c6fbb", "#149c8f", "#58b947", "#a3a300")
_OTHERS = np.array([[242, 190, 120], [240, 228, 224]])
_JOBS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00",
    "#7a5195", "#8c8c00", "#555555", "#b07d62", "#2f4b7c", "#ef5675",
)  # fmt: skip
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px; margin: 1.5em auto; }
h1, h2, h3, p { margin: 0.3em 0; }
h1 { font-size: 1.5em; } h2 { font-size: 1.15em; } h3 { font-size: 1em; }
table { border-collapse: collapse; margin: 0.8em 0; }
td, th { padding: 0.25em 1.2em 0.25em 0; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
.row { display: flex; flex-wrap: wrap; gap: 1em; }
.row > div { flex: 1 1 440px; min-width: 0; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
svg path { stroke: #e4e4e4; }
svg polyline { fill: none; stroke-linejoin: round; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.35em; }
"""
#: Edges of the plot in a picture 560 wide.
_LEFT, _RIGHT, _TOP = 62, 548, 12


class Chart:
    """SVG chart over time up to `stop`: of losses in a range, on a log scale, or named `rows`."""

    def __init__(
        self, stop: float, losses: tuple[float, float] = (1, 10), rows: Sequence[str] = ()
    ) -> None:
        self.stop, self.losses, self.rows = stop, losses, rows
        self.bottom = _TOP + (max(90, 16 * len(rows)) if rows else 214)
        self._marks = [f'<text x="290" y="{self.bottom + 34}">time (s)</text>']
        step = 10.0 ** math.floor(math.log10(stop / 5))
        step *= next(m for m in (1, 2, 5, 10) if stop / (step * m) <= 8)
        for value in np.arange(0, stop * 1.001, step):
            x, _ = self.at(value, 1)
            label = f'<text x="{x}" y="{self.bottom + 16}" text-anchor="middle">{value:g}</text>'
            self._marks.append(f'<path d="M{x} {_TOP}V{self.bottom}"/>{label}')
        ticks = [(row + 0.5, name) for row, name in enumerate(rows)]
        if not rows:
            marks = [m * 10.0**decade for decade in range(-6, 6) for m in (1, 2, 5)]
            ticks = [(value, f"{value:g}") for value in marks if losses[0] <= value <= losses[1]]
        for value, name in ticks:
            y = self.at(0, value)[1]
            line = "" if rows else f'<path d="M{_LEFT} {y}H{_RIGHT}"/>'
            label = f'<text x="{_LEFT - 6}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
            self._marks.append(line + label)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel coordinates of the point `x`, `y`."""
        low, high = self.losses
        up = math.log(min(max(y, low), high) / low) / math.log(high / low)
        if self.rows:
            up = 1 - y / len(self.rows)
        across = _LEFT + (_RIGHT - _LEFT) * x / self.stop
        return round(across, 1), round(self.bottom - (self.bottom - _TOP) * up, 1)

    def line(
        self, points: Iterable[tuple[float, float]], color: str, name: str, width: float
    ) -> None:
        """Draw a line through `points`, with `name` as tooltip."""
        path = " ".join(f"{x},{y}" for x, y in (self.at(*point) for point in points))
        self._marks.append(
            f'<polyline points="{path}" stroke="{color}" stroke-width="{width}">'
            f"<title>{escape(name)}</title></polyline>"
        )

    def box(self, start: float, stop: float, row: int, color: str, name: str) -> None:
        """Fill a `row` from `start` to `stop`, with `name` as tooltip."""
        (left, top), (right, bottom) = self.at(start, row + 0.1), self.at(stop, row + 0.9)
        self._marks.append(
            f'<rect x="{left}" y="{top}" width="{max(right - left, 0.3):.1f}" '
            f'height="{bottom - top:.1f}" fill="{color}"><title>{escape(name)}</title></rect>'
        )

    def svg(self) -> str:
        """Return the chart as an ``<svg>`` element."""
        size = f"0 0 560 {self.bottom + 44}"
        return f'<svg viewBox="{size}" role="img">{"".join(self._marks)}</svg>'


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
        Path(html).write_text(page(found, rows), encoding="utf-8")
        print(f"\n{found.verdict}\n\nCurves, and who had which thread when: {html}")
    if json_file:
        with click.open_file(json_file, "w", encoding="utf-8") as file:
            file.write(json.dumps(found.figures, indent=2) + "\n")
    failed = [(run.way, t) for run in found.runs for t in run.trainings if t.error]
    for way, training in failed:
        print(f"\n{training.name} failed ({way}):\n{training.error}", file=sys.stderr)
    return 1 if failed else 0


def page(found: Result, rows: Sequence[Sequence[str]]) -> str:
    """Return the report as HTML on what a demo has `found`, with the `rows` of its comparison."""
    runs, ranked = found.runs, found.ranked
    losses = [loss for run in runs for t in run.trainings for _, loss in t.curve] or [1.0]
    low = max(0.9 * min(losses), 1e-3)
    span = low, max(min(1.1 * max(losses), 3.0), 2 * low)
    stop = max(run.seconds for run in runs) or 1.0
    names = [training.name for training in runs[0].trainings]
    colors = dict(zip(names, _JOBS * len(names), strict=False))
    key, ready = _legend(names, colors.values()), ""
    if ranked:
        final = {t.name: t.loss for run in runs for t in run.trainings}
        others = max(2, len(final) - len(_BEST))
        fades = np.linspace(_OTHERS[0], _OTHERS[1], others).round().astype(int)
        palette = [*_BEST, *("#" + bytes(rgb.tolist()).hex() for rgb in fades)]
        colors = dict(zip(sorted(final, key=final.__getitem__), palette, strict=False))
        best = ("best", "second", "third", "fourth", "fifth", "others", "worst")
        key = _legend(best, [*palette[:6], palette[-1]])
        chart = Chart(stop, span)
        ways_of = dict(zip(dict.fromkeys(run.way for run in runs), _WAYS, strict=True))
        for run in runs:
            chart.line(_ready(run, stop), ways_of[run.way], run.way, 2.6)
        ways = _legend(ways_of, ways_of.values())
        ready = f"<h3>Lowest loss among the models that are ready</h3>{ways}{chart.svg()}"
    heading, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>dask slaq demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>dask slaq demo</h1><p>{escape(found.about)}</p>
<div class="row"><div><table><tr>{heading.replace("td>", "th>")}</tr>
{"".join(f"<tr>{row}</tr>" for row in body)}</table><p>{escape(found.verdict)}</p></div>
<div>{ready}</div></div>
<h2>Loss over time</h2>{key}{_panels(runs, lambda run: _curves(run, stop, span, colors))}
<h2>Who had which thread</h2>{_panels(runs, lambda run: _threads(run, stop, colors, ranked))}
</body></html>
"""


def _legend(names: Iterable[str], colors: Iterable[str]) -> str:
    items = (
        f'<span><i style="background:{color}"></i>{escape(name)}</span>'
        for name, color in zip(names, colors, strict=True)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def _panels(runs: Sequence[DemoRun], draw: Callable[[DemoRun], str]) -> str:
    titles = zip(_titles(runs), runs, strict=True)
    drawn = "".join(f"<div><h3>{escape(title)}</h3>{draw(run)}</div>" for title, run in titles)
    return f'<div class="row">{drawn}</div>'


def _titles(runs: Sequence[DemoRun]) -> list[str]:
    """Return what to call each of `runs`: by its way, and which one it is if there are two."""
    ways, titles = [run.way for run in runs], []
    for number, way in enumerate(ways):
        turn = ", second" if way in ways[:number] else ", first"
        titles.append(NAMES.get(way, way) + turn * (ways.count(way) > 1))
    return titles


def _ready(run: DemoRun, stop: float) -> list[tuple[float, float]]:
    """Return a step line of the lowest loss among the models that are ready."""
    ready = sorted((t.done - run.start, t.loss) for t in run.trainings if t.curve and t.done)
    ends = [at for at, _ in ready for _ in range(2)][1:]
    best = np.minimum.accumulate([loss for _, loss in ready]).repeat(2).tolist()
    return list(zip([*ends, stop], best, strict=False))


def _curves(run: DemoRun, stop: float, span: tuple[float, float], colors: dict[str, str]) -> str:
    chart = Chart(stop, span)
    for training in sorted(run.trainings, key=lambda t: -t.loss):  # the best over the others
        color = colors[training.name]
        points = [(at - run.start, loss) for at, loss in training.curve]
        chart.line(points, color, training.name, 1.8 if color in _BEST else 1.2)
    return chart.svg()


def _threads(run: DemoRun, stop: float, colors: dict[str, str], by_worker: bool) -> str:
    """Draw what ran when: a row per worker, or where that is too much to see, per job."""
    workers = sorted({worker for training in run.trainings for worker, _, _ in training.spans})
    names = [f"worker {n}" for n in range(len(workers))] if by_worker else list(colors)
    chart = Chart(stop, rows=names or ["none"])
    for training in run.trainings:
        joined: list[tuple[str, float, float]] = []  # what goes on within 20 ms is one box
        for worker, start, end in sorted(training.spans):
            if joined and joined[-1][0] == worker and start - joined[-1][2] < 0.02:
                start = joined.pop()[1]
            joined.append((worker, start, end))
        for worker, start, end in joined:
            row = workers.index(worker) if by_worker else names.index(training.name)
            color = colors[training.name]
            chart.box(start - run.start, end - run.start, row, color, training.name)
    return chart.svg()
