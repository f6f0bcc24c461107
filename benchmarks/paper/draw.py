"""Pictures of the Datasets: one function per figure, which shows only what the Dataset holds."""

from __future__ import annotations

from textwrap import fill
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import label

COLORS = {
    "fair": "#2a6f97", "slaq2017": "#e09f3e", "first-to-target": "#c1121f", "ours": "#c1121f",
    "strawman": "#8d99ae", "plain fit": "#2a6f97", "true loss": "#000000",
}  # fmt: skip
MARKERS = "os^Dv<>Pp"


def _picture(data: xr.Dataset, width: float, panels: int = 1, rows: int = 1) -> tuple[Any, Any]:
    """Make a figure, `width` inches wide, with the Dataset's title. Returns it and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2 if rows == 1 else 6.0), layout="constrained", dpi=110)
    figure.suptitle(f"Figure {data.attrs['figure']}: {data.attrs['title']}", fontsize=12)
    return figure, np.atleast_1d(figure.subplots(rows, panels)).ravel().tolist()


def _finish(axes: Any, x: xr.DataArray, y: xr.DataArray) -> None:
    """Add labels with units, a light grid and a legend."""
    axes.set(xlabel=label(x), ylabel=label(y))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(fontsize=8, frameon=False)


def _lines(axes: Any, array: xr.DataArray, by: str, x: str, *, dots: bool = True) -> None:
    """Draw one line per value of `by`, and label the axes."""
    for k, name in enumerate(array[by].values.tolist()):
        marker = MARKERS[k % len(MARKERS)] if dots else None
        color = COLORS.get(name, f"C{k}")
        axes.plot(array[x], array.sel({by: name}), color=color, label=str(name), marker=marker,
                  ms=4, lw=1.4)  # fmt: skip
    _finish(axes, array[x], array)


def _bars(axes: Any, array: xr.DataArray, by: str, along: str) -> None:
    """Draw groups of bars along an axis, with one bar per value of `by`."""
    names, count = array[by].values.tolist(), array.sizes[by]
    at = np.arange(array.sizes[along])
    for k, name in enumerate(names):
        shift = (k - (count - 1) / 2) * 0.8 / count
        axes.bar(at + shift, array.sel({by: name}), 0.8 / count, label=name,
                 color=COLORS.get(name, f"C{k}"))  # fmt: skip
    axes.set_xticks(at, [fill(str(value), 20) for value in array[along].values.tolist()])
    _finish(axes, array[along], array)


def figure_1(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 7)
    _lines(axes, data["time"], "job", "reduction")
    return figure


def figure_3(data: xr.Dataset) -> Any:
    figure, panels = _picture(data, 8, rows=2)
    for axes, name in zip(panels, ("accuracy", "loss"), strict=True):
        _lines(axes, data[name], "policy", "time", dots=False)
    return figure


def figure_5(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 8)
    _lines(axes, data["change"], "algorithm", "iteration", dots=False)
    return figure


def figure_6a(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 8)
    _lines(axes, data["loss"], "predictor", "iteration", dots=False)
    true = data["loss"].sel(predictor="true loss")
    low, high = float(true.min()), float(true.max())
    axes.set_ylim(low - 0.2 * (high - low), high + 0.2 * (high - low))
    return figure


def figure_6b(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 7)
    _bars(axes, data["error"], "predictor", "ahead")
    return figure


def figure_7a(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 8)
    _lines(axes, data["loss"], "policy", "time", dots=False)
    axes.set_ylim(bottom=0)
    return figure


def figure_7b(data: xr.Dataset) -> Any:
    cases = data["case"].values.tolist()
    figure, panels = _picture(data, 11, len(cases))
    for axes, case in zip(panels, cases, strict=True):
        _lines(axes, data["seconds"].sel(case=case), "policy", "reduction")
        axes.set_title(case, fontsize=10)
        axes.set_ylim(bottom=0)
    return figure


def figure_8(data: xr.Dataset) -> Any:
    policies = data["policy"].values.tolist()
    figure, panels = _picture(data, 12, len(policies))
    for axes, policy in zip(panels, policies, strict=True):
        part = data["part"].sel(policy=policy)
        axes.stackplot(data["time"], part.fillna(0), labels=data["group"].values.tolist())
        _finish(axes, data["time"], data["part"])
        axes.set_title(policy, fontsize=10)
        axes.set_ylim(0, 100)
        axes.legend(fontsize=8, framealpha=0.9)  # it lies on the areas
    return figure


def figure_9(data: xr.Dataset) -> Any:
    figure, panels = _picture(data, 10, 2)
    for axes, percent in zip(panels, data["reduction"].values.tolist(), strict=True):
        _lines(axes, data["seconds"].sel(reduction=percent), "policy", "interarrival")
        axes.set_title(f"{percent} % of the loss reduction", fontsize=10)
        axes.set_yscale("log")
        axes.get_yaxis().set_major_formatter("{x:g}")
        axes.invert_xaxis()  # contention grows to the right, as in the paper
    return figure


def figure_10a(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 9)
    _bars(axes, data["error"], "predictor", "algorithm")
    axes.tick_params(axis="x", rotation=30)
    axes.set_yscale("log")
    axes.get_yaxis().set_major_formatter("{x:g}")
    return figure


def figure_10b(data: xr.Dataset) -> Any:
    figure, [axes] = _picture(data, 7)
    _lines(axes, data["cpu"], "size", "workers")
    axes.set_ylim(bottom=0)
    return figure


def figure_10c(data: xr.Dataset) -> Any:
    ways = data["way"].values.tolist()
    figure, panels = _picture(data, 10, len(ways))
    for axes, way in zip(panels, ways, strict=True):
        _lines(axes, data["seconds"].sel(way=way), "cores", "jobs")
        axes.set_title(way, fontsize=10)
        axes.legend(title=label(data["cores"]), fontsize=8, frameon=False)
    return figure
