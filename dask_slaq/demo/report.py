"""Report of a demo as one HTML file with inline charts, which needs no network."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import pairwise
from typing import Any

import numpy as np

from dask_slaq.demo import charts
from dask_slaq.demo import metrics as compare
from dask_slaq.demo.charts import Axis, Chart
from dask_slaq.demo.metrics import Run

#: Width of the bins in the allocation charts, in seconds.
BIN = 0.5

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; color: #222; max-width: 1180px;
       margin: 2em auto; padding: 0 1em; }
h1 { font-size: 1.5em; margin-bottom: 0; }
h2 { font-size: 1.15em; margin: 1.8em 0 0.3em; }
h3 { font-size: 1em; font-weight: 600; margin: 0.4em 0; }
p { max-width: 48em; margin: 0.4em 0; }
table { border-collapse: collapse; margin: 1em 0; }
td, th { padding: 0.25em 1.2em 0.25em 0; text-align: right; border-bottom: 1px solid #ddd; }
td:first-child, th:first-child { text-align: left; }
.row { display: flex; flex-wrap: wrap; gap: 1em; }
.row > div { flex: 1 1 440px; min-width: 0; }
svg { width: 100%; height: auto; }
svg text { font: 12px system-ui, sans-serif; fill: #444; }
svg .note { font-size: 11px; fill: #666; }
svg .grid { stroke: #e4e4e4; }
svg .rule { stroke: #888; stroke-dasharray: 4 3; }
.bars { max-width: 760px; }
.legend span { margin-right: 1.2em; white-space: nowrap; }
.legend i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.35em; }
"""


def page(runs: Sequence[Run], result: dict[str, Any]) -> str:
    """Return the report as HTML.

    Parameters
    ----------
    runs : sequence of Run
        One per policy.
    result : dict
        Metrics of the runs, from `metrics.figures`.
    """
    policies = [run.policy for run in runs]
    jobs = [record.training.name for record in runs[0].records]
    stop = max(run.makespan for run in runs) or 1.0
    lowest = compare.lowest_losses(runs)
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>dask slaq demo: {escape(" and ".join(policies))}</title>
<style>{_STYLE}</style>
</head>
<body>
<h1>dask slaq demo</h1>
<p>{len(jobs)} dask-ml training jobs on one cluster of {runs[0].threads} threads, the same jobs
and arrivals under each policy (seed {runs[0].seed}).</p>
{_comparison(result)}
<h2>Time from a job's arrival to 90 % of its loss reduction</h2>
{charts.legend(policies)}
<div class="bars">{_times(result)}</div>
<h2>Loss of each job over time</h2>
<p>Loss still to fall, as a fraction of what the job gains in all. Each line starts when its job
arrives and ends with its last iteration.</p>
{charts.legend(jobs)}
<div class="row">{_panels(runs, lambda run: _curves(run, lowest, stop))}</div>
<h2>What the workers computed</h2>
<p>Threads that computed for each job, stacked, averaged over {BIN:g} s.</p>
{charts.legend(jobs)}
<div class="row">{_panels(runs, lambda run: _allocation(run, jobs, stop))}</div>
</body>
</html>
"""


def _panels(runs: Sequence[Run], draw: Any) -> str:
    return "".join(f"<div><h3>{escape(run.policy)}</h3>{draw(run)}</div>" for run in runs)


def _comparison(result: dict[str, Any]) -> str:
    heading, *rows = compare.rows(result)
    cells = "".join(f"<th>{escape(cell)}</th>" for cell in heading)
    lines = ["<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows]
    return f"<table><tr>{cells}</tr>{''.join(lines)}</table>"


def _times(result: dict[str, Any]) -> str:
    policies = result["policies"]
    of_job: dict[str, list[float | None]] = {}
    for figures in policies.values():
        for job in figures["jobs"]:
            of_job.setdefault(job["name"], []).append(job["t90_s"])
    means = ("mean", [figures["t90_mean_s"] for figures in policies.values()])
    return charts.bars([*of_job.items(), means], list(policies))


def _curves(run: Run, lowest: dict[str, float], stop: float) -> str:
    chart = Chart(
        f"Loss of each job under {run.policy}",
        Axis("time (s)", stop),
        Axis("loss still to fall (fraction)", 1.0),
    )
    chart.rule(0.1, "90 % reached")
    for number, record in enumerate(run.records):
        if record.losses and record.arrived is not None:
            name = record.training.name
            times = [record.arrived, *(at for at, _ in record.losses)]
            left = np.concatenate([[1.0], compare.remaining(record, lowest[name])])
            points = [(at - run.start, float(y)) for at, y in zip(times, left, strict=True)]
            chart.line(points, charts.color(number), name)
    return chart.svg()


def _allocation(run: Run, jobs: Sequence[str], stop: float) -> str:
    chart = Chart(
        f"Threads that computed for each job under {run.policy}",
        Axis("time (s)", stop),
        Axis("threads", run.threads),
    )
    base = np.zeros(int(np.ceil(stop / BIN)))
    for number, name in enumerate(jobs):
        top = base + threads_used(run, name, len(base))
        chart.area(_steps(top, stop), _steps(base, stop), charts.color(number), name)
        base = top
    return chart.svg()


def threads_used(run: Run, job: str, bins: int) -> np.ndarray:
    """Return the mean number of threads that computed for a job in each bin of `BIN` seconds.

    Parameters
    ----------
    run : Run
    job : str
    bins : int
        Number of bins from the start of the run.

    Returns
    -------
    (bins,) array
    """
    edges = run.start + BIN * np.arange(bins + 1)
    used = np.zeros(bins)
    for computation in run.computations:
        if computation.job == job:
            inside = np.clip([computation.start, computation.stop], edges[0], edges[-1])
            done = np.clip(edges, *inside)
            used += np.diff(done)
    return used / BIN


def _steps(heights: np.ndarray, stop: float) -> list[tuple[float, float]]:
    """Return a step line with the height of each bin."""
    edges = np.minimum(BIN * np.arange(len(heights) + 1), stop)
    return [
        (float(x), float(y)) for y, pair in zip(heights, pairwise(edges), strict=True) for x in pair
    ]
