"""Data of the board, computed at most once per two seconds for all open pages."""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from time import localtime, monotonic, strftime, time
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.epochs import threads
from dask_slaq.core.settings import NOT_STARTED
from dask_slaq.core.usage import DAY
from dask_slaq.core.usage import OTHERS as OTHER_OWNERS
from dask_slaq.scheduler.board.colors import OTHERS, UNOWNED, color_of
from dask_slaq.scheduler.views import curves_to_come, in_words

if TYPE_CHECKING:
    from distributed import Scheduler

    from dask_slaq.scheduler.plugin import SlaqPlugin

__all__ = ["BoardData", "Plain", "data_of", "empty"]

#: Seconds for which data are reused: at least, and per second that it took to compute them.
FRESH, FRESH_PER_SECOND = 1.9, 60.0
#: Seconds of the past that are shown, and maximum number of points per line.
PAST, MOST_POINTS = 600.0, 300
#: Maximum number of points of all lines of a plot, though each has at least `FEWEST_POINTS`.
MOST_IN_ALL, FEWEST_POINTS = 4_000, 20
#: Epochs over which threads in use are averaged.
AVERAGED = 10
#: Epochs without a record, beyond which lines and areas are interrupted.
MISSING = 5
#: Maximum number of jobs in stacked areas, and of ended jobs in the table.
MOST_SHOWN = 20
#: Maximum number of jobs or owners with bars of their own.
MOST_BARS = 8
#: Maximum number of names in the legend.
MOST_NAMED = 100
#: Name of the tasks outside jobs.
UNOWNED_TASKS = "unowned tasks"
#: Color of texts about jobs that have ended.
GREY = "#999999"

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
    broken : bool
        Whether jobs are not scheduled because of an error, which `note` tells.
    losses, forecasts, bands, threads, shares, usage, jobs : dict of str to list
        Columns of the plots and the table.
    legend : dict of str to list
        ``name``, ``owner``, ``color`` and ``outcome`` (empty while it runs) of what is plotted.
    """

    note: str = ""
    head: str = ""
    capacity: int = 0
    broken: bool = False
    losses: dict[str, list[Any]] = field(default_factory=dict)
    forecasts: dict[str, list[Any]] = field(default_factory=dict)
    bands: dict[str, list[Any]] = field(default_factory=dict)
    threads: dict[str, list[Any]] = field(default_factory=dict)
    shares: dict[str, list[Any]] = field(default_factory=dict)
    usage: dict[str, list[Any]] = field(default_factory=dict)
    jobs: dict[str, list[Any]] = field(default_factory=dict)
    legend: dict[str, list[Any]] = field(default_factory=dict)


class Plain(list[Any]):
    """Column that is sent as it is: Bokeh does not look at each of its values, once per page."""


# Data of each scheduler, and until when they are reused.
_cache: WeakKeyDictionary[Scheduler, tuple[float, BoardData]] = WeakKeyDictionary()


def data_of(scheduler: Scheduler) -> BoardData:
    """Return the data of a scheduler's board; the same object until there are newer ones."""
    now = monotonic()
    cached = _cache.get(scheduler)
    if cached is None or now > cached[0]:
        plugin: Any = scheduler.plugins.get("slaq")
        data = _columns(plugin) if plugin is not None else _without_plugin(scheduler)
        _make_plain(data)
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
                *("color", "ink", "job", "owner", "state", "iteration", "loss", "eta", "ends"),
                "reason",
            )
        },
        legend={"name": [], "owner": [], "color": [], "outcome": []},
    )


def _make_plain(data: BoardData) -> None:
    for columns in vars(data).values():
        for key, values in columns.items() if isinstance(columns, dict) else ():
            with suppress(TypeError, ValueError):  # Bokeh sends nan and arrays in a way of its own
                json.dumps(values, allow_nan=False)
                columns[key] = Plain(values)


def _without_plugin(scheduler: Scheduler) -> BoardData:
    stand_in: Any = scheduler.plugins.get(NOT_STARTED)
    data = empty("SlaqPlugin is not registered.")
    data.capacity = scheduler.total_nthreads
    if stand_in is not None:
        data.note = f"SlaqPlugin did not start, and plain Dask schedules all tasks: {stand_in.why}"
        data.broken = True
    return data


def _columns(plugin: SlaqPlugin) -> BoardData:
    status, running = plugin.messages.status_now(), plugin.jobs.names()
    data = empty()
    data.capacity = status["capacity"]
    jobs = "1 job" if len(running) == 1 else f"{len(running)} jobs"
    data.head = f"Policy {status['policy']}, {data.capacity} threads, {jobs}."
    if plugin.failed is not None:
        data.note = f"Plain Dask schedules all tasks, as the plugin failed: {plugin.failed}"
        data.broken = True
    elif not status["jobs"]:
        data.note = "No job is running."
    color = partial(color_of, plugin.scheduler)
    epochs = _recent_epochs(plugin, max(len(running), 1))
    names, used = epochs.names, epochs.threads
    for name, line in zip(names, epochs.losses, strict=True):
        known = np.flatnonzero(np.isfinite(line))
        if len(known):
            shown = slice(known[0], known[-1] + 1)
            _append(data.losses, epochs.seconds[shown], line[shown], name, color(name))
    _add_threads(data, epochs, color)
    passed = -epochs.seconds[0] if len(epochs.seconds) else 0.0
    ahead = min(max(10.0, passed / 2), PAST / 5) if passed else 0.0
    granted = sorted(running, key=lambda name: -status["jobs"][name]["share"])
    _add_forecasts(data, plugin, granted[:MOST_SHOWN], ahead, color)
    got = dict(zip([*names, UNOWNED_TASKS], used[:, -1].tolist(), strict=True)) if passed else {}
    _add_shares(data, status, got)
    _add_usage(data, plugin.jobs.accounts.by_day(), color)
    for name, job in status["jobs"].items():
        row = {
            "color": color(name),
            "ink": "inherit",
            "job": name,
            "owner": job["owner"],
            "state": job["state"],
            "iteration": job["iteration"] if job["reports"] else "",
            "loss": f"{job['loss']:.4g}" if math.isfinite(job["loss"]) else "",
            "eta": _eta(job["eta"]),
            "ends": in_words(job["ends"]),
            "reason": job["reason"],
        }
        for key, value in row.items():
            data.jobs[key].append(value)
    ended = _recently_ended(plugin)
    _add_ended(data, list(ended.values())[:MOST_SHOWN], color)
    _add_legend(data, plugin, names, ended, color)
    return data


@dataclass
class _RecentEpochs:
    """The last epochs; columns of nan and of zero threads interrupt what is drawn."""

    names: list[str]
    seconds: FloatArray  # (n_epochs,) from now, at most 0
    losses: FloatArray  # (n_jobs, n_epochs) normalized; nan where a job did not run
    threads: FloatArray  # (n_jobs + 1, n_epochs); the last row is that of tasks outside jobs


def _recent_epochs(plugin: SlaqPlugin, n_jobs: int) -> _RecentEpochs:
    points = min(max(MOST_IN_ALL // n_jobs, FEWEST_POINTS), MOST_POINTS)
    names, times, values = plugin.jobs.epochs.table(PAST, points)
    if not len(times):
        return _RecentEpochs([], times, np.empty((0, 0)), np.empty((1, 0)))
    losses, seconds = values["normalized_loss"], values["core_seconds"]
    absent = np.isnan(seconds)
    # Another job of the same name has begun.
    losses[:, 1:][seconds[:, 1:] < 0.5 * seconds[:, :-1]] = math.nan
    at, unowned = np.array(plugin.jobs.unowned.epochs or [(0.0, 0.0)]).T
    used = threads(times, np.vstack([seconds, np.interp(times, at, unowned)]), AVERAGED)
    used[:-1][absent] = 0.0
    # The timer stands still while no job runs.
    longest = MISSING * max(plugin.settings.epoch, PAST / points)
    gaps = np.flatnonzero(np.diff(times) > longest)
    insert, ends = np.repeat(gaps + 1, 2), np.ravel([times[gaps], times[gaps + 1]], order="F")
    losses, used = np.insert(losses, insert, math.nan, axis=1), np.insert(used, insert, 0.0, axis=1)
    times = np.insert(times, insert, ends)
    times = times - (times[-1] if plugin.jobs.reports else time())
    recent = times > -PAST
    return _RecentEpochs(names, times[recent], losses[:, recent], used[:, recent])


def _add_threads(data: BoardData, epochs: _RecentEpochs, color: Callable[[str], str]) -> None:
    """Add one polygon per job, stacked; jobs beyond `MOST_SHOWN` form one polygon together."""
    if len(epochs.seconds) < 2:
        return
    of_jobs, unowned = epochs.threads[:-1], epochs.threads[-1]
    order = np.argsort(-of_jobs.sum(axis=1), kind="stable")
    shown = [(n := epochs.names[i], color(n), of_jobs[i]) for i in order[:MOST_SHOWN].tolist()]
    if (others := len(order) - MOST_SHOWN) > 0:
        rest = of_jobs[order[MOST_SHOWN:]].sum(axis=0)
        shown.append((f"{others} other job{'s' if others > 1 else ''}", OTHERS, rest))
    if unowned.any():
        shown.append((UNOWNED_TASKS, UNOWNED, unowned))
    bottom = np.zeros(len(epochs.seconds))
    for name, ink, row in shown:
        top = bottom + row
        used = np.flatnonzero(row > 0)
        if len(used):
            part = slice(max(used[0] - 1, 0), used[-1] + 2)
            x, low, high = epochs.seconds[part], bottom[part], top[part]
            x, y = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
            _append(data.threads, x, y, name, ink)
        bottom = top


def _recently_ended(plugin: SlaqPlugin) -> dict[str, dict[str, Any]]:
    """Return the jobs that ended within `PAST` seconds and do not run again, the newest first."""
    since = time() - PAST
    found: dict[str, dict[str, Any]] = {}
    for job in reversed(plugin.jobs.ended):
        if job["ended"] < since:
            break
        if job["job"] not in plugin.jobs.reports:
            found.setdefault(job["job"], job)
    return found


def _add_ended(data: BoardData, ended: list[dict[str, Any]], color: Callable[[str], str]) -> None:
    """Add jobs that have ended to the table."""
    for job in ended:
        row = {
            "color": color(job["job"]),
            "ink": GREY,
            "job": job["job"],
            "owner": job["owner"],
            "state": f"{job['event']} {_age(time() - job['ended'])}",
            "iteration": job["iteration"],
            "loss": "" if job["loss"] is None else f"{job['loss']:.4g}",
            "eta": "",
            "ends": f"ended at {strftime('%H:%M:%S', localtime(job['ended']))}",
            "reason": job["message"].removeprefix(f"{job['job']}: "),
        }
        for key, value in row.items():
            data.jobs[key].append(value)


def _add_legend(
    data: BoardData,
    plugin: SlaqPlugin,
    names: list[str],
    ended: dict[str, dict[str, Any]],
    color: Callable[[str], str],
) -> None:
    """Add a name for each color, by owner: running jobs, then those that have ended."""
    owners = plugin.jobs.owner
    found = [(owners[name], name, color(name), "") for name in plugin.jobs.reports]
    found.sort(key=lambda entry: entry[0])
    over = [name for name in names if name not in plugin.jobs.reports and name in ended]
    found += sorted((ended[n]["owner"], n, color(n), ended[n]["event"]) for n in over)
    more = len(found) - MOST_NAMED
    del found[MOST_NAMED:]
    if more > 0:
        found.append(("", f"and {more} more", "", ""))
    for name, ink in zip(data.threads["job"], data.threads["color"], strict=True):
        if ink in (OTHERS, UNOWNED):
            found.append(("", name, ink, ""))
    for owner, name, ink, outcome in found:
        row = {"owner": owner, "name": name, "color": ink, "outcome": outcome}
        for key, value in row.items():
            data.legend[key].append(value)


def _add_forecasts(
    data: BoardData,
    plugin: SlaqPlugin,
    names: list[str],
    seconds: float,
    color: Callable[[str], str],
) -> None:
    """Add the predicted normalized loss of each job for the `seconds` to come, and its band."""
    for name, curve in curves_to_come(plugin.jobs, names).items():
        near = curve.seconds <= seconds
        ahead = curve.seconds[near]
        line = ((curve.loss - curve.best) / curve.span)[near]
        _append(data.forecasts, ahead, line, name, color(name))
        if curve.low is None or curve.high is None:
            continue
        edges = [
            np.clip((edge - curve.best) / curve.span, -0.1, 1.2)[near]
            for edge in (curve.low, curve.high)
        ]
        x = np.concatenate([ahead, ahead[::-1]])
        y = np.concatenate([edges[0], edges[1][::-1]])
        _append(data.bands, x, y, name, color(name))


def _add_shares(data: BoardData, status: dict[str, Any], recent: dict[str, float]) -> None:
    """Add what owners deserve and got, or jobs where owners do not share by weights."""
    found = {
        name: standing
        for name, standing in status["owners"].items()
        if standing["deserved"] is not None
    }
    if not found:
        shares: dict[str, float] = {}
        for name, job in status["jobs"].items():
            name = name if job["reports"] else UNOWNED_TASKS
            shares[name] = shares.get(name, 0.0) + job["share"]
        for name, deserved in shares.items():
            got = recent.get(name, 0.0)
            found[name] = {
                "deserved": deserved,
                "got": got,
                "lent": max(deserved - got, 0.0),
                "borrowed": max(got - deserved, 0.0),
            }
    names = sorted(found, key=lambda name: -max(found[name]["deserved"], found[name]["got"]))
    bars = [[name] for name in names[:MOST_BARS]]
    if others := names[MOST_BARS:]:
        bars.append(others)
    for bar in bars:
        data.shares["name"].append(bar[0] if len(bar) == 1 else f"{len(bar)} others")
        for key in ("deserved", "got", "lent", "borrowed"):
            data.shares[key].append(round(sum(found[name][key] for name in bar), 2))


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
        boxes[day, owner if owner in largest else OTHER_OWNERS] += seconds
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
            "color": OTHERS if owner == OTHER_OWNERS else color(owner),
        }
        at[day] += seconds
        for key, value in box.items():
            data.usage[key].append(value)


def _append(
    columns: dict[str, list[Any]], x: FloatArray, y: FloatArray, name: str, color: str
) -> None:
    columns["x"].append(x.round(2).tolist())  # more digits are not seen, but sent
    columns["y"].append(y.round(5).tolist())
    columns["job"].append(name)
    columns["color"].append(color)


def _age(seconds: float) -> str:
    return f"{seconds:.0f} s ago" if seconds < 60 else f"{seconds // 60:.0f} min ago"


def _eta(seconds: list[float | None] | None) -> str:
    if seconds is None:
        return ""
    low, expected, high = (None if s is None else f"{s:.3g} s" for s in seconds)
    if expected == "0 s":
        return "reached"
    if expected is None:
        return "not in sight" if low is None else f"{low} or later"
    return f"{expected} ({low} to {high or '?'})"
