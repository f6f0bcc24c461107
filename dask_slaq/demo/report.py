"""Report of a demo as one HTML file with inline charts, which needs no network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from html import escape

import numpy as np

from dask_slaq.demo.charts import Axis, Chart
from dask_slaq.demo.local import Run, Training

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
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 1em 0 0.2em; }
h3 { font-size: 1em; margin: 0.2em 0; }
p { margin: 0.3em 0; }
table { border-collapse: collapse; margin: 0.8em 0; }
td, th { padding: 0.25em 1.2em 0.25em 0; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
.row { display: flex; flex-wrap: wrap; gap: 1em; }
.row > div { flex: 1 1 440px; min-width: 0; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
svg .grid { stroke: #e4e4e4; }
svg polyline { fill: none; stroke-linejoin: round; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.35em; }
"""


def page(
    about: str, runs: Sequence[Run], rows: Sequence[Sequence[str]], verdict: str, ranked: bool
) -> str:
    """Return a report as HTML.

    Parameters
    ----------
    about : str
        What was trained, in a sentence.
    runs : sequence of Run
    rows : sequence of sequence of str
        Cells of the comparison; the first row is the heading.
    verdict : str
    ranked : bool
        Whether the trainings compete: the page then shows when the best were ready, and colours
        them by rank.
    """
    losses = [loss for run in runs for t in run.trainings for _, loss in t.curve] or [1.0]
    axis = Axis("loss", min(max(losses), 3.0) * 1.01, 0.9 * min(losses))
    time = Axis("time (s)", max(run.seconds for run in runs) or 1.0)
    names = [training.name for training in runs[0].trainings]
    colors = dict(zip(names, _JOBS * len(names), strict=False))
    key, ready = _legend(names, list(colors.values())), ""
    if ranked:
        final = {t.name: t.loss for run in runs for t in run.trainings}
        fades = np.linspace(*_OTHERS, max(2, len(final) - len(_BEST))).round().astype(int)
        palette = [*_BEST, *("#" + bytes(rgb.tolist()).hex() for rgb in fades)]
        colors = dict(zip(sorted(final, key=final.__getitem__), palette, strict=False))
        best = ("best", "second", "third", "fourth", "fifth", "others", "worst")
        key = _legend(best, [*palette[:6], palette[-1]])
        chart = Chart(time, axis)
        for run, color in zip(runs, _WAYS, strict=True):
            chart.line(_ready(run, time.stop), color, run.way, 2.6)
        ways = _legend([run.way for run in runs], _WAYS)
        ready = f"<h3>Lowest loss among the models that are ready</h3>{ways}{chart.svg()}"
    heading, *body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>dask slaq demo</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>{_STYLE}</style></head>
<body><h1>dask slaq demo</h1><p>{escape(about)}</p>
<div class="row"><div><table><tr>{heading.replace("td>", "th>")}</tr>
{"".join(f"<tr>{row}</tr>" for row in body)}</table><p>{escape(verdict)}</p></div>
<div>{ready}</div></div>
<h2>Loss over time</h2>{key}{_panels(runs, lambda run: _curves(run, time, axis, colors))}
<h2>Who had which thread</h2>{_panels(runs, lambda run: _threads(run, time, colors))}
</body></html>
"""


def _legend(names: Sequence[str], colors: Sequence[str]) -> str:
    items = (
        f'<span><i style="background:{color}"></i>{escape(name)}</span>'
        for name, color in zip(names, colors, strict=True)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def _panels(runs: Sequence[Run], draw: Callable[[Run], str]) -> str:
    drawn = (f"<div><h3>{escape(run.way)}</h3>{draw(run)}</div>" for run in runs)
    return f'<div class="row">{"".join(drawn)}</div>'


def _ready(run: Run, stop: float) -> list[tuple[float, float]]:
    """Return a step line of the lowest loss among the models that are ready."""
    points: list[tuple[float, float]] = []
    for at, loss in sorted(
        (t.done - run.start, t.loss) for t in run.trainings if t.curve and t.done
    ):
        before = points[-1][1] if points else loss
        points += [(at, before), (at, min(before, loss))]
    return [*points, (stop, points[-1][1])] if points else []


def _curves(run: Run, time: Axis, loss: Axis, colors: dict[str, str]) -> str:
    chart = Chart(time, loss)
    for training in sorted(run.trainings, key=lambda t: -t.loss):  # the best over the others
        color = colors[training.name]
        points = [(at - run.start, min(value, loss.stop)) for at, value in training.curve]
        chart.line(points, color, training.name, 1.8 if color in _BEST else 1.2)
    return chart.svg()


def _threads(run: Run, time: Axis, colors: dict[str, str]) -> str:
    workers = sorted({worker for training in run.trainings for worker, _, _ in training.spans})
    rows = Axis("", max(1, len(workers)), rows=[f"worker {n}" for n in range(len(workers))])
    chart = Chart(time, rows, height=150)
    for training in run.trainings:
        for worker, start, stop in _joined(training):
            row, color = workers.index(worker), colors[training.name]
            chart.box(start - run.start, stop - run.start, row, color, training.name)
    return chart.svg()


def _joined(training: Training) -> list[tuple[str, float, float]]:
    """Return the spans of a training; those that follow each other within 20 ms are one."""
    found: list[tuple[str, float, float]] = []
    for worker, start, stop in sorted(training.spans):
        if found and found[-1][0] == worker and start - found[-1][2] < 0.02:
            start = found.pop()[1]
        found.append((worker, start, stop))
    return found
