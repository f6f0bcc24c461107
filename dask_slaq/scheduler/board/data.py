"""Data of the board, computed at most once per two seconds for all open pages."""

from __future__ import annotations

import colorsys
import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count
from time import localtime, monotonic, strftime, time
from typing import Any, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Scheduler
from numpy.typing import NDArray

from dask_slaq.core.jobs.columns import JOB_COLUMNS, Row, rows
from dask_slaq.core.jobs.history import table, threads
from dask_slaq.core.owners.terms import standings
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.core.owners.usage import OTHERS as OTHER_OWNERS
from dask_slaq.core.settings import NOT_STARTED
from dask_slaq.core.text import in_threads
from dask_slaq.scheduler.current import RunningPlugin, registered_plugin
from dask_slaq.scheduler.views import core_seconds_by_day, curves_to_come, in_words, overview

#: Colors of tasks outside jobs, and of all jobs together that are not shown one by one.
UNOWNED, OTHERS = "#cccccc", "#8c8c8c"

_numbers = count()


@lru_cache(1000)
def color_of(name: str) -> str:
    """Return the color of a job, an owner, or a pool of unowned tasks.

    Colors are by order of appearance: they are further apart than by hashes of names.
    """
    if name.startswith("other:"):
        return UNOWNED
    number, tones = next(_numbers), ((0.45, 0.75), (0.65, 0.6), (0.32, 0.6))
    lightness, saturation = tones[number % len(tones)]
    # By the golden ratio, hues that follow each other differ much, and none recurs.
    hue = 0.58 + number * (5**0.5 - 1) / 2
    rgb = colorsys.hls_to_rgb(hue, lightness, saturation)
    return "#" + "".join(f"{round(255 * part):02x}" for part in rgb)


#: Seconds of the past that are shown.
PAST_SECONDS = 600.0
#: Maximum number of jobs in stacked areas, and of ended jobs in the table.
MOST_SHOWN = 20
#: Maximum number of jobs or owners with bars of their own.
MOST_BARS = 8
#: Name of the tasks outside jobs.
UNOWNED_TASKS = "unowned tasks"
#: Color of texts about jobs that have ended.
GREY = "#999999"
#: What lines and areas, bars of shares, and boxes of usage consist of.
LINE, STANDING = ("x", "y", "job", "color"), ("deserved", "got", "lent", "borrowed", "idle")
BOX = ("left", "right", "bottom", "top")
#: Columns of the table of jobs.
COLUMNS = tuple(column for column in JOB_COLUMNS if column.board)

FloatArray = NDArray[np.float64]
Columns = dict[str, list[Any]]
T = TypeVar("T")


class Plain(list[Any]):
    """Column that is sent as it is: Bokeh does not look at each of its values, once per page."""


def empty(*names: str) -> Columns:
    """Return columns of these names without rows."""
    return {name: [] for name in names}


@dataclass
class BoardData:
    """Everything that the pages show; columns are lists, as Bokeh's data sources take them.

    `note` is what to say if there is nothing to show, or something is wrong: jobs are not scheduled
    if the board is `broken`. `head` is what is in force, `capacity` the threads of all workers,
    `searches` the names of the newest searches. The
    ``outcome`` in the legend is empty for jobs that run.
    """

    note: str = ""
    head: str = ""
    capacity: int = 0
    broken: bool = False
    searches: list[str] = field(default_factory=list)
    losses: Columns = field(default_factory=lambda: empty(*LINE))
    forecasts: Columns = field(default_factory=lambda: empty(*LINE))
    bands: Columns = field(default_factory=lambda: empty(*LINE))
    threads: Columns = field(default_factory=lambda: empty(*LINE))
    shares: Columns = field(default_factory=lambda: empty("name", *STANDING))
    usage: Columns = field(default_factory=lambda: empty(*BOX, "owner", "day", "color"))
    jobs: Columns = field(default_factory=lambda: empty("color", "ink", *(c.name for c in COLUMNS)))
    legend: Columns = field(default_factory=lambda: empty("name", "owner", "color", "outcome"))


# What pages show, by scheduler and page, and until when it is used again.
_cache: WeakKeyDictionary[Scheduler, dict[str, tuple[float, Any]]] = WeakKeyDictionary()


def recent(scheduler: Scheduler, page: str, make: Callable[[], T]) -> T:
    """Return what a page shows, by `make`; the same object until it may be made again."""
    known, now = _cache.setdefault(scheduler, {}), monotonic()
    if page not in known or now > known[page][0]:
        data = make()
        # Making it takes at most a part of the time.
        # Shortest time for which data are reused.
        known[page] = now + max(1.9, 60.0 * (monotonic() - now)), data
        for old in [each for each, (until, _) in known.items() if until < now - 60]:
            del known[old]
    data = known[page][1]
    return data


def data_of(scheduler: Scheduler) -> BoardData:
    """Return the data of a scheduler's board; the same object until there are newer ones."""
    return recent(scheduler, "", lambda: _make(scheduler))


def _make(scheduler: Scheduler) -> BoardData:
    plugin = registered_plugin(scheduler)
    data = _data(plugin) if plugin is not None else _without_plugin(scheduler)
    _make_plain(data)
    return data


def _make_plain(data: BoardData) -> None:
    for columns in vars(data).values():
        for key, values in columns.items() if isinstance(columns, dict) else ():
            with suppress(TypeError, ValueError):  # Bokeh sends nan and arrays in a way of its own
                json.dumps(values, allow_nan=False)
                columns[key] = Plain(values)


def _without_plugin(scheduler: Scheduler) -> BoardData:
    stand_in: Any = scheduler.plugins.get(NOT_STARTED)
    note = "SlaqPlugin is not registered."
    if stand_in is not None:
        note = f"SlaqPlugin did not start, and plain Dask schedules all tasks: {stand_in.why}"
    return BoardData(note, capacity=scheduler.total_nthreads, broken=stand_in is not None)


def _data(plugin: RunningPlugin) -> BoardData:
    status, running = overview(plugin), list(plugin.jobs.reports)
    data = BoardData(capacity=status["capacity"])
    jobs = "1 job" if len(running) == 1 else f"{len(running)} jobs"
    data.head = f"Policy {status['policy']}, {in_threads(data.capacity)}, {jobs}."
    if status["speeds"]:
        data.head += f" {status['speeds'].capitalize()}."
    if (foretold := status["foretold"])["ended"]:
        ended, held = foretold["ended"], foretold["held"]
        data.head += f" Of the last {ended} ends, {held} were in their band."
    data.searches = plugin.searches.tables.names()[:MOST_BARS]
    if plugin.failed is not None:
        data.note = f"Plain Dask schedules all tasks, as the plugin failed: {plugin.failed}"
        data.broken = True
    elif not status["jobs"]:
        data.note = "No job is running."
    epochs = _recent_epochs(plugin, max(len(running), 1))
    for name, line in zip(epochs.names, epochs.losses, strict=True):
        known = np.flatnonzero(np.isfinite(line))
        if len(known):
            shown = slice(known[0], known[-1] + 1)
            _add_line(data.losses, epochs.seconds[shown], line[shown], name, color_of(name))
    _add_threads(data, epochs)
    if len(epochs.seconds):
        passed = -epochs.seconds[0]
        ahead = min(max(10.0, passed / 2), PAST_SECONDS / 5) if passed else 0.0
        granted = sorted(running, key=lambda name: -status["jobs"][name]["share"])
        _add_forecasts(data, plugin, granted[:MOST_SHOWN], ahead)
    used = epochs.threads[:, -1].tolist() if len(epochs.seconds) else []
    _add_shares(data, status, dict(zip([*epochs.names, UNOWNED_TASKS], used, strict=False)))
    _add_usage(data, core_seconds_by_day(plugin.jobs.accounts))
    for row in rows(status["jobs"]):
        _add_job(data, row, in_words(row["ends"]), "inherit")
    ended = _recently_ended(plugin)
    for job in list(ended.values())[:MOST_SHOWN]:
        ago = time() - job["ended"]
        age = f"{ago:.0f} s ago" if ago < 60 else f"{ago // 60:.0f} min ago"
        state = f"{job['event']} {age}"
        reason = job["message"].removeprefix(f"{job['job']}: ")
        end = f"ended at {strftime('%H:%M:%S', localtime(job['ended']))}"
        _add_job(data, {**job, "state": state, "reason": reason, "ends": None}, end, GREY)
    _add_legend(data, plugin, epochs.names, ended)
    return data


class _RecentEpochs(NamedTuple):
    """The last epochs; columns of nan and of zero threads interrupt what is drawn."""

    names: list[str]
    seconds: FloatArray  # (n_epochs,) from now, at most 0
    losses: FloatArray  # (n_jobs, n_epochs) normalized; nan where a job did not run
    threads: FloatArray  # (n_jobs + 1, n_epochs); the last row is that of tasks outside jobs


def _recent_epochs(plugin: RunningPlugin, n_jobs: int) -> _RecentEpochs:
    # Maximum number of points of all lines of a plot, though each has a few, and of one line.
    most_in_all, fewest_points, most = 4_000, 20, 300
    points = min(max(most_in_all // n_jobs, fewest_points), most)
    names, times, values = table(plugin.jobs.epochs, PAST_SECONDS, points)
    if not len(times):
        return _RecentEpochs([], times, np.empty((0, 0)), np.empty((1, 0)))
    losses, seconds = values["normalized_loss"], values["core_seconds"]
    absent = np.isnan(seconds)
    # Another job of the same name has begun.
    losses[:, 1:][seconds[:, 1:] < 0.5 * seconds[:, :-1]] = math.nan
    at, unowned = np.array(plugin.jobs.unowned.epochs or [(0.0, 0.0)]).T
    # Epochs over which threads in use are averaged.
    used = threads(times, np.vstack([seconds, np.interp(times, at, unowned)]), 10)
    used[:-1][absent] = 0.0
    # The timer stands still while no job runs.
    # Epochs without a record, beyond which lines and areas are interrupted.
    longest = 5 * max(plugin.settings.epoch, PAST_SECONDS / points)
    gaps = np.flatnonzero(np.diff(times) > longest)
    insert, ends = np.repeat(gaps + 1, 2), np.ravel([times[gaps], times[gaps + 1]], order="F")
    losses, used = np.insert(losses, insert, math.nan, axis=1), np.insert(used, insert, 0.0, axis=1)
    times = np.insert(times, insert, ends)
    times = times - (times[-1] if plugin.jobs.reports else time())
    recent = times > -PAST_SECONDS
    return _RecentEpochs(names, times[recent], losses[:, recent], used[:, recent])


def _add_threads(data: BoardData, epochs: _RecentEpochs) -> None:
    """Add one polygon per job, stacked; jobs beyond `MOST_SHOWN` form one polygon together."""
    if len(epochs.seconds) < 2:
        return
    of_jobs, unowned = epochs.threads[:-1], epochs.threads[-1]
    order = np.argsort(-of_jobs.sum(axis=1), kind="stable")
    shown = [(n := epochs.names[i], color_of(n), of_jobs[i]) for i in order[:MOST_SHOWN].tolist()]
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
            _add_line(data.threads, x, y, name, ink)
        bottom = top


def _recently_ended(plugin: RunningPlugin) -> dict[str, dict[str, Any]]:
    """Return the jobs that ended within `PAST_SECONDS` and do not run again, newest first."""
    since = time() - PAST_SECONDS
    found: dict[str, dict[str, Any]] = {}
    for job in reversed(plugin.jobs.ended):
        if job["ended"] < since:
            break
        if job["job"] not in plugin.jobs.reports:
            found.setdefault(job["job"], job)
    return found


def _add_job(data: BoardData, row: Row, end: str, ink: str) -> None:
    """Add a job to the table. Iterations stay numbers, by which it can be sorted."""
    cells: dict[str, Any] = {column.name: column.text(row) for column in COLUMNS}
    if row.get("reports", True):
        cells["iteration"] = row["iteration"]
    _add(data.jobs, {**cells, "ends": end, "color": color_of(row["job"]), "ink": ink})


def _add_legend(
    data: BoardData, plugin: RunningPlugin, names: list[str], ended: dict[str, dict[str, Any]]
) -> None:
    """Add a name for each color, by owner: running jobs, then those that have ended."""
    owners, color = plugin.jobs.owner, color_of
    found = [(owners[name], name, color(name), "") for name in plugin.jobs.reports]
    found.sort(key=lambda entry: entry[0])
    over = [name for name in names if name not in plugin.jobs.reports and name in ended]
    found += sorted((ended[n]["owner"], n, color(n), ended[n]["event"]) for n in over)
    # Maximum number of names in the legend.
    most_named = 100
    more = len(found) - most_named
    del found[most_named:]
    if more > 0:
        found.append(("", f"and {more} more", "", ""))
    for name, ink in zip(data.threads["job"], data.threads["color"], strict=True):
        if ink in (OTHERS, UNOWNED):
            found.append(("", name, ink, ""))
    for owner, name, ink, outcome in found:
        _add(data.legend, {"owner": owner, "name": name, "color": ink, "outcome": outcome})


def _add_forecasts(
    data: BoardData, plugin: RunningPlugin, names: list[str], seconds: float
) -> None:
    """Add the predicted normalized loss of each job for the `seconds` to come, and its band."""
    for name, curve in curves_to_come(plugin.jobs, names).items():
        near = curve.seconds <= seconds
        ahead = curve.seconds[near]
        line = ((curve.loss - curve.best) / curve.span)[near]
        _add_line(data.forecasts, ahead, line, name, color_of(name))
        if curve.low is None or curve.high is None:
            continue
        edges = [
            np.clip((edge - curve.best) / curve.span, -0.1, 1.2)[near]
            for edge in (curve.low, curve.high)
        ]
        x = np.concatenate([ahead, ahead[::-1]])
        y = np.concatenate([edges[0], edges[1][::-1]])
        _add_line(data.bands, x, y, name, color_of(name))


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
        found = standings(shares, {name: recent.get(name, 0.0) for name in shares})
    names = sorted(found, key=lambda name: -max(found[name]["deserved"], found[name]["got"]))
    bars = [[name] for name in names[:MOST_BARS]]
    if others := names[MOST_BARS:]:
        bars.append(others)
    for bar in bars:
        summed = {key: round(sum(found[name][key] for name in bar), 2) for key in STANDING}
        _add(data.shares, {"name": bar[0] if len(bar) == 1 else f"{len(bar)} others", **summed})


def _add_usage(data: BoardData, by_day: dict[tuple[int, str], float]) -> None:
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
        begin = day * DAY_SECONDS * 1000  # Bokeh's dates are in milliseconds
        box = {
            "left": begin,
            "right": begin + 0.9 * DAY_SECONDS * 1000,
            "bottom": at[day],
            "top": at[day] + seconds,
            "owner": owner or "(none)",
            "day": begin,
            "color": OTHERS if owner == OTHER_OWNERS else color_of(owner),
        }
        at[day] += seconds
        _add(data.usage, box)


def _add(columns: Columns, row: Mapping[str, Any]) -> None:
    for key, value in row.items():
        columns[key].append(value)


def _add_line(columns: Columns, x: FloatArray, y: FloatArray, name: str, color: str) -> None:
    # More digits are not seen, but sent.
    points = {"x": x.round(2).tolist(), "y": y.round(5).tolist()}
    _add(columns, {**points, "job": name, "color": color})
