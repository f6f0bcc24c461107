"""Data of the board, computed at most once per two seconds for all open pages."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.epochs import threads
from dask_slaq.core.usage import DAY, OTHERS
from dask_slaq.scheduler.board.colors import color_of
from dask_slaq.scheduler.views import curves_to_come, in_words

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["BoardData", "data_of", "empty"]

#: Seconds for which data are reused: at least, and per second that it took to compute them.
FRESH, FRESH_PER_SECOND = 1.9, 60.0
#: Seconds of the past that are shown, and maximum number of points per line.
PAST, MOST_POINTS = 600.0, 300
#: Maximum number of points of all lines of a plot, though each has at least `FEWEST_POINTS`.
MOST_IN_ALL, FEWEST_POINTS = 4_000, 20
#: Epochs over which threads in use are averaged.
AVERAGED = 10
#: Maximum number of jobs or owners in stacked areas and bars.
MOST_SHOWN = 20
#: Color of all other jobs together.
OTHERS_COLOR = "#bbbbbb"

FloatArray = NDArray[np.float64]


@dataclass
class BoardData:
    """Everything that the pages show; columns are lists, as Bokeh's data sources take them.

    Attributes
    ----------
    note : str
        What to say if there is nothing to show, or something is wrong.
    head : str
        What is in force: policy, threads, number of jobs.
    capacity : int
        Threads of all workers.
    losses, forecasts, bands, threads, shares, usage, jobs : dict of str to list
        Columns of the plots and the table.
    """

    note: str = ""
    head: str = ""
    capacity: int = 0
    losses: dict[str, list[Any]] = field(default_factory=dict)
    forecasts: dict[str, list[Any]] = field(default_factory=dict)
    bands: dict[str, list[Any]] = field(default_factory=dict)
    threads: dict[str, list[Any]] = field(default_factory=dict)
    shares: dict[str, list[Any]] = field(default_factory=dict)
    usage: dict[str, list[Any]] = field(default_factory=dict)
    jobs: dict[str, list[Any]] = field(default_factory=dict)


# Data of each scheduler, and until when they are reused.
_cache: WeakKeyDictionary[Scheduler, tuple[float, BoardData]] = WeakKeyDictionary()


def data_of(scheduler: Scheduler) -> BoardData:
    """Return the data of a scheduler's board; the same object until there are newer ones."""
    now = monotonic()
    cached = _cache.get(scheduler)
    if cached is None or now > cached[0]:
        plugin: Any = scheduler.plugins.get("slaq")
        data = _columns(plugin) if plugin is not None else empty("SlaqPlugin is not registered.")
        took = monotonic() - now
        cached = _cache[scheduler] = now + max(FRESH, FRESH_PER_SECOND * took), data
    return cached[1]


def empty(note: str = "") -> BoardData:
    """Return data of no job, with a note."""
    return BoardData(
        note,
        losses={"x": [], "y": [], "job": [], "color": []},
        forecasts={"x": [], "y": [], "job": [], "color": []},
        bands={"x": [], "y": [], "job": [], "color": []},
        threads={"x": [], "y": [], "job": [], "color": []},
        shares={"name": [], "deserved": [], "got": [], "lent": [], "borrowed": []},
        usage={key: [] for key in ("left", "right", "bottom", "top", "owner", "day", "color")},
        jobs={
            key: []
            for key in (
                *("color", "job", "owner", "state", "iteration", "loss", "eta", "ends", "reason"),
            )
        },
    )


def _columns(plugin: SlaqPlugin) -> BoardData:
    status = plugin.messages.status_now()
    data = empty()
    data.capacity = status["capacity"]
    running = len(plugin.jobs.names())
    jobs = "1 job" if running == 1 else f"{running} jobs"
    data.head = f"Policy {status['policy']}, {data.capacity} threads, {jobs}."
    if plugin.failed is not None:
        data.note = f"Plain Dask schedules all tasks, as the plugin failed: {plugin.failed}"
    elif not status["jobs"]:
        data.note = "No job is running."
    points = MOST_IN_ALL // max(len(status["jobs"]), 1)
    points = min(max(points, FEWEST_POINTS), MOST_POINTS)
    names, times, values = plugin.jobs.epochs.table(PAST, points)
    now = times[-1] if len(times) else 0.0
    _add_losses(data, names, times - now, values["normalized_loss"])
    used = threads(times, values["core_seconds"], AVERAGED)
    _add_threads(data, names, times - now, used)
    ahead = min(max(10.0, (now - times[0]) / 2), PAST / 5) if len(times) else 0.0
    granted = sorted(plugin.jobs.names(), key=lambda name: -status["jobs"][name]["share"])
    _add_forecasts(data, plugin, granted[:MOST_SHOWN], ahead)
    recent = used[:, -1].tolist() if len(times) else []
    _add_shares(data, status, dict(zip(names, recent, strict=True)))
    color = partial(color_of, plugin.scheduler)
    _add_usage(data, plugin.jobs.accounts.by_day(), color)
    for columns in (data.losses, data.forecasts, data.bands, data.threads):
        columns["color"] = list(map(color, columns["job"]))
    if len(data.threads["job"]) > MOST_SHOWN:
        data.threads["color"][-1] = OTHERS_COLOR
    for name, job in status["jobs"].items():
        row = {
            "color": color(name),
            "job": name,
            "owner": job["owner"],
            "state": job["state"],
            "iteration": job["iteration"],
            "loss": f"{job['loss']:.4g}" if math.isfinite(job["loss"]) else "",
            "eta": _eta(job["eta"]),
            "ends": in_words(job["ends"]),
            "reason": job["reason"],
        }
        for key, value in row.items():
            data.jobs[key].append(value)
    return data


def _add_losses(data: BoardData, names: list[str], times: FloatArray, losses: FloatArray) -> None:
    for name, line in zip(names, losses, strict=True):
        known = np.flatnonzero(np.isfinite(line))
        if len(known):
            _append(data.losses, times[known], line[known], name)


def _add_threads(data: BoardData, names: list[str], times: FloatArray, mean: FloatArray) -> None:
    """Add one polygon per job, stacked; jobs beyond `MOST_SHOWN` form one polygon together."""
    if len(times) < 2:
        return
    order = np.argsort(-mean.sum(axis=1), kind="stable")
    shown = [(names[i], mean[i]) for i in order[:MOST_SHOWN].tolist()]
    if len(order) > MOST_SHOWN:
        shown.append(
            (f"{len(order) - MOST_SHOWN} other jobs", mean[order[MOST_SHOWN:]].sum(axis=0))
        )
    bottom = np.zeros(len(times))
    for name, row in shown:
        top = bottom + row
        x = np.concatenate([times, times[::-1]])
        y = np.concatenate([bottom, top[::-1]])
        _append(data.threads, x, y, name)
        bottom = top


def _add_forecasts(data: BoardData, plugin: SlaqPlugin, names: list[str], seconds: float) -> None:
    """Add the predicted normalized loss of each job for the `seconds` to come, and its band."""
    for name, curve in curves_to_come(plugin.jobs, names).items():
        near = curve.seconds <= seconds
        ahead = curve.seconds[near]
        _append(data.forecasts, ahead, ((curve.loss - curve.best) / curve.span)[near], name)
        if curve.low is None or curve.high is None:
            continue
        edges = [
            np.clip((edge - curve.best) / curve.span, -0.1, 1.2)[near]
            for edge in (curve.low, curve.high)
        ]
        x = np.concatenate([ahead, ahead[::-1]])
        _append(data.bands, x, np.concatenate([edges[0], edges[1][::-1]]), name)


def _add_shares(data: BoardData, status: dict[str, Any], recent: dict[str, float]) -> None:
    """Add what owners deserve and got, or jobs where owners do not share by weights."""
    found = {
        name: standing
        for name, standing in status["owners"].items()
        if standing["deserved"] is not None
    }
    if not found:
        for name, job in status["jobs"].items():
            got, deserved = recent.get(name, 0.0), job["share"]
            found[name] = {
                "deserved": deserved,
                "got": got,
                "lent": max(deserved - got, 0.0),
                "borrowed": max(got - deserved, 0.0),
            }
    for name in sorted(found, key=lambda name: -found[name]["deserved"])[:MOST_SHOWN]:
        data.shares["name"].append(name)
        for key in ("deserved", "got", "lent", "borrowed"):
            data.shares[key].append(round(found[name][key], 2))


def _add_usage(
    data: BoardData, by_day: dict[tuple[int, str], float], color: Callable[[str], str]
) -> None:
    """Add one box per owner and day, stacked; owners beyond `MOST_SHOWN` form one box together."""
    total: defaultdict[str, float] = defaultdict(float)
    for (_, owner), seconds in by_day.items():
        total[owner] += seconds
    largest = sorted(total, key=lambda owner: -total[owner])[:MOST_SHOWN]
    boxes: defaultdict[tuple[int, str], float] = defaultdict(float)
    for (day, owner), seconds in by_day.items():
        boxes[day, owner if owner in largest else OTHERS] += seconds
    at: defaultdict[int, float] = defaultdict(float)
    for day, owner in sorted(boxes, key=lambda box: (box[0], -total[box[1]])):
        if (seconds := boxes[day, owner]) <= 0:
            continue
        begin = day * DAY * 1000  # Bokeh's dates are in milliseconds
        box = {
            "left": begin,
            "right": begin + 0.9 * DAY * 1000,
            "bottom": at[day],
            "top": at[day] + seconds,
            "owner": owner or "(none)",
            "day": begin,
            "color": OTHERS_COLOR if owner == OTHERS else color(owner),
        }
        at[day] += seconds
        for key, value in box.items():
            data.usage[key].append(value)


def _append(columns: dict[str, list[Any]], x: FloatArray, y: FloatArray, name: str) -> None:
    columns["x"].append(x.tolist())
    columns["y"].append(y.tolist())
    columns["job"].append(name)


def _eta(seconds: list[float | None] | None) -> str:
    if seconds is None:
        return ""
    low, expected, high = (None if s is None else f"{s:.3g} s" for s in seconds)
    if expected == "0 s":
        return "reached"
    if expected is None:
        return "not in sight" if low is None else f"{low} or later"
    return f"{expected} ({low} to {high or '?'})"
