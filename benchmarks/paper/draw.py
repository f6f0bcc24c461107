"""Pictures of the Datasets: one function per figure, which shows only what the Dataset holds."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import fill
from typing import Any

import numpy as np
import xarray as xr

from benchmarks.paper.datasets import label

__all__ = ["figure_6", "figure_7a", "figure_7b", "figure_9", "figure_10b", "figure_10c", "picture"]

COLORS = {
    "fair": "#2a6f97", "max-total": "#c1121f", "oracle": "#6c757d",
    "ours": "#c1121f", "the paper's fits": "#2a6f97", "the paper's way": "#2a6f97",
    "last change goes on": "#8d99ae",
}  # fmt: skip
MARKERS = "os^Dv<>Pp"


def picture(data: xr.Dataset, width: float, panels: int = 1) -> tuple[Any, list[Any]]:
    """Make a figure, `width` inches wide, with the Dataset's title. Returns it and its axes."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(width, 4.2), layout="constrained", dpi=110)
    figure.suptitle(f"Figure {data.attrs['figure']}: {data.attrs['title']}", fontsize=12)
    return figure, list(np.atleast_1d(figure.subplots(1, panels)))


def _finish(axes: Any, x: xr.DataArray, y: xr.DataArray, legend: str | None = "") -> None:
    """Add labels with units, a light grid and, unless `legend` is None, a legend."""
    axes.set(xlabel=label(x), ylabel=label(y))
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    if legend is not None:
        axes.legend(fontsize=8, frameon=False, title=legend or None, title_fontsize=8)


def _lines(axes: Any, data: xr.DataArray, by: str, x: str, **style: Any) -> None:
    """Draw one line per value of `by`."""
    for k, name in enumerate(data[by].values.tolist()):
        axes.plot(
            data[x], data.sel({by: name}), color=COLORS.get(name, f"C{k}"), label=str(name),
            marker=MARKERS[k % len(MARKERS)], ms=4, **style,
        )  # fmt: skip


def _outside(axes: Any) -> None:
    """Put the legend to the right of the axes."""
    axes.legend(fontsize=8, frameon=False, loc="center left", bbox_to_anchor=(1.0, 0.5))


def figure_6(data: xr.Dataset) -> Any:
    kinds = data["kind"].values.tolist()
    figure, panels = picture(data, 1.0 + 6.0 * len(kinds), len(kinds))
    for axes, kind in zip(panels, kinds, strict=True):
        some = data["error"].sel(kind=kind).dropna("algorithm", how="all")
        _bars(axes, some, "predictor", "algorithm")
        _finish(axes, data["algorithm"], data["error"])
        axes.set_title(f"{kind} curves", fontsize=10)
        axes.set_yscale("log")
        axes.set_ylim(top=8.0 * float(some.max()))  # room for the legend
        axes.get_yaxis().set_major_formatter("{x:g}")
    return figure


def _bars(axes: Any, data: xr.DataArray, by: str, along: str) -> None:
    """Draw groups of bars along an axis, with one bar per value of `by`."""
    names, count = data[by].values.tolist(), data.sizes[by]
    at = np.arange(data.sizes[along])
    for k, name in enumerate(names):
        shift = (k - (count - 1) / 2) * 0.8 / count
        axes.bar(at + shift, data.sel({by: name}), 0.8 / count, label=name,
                 color=COLORS.get(name, f"C{k}"))  # fmt: skip
    words = [fill(str(value), 20) for value in data[along].values.tolist()]
    axes.set_xticks(at, words, rotation=40, ha="right", rotation_mode="anchor", fontsize=8)


def figure_7a(data: xr.Dataset) -> Any:
    figure, [axes] = picture(data, 8)
    for name in data["policy"].values.tolist():
        mean = float(data["mean_loss"].sel(policy=name))
        text, loss = f"{name} (mean {mean:.3f})", data["loss"].sel(policy=name)
        axes.plot(data["time"], loss, lw=1.4, color=COLORS.get(name), label=text)
    _finish(axes, data["time"], data["loss"])
    axes.set_ylim(bottom=0)
    return figure


def figure_7b(data: xr.Dataset) -> Any:
    cases = data["case"].values.tolist()
    figure, panels = picture(data, 11, len(cases))
    for axes, case in zip(panels, cases, strict=True):
        _lines(axes, data["seconds"].sel(case=case), "policy", "reduction")
        _finish(axes, data["reduction"], data["seconds"])
        axes.set_title(case, fontsize=10)
        axes.set_ylim(0, 1.05 * float(data["seconds"].max()))
    return figure


def _pair(data: xr.Dataset, names: Sequence[str], x: str) -> Any:
    """Draw two panels with one line per policy."""
    figure, panels = picture(data, 10, 2)
    for axes, name in zip(panels, names, strict=True):
        _lines(axes, data[name], "policy", x)
        _finish(axes, data[x], data[name])
        axes.set_ylim(bottom=0)
    return figure


def figure_9(data: xr.Dataset) -> Any:
    figure = _pair(data, ("loss", "t90"), "interarrival")
    for axes in figure.axes:
        axes.invert_xaxis()  # contention grows to the right, as in the paper
    return figure


def figure_10b(data: xr.Dataset) -> Any:
    figure, [axes] = picture(data, 8)
    for k, cores in enumerate(data["cores"].values.tolist()):
        for name, line in zip(data["way"].values.tolist(), ("-", "--"), strict=True):
            axes.plot(
                data["jobs"], data["seconds"].sel(cores=cores, way=name), line, ms=4,
                marker=MARKERS[k], color=COLORS[name], label=f"{name}, {cores} cores",
            )  # fmt: skip
    _finish(axes, data["jobs"], data["seconds"], None)
    axes.set_yscale("log")
    axes.get_yaxis().set_major_formatter("{x:g}")
    axes.set_xticks(data["jobs"].values)
    _outside(axes)
    return figure


def figure_10c(data: xr.Dataset) -> Any:
    return _pair(data, ("t90", "moves"), "pause")
