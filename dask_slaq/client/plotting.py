"""Figure of one job: its loss with the forecast, and the threads that it used."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_slaq.client.connection import current_client, request
from dask_slaq.client.queries import history_of
from dask_slaq.core.errors import UnknownJob
from dask_slaq.core.history_views import threads
from dask_slaq.core.settings import shown
from dask_slaq.core.trials import STATE_COLORS

if TYPE_CHECKING:
    import xarray
    from distributed import Client

__all__ = ["draw_search", "plot"]

#: Epochs over which threads are averaged.
AVERAGED = 10
#: Maximum number of parameters in the figure of a search, and part of the losses that it shows.
MOST_PARAMETERS, SHOWN = 4, 0.97
#: Number of models above which all but the first are faint, and only these have their forecast.
MANY, FIRST = 60, 10


def plot(job: str, client: Client | None = None) -> Any:
    """Return a Matplotlib figure of a job that runs or is remembered; see `Job.plot`.

    Raises ImportError without Matplotlib, UnknownJob and NoPlugin.
    """
    check_matplotlib()
    client = current_client(client)
    return client.sync(_plot, client, job)


def check_matplotlib() -> None:
    """Raise ImportError, which says what to install, if there is no Matplotlib."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError as error:
        raise ImportError("plot() needs Matplotlib: pip install 'dask-slaq[notebook]'") from error


async def _plot(client: Client, job: str) -> Any:
    history = await history_of(client)
    if job not in history.job.values:
        raise UnknownJob(f"no job named {shown(job)} is remembered")
    return draw(job, history.sel(job=job), await request(client, "slaq_curve", job=job))


def draw(job: str, history: xarray.Dataset, curve: dict[str, Any] | None) -> Any:
    """Draw the figure of a job from its history, and its predicted curve; see `CurveToCome`."""
    from matplotlib.figure import Figure

    ran = np.flatnonzero(np.isfinite(history.iteration.values))
    # One epoch more before the job, so that its first threads have a beginning.
    part = history.isel(epoch=slice(max(int(ran[0]) - 1, 0), int(ran[-1]) + 1))
    times = part.time.values - float(history.time.values[ran[0]])
    losses = part.loss.values
    used = threads(times, part.core_seconds.values[np.newaxis], AVERAGED)[0]

    # Without pyplot, which would keep every figure and choose a window system.
    figure = Figure(figsize=(7, 4.5), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    above.plot(times, losses, color="C0", label="reported")
    if curve is not None:
        ahead, end = np.array(curve["seconds"]), float(times[-1])
        near = ahead <= max(end, 10.0)
        last = losses[-1] if math.isfinite(losses[-1]) else curve["loss"][0]
        x, y = [end, *(end + ahead[near])], [last, *np.array(curve["loss"])[near]]
        above.plot(x, y, "--", color="C0", label="predicted")
        if curve["low"] is not None:
            edges = (np.array(curve[edge])[near] for edge in ("low", "high"))
            label = "80 % of the reports to come"
            above.fill_between(end + ahead[near], *edges, color="C0", alpha=0.15, lw=0, label=label)
    above.set(title=job.replace("$", r"\$"), ylabel="loss")
    above.legend(frameon=False)
    below.fill_between(times, used, color="C1", alpha=0.7, lw=0)
    below.set(xlabel="seconds since the job began", ylabel="threads", ylim=(0, None))
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
    return figure


def draw_search(name: str, rows: Sequence[Mapping[str, Any]], settings: Mapping[str, Any]) -> Any:
    """Draw the losses of the models of a search with their forecasts, and their parameters.

    Raises ImportError without Matplotlib.
    """
    check_matplotlib()
    from matplotlib.figure import Figure

    drawn = sorted(rows, key=lambda row: list(STATE_COLORS).index(row["state"]))
    names = dict.fromkeys(key for row in rows for key in row["params"])
    known = [row["params"] for row in rows if row["params"]]  # others have not reported
    varied = [n for n in names if len({repr(params.get(n)) for params in known}) > 1]
    varied = varied[:MOST_PARAMETERS]
    figure = Figure(figsize=(7, 6.5 if varied else 4.5), layout="constrained")
    grid = figure.add_gridspec(2 if varied else 1, max(len(varied), 1))
    above = figure.add_subplot(grid[0, :])
    longest = settings["steps"] or max((row["iteration"] for row in rows), default=0)
    seen: list[float] = []
    sign = -1.0 if settings["maximize"] else 1.0
    best, ahead_of_all = (_first(drawn, by, sign) for by in ("loss", "predicted"))
    for row in sorted(drawn, key=lambda row: id(row) in best):  # these over the others
        if not row["curve"]:
            continue
        steps, losses = zip(*row["curve"], strict=True)
        seen += losses
        color = STATE_COLORS[row["state"]]
        stands_out = id(row) in best or len(drawn) <= MANY
        above.plot(steps, losses, color=color, lw=1, alpha=0.9 if stands_out else 0.2)
        if id(row) in ahead_of_all:
            seen.append(row["predicted"])
            end = max(longest, row["iteration"])
            ahead = [steps[-1], end], [losses[-1], row["predicted"]]
            above.plot(*ahead, "--", color=color, lw=0.8, alpha=0.5)
    for state in reversed(STATE_COLORS):
        if n := sum(row["state"] == state for row in rows):
            above.plot([], [], color=STATE_COLORS[state], label=f"{n} {state}")
    if rows:
        above.legend(fontsize="small", framealpha=0.8, edgecolor="none")
    above.set(title=name.replace("$", r"\$"), xlabel="step", ylabel="loss")
    if seen:  # the first losses of bad models would take the whole plot
        low, high = np.quantile(seen, (1 - SHOWN, 1) if settings["maximize"] else (0, SHOWN))
        room = 0.05 * (high - low) or 1.0
        above.set_ylim(low - room, high + room)
    reported = [row for row in drawn if math.isfinite(row["loss"])]
    for place, parameter in enumerate(varied):
        axes = figure.add_subplot(grid[1, place])
        values = [row["params"].get(parameter) for row in reported]
        if not all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            values = [str(value)[:12] for value in values]
        elif values and min(values) > 0 and max(values) > 50 * min(values):
            axes.set_xscale("log")
        colors = [STATE_COLORS[row["state"]] for row in reported]
        size = 12 if len(reported) <= MANY else 6
        axes.scatter(values, [row["loss"] for row in reported], c=colors, s=size)
        axes.set_xlabel(parameter.replace("$", r"\$"))
        axes.tick_params(axis="x", labelrotation=30, labelsize="small")
        if place:
            axes.sharey(figure.axes[1])
        axes.spines[["top", "right"]].set_visible(False)
        if place:
            axes.tick_params(labelleft=False)
        else:
            axes.set_ylabel("last loss")
    above.spines[["top", "right"]].set_visible(False)
    return figure


def _first(rows: Sequence[Mapping[str, Any]], by: str, sign: float) -> set[int]:
    """Return the models that stand out: the best by a loss, or all if there are not many."""
    some = sorted((row for row in rows if math.isfinite(row[by])), key=lambda row: sign * row[by])
    return {id(row) for row in (some if len(rows) <= MANY else some[:FIRST])}
