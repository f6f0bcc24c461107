"""Data of the page of a search: curves, threads, parameters and the table of its models."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import islice
from time import monotonic
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from distributed import Scheduler

from dask_slaq.core.text import in_cell, number, printable
from dask_slaq.core.trials import STATE_COLORS, SearchSettings
from dask_slaq.scheduler.current import registered_plugin

#: Seconds for which data are reused: at least, and per second that it took to compute them.
FRESH, FRESH_PER_SECOND = 1.9, 60.0
#: Maximum number of points of all curves, though each has at least `FEWEST_POINTS`.
MOST_IN_ALL, FEWEST_POINTS = 12_000, 6
#: Maximum number of axes of parameters, of rows of the table, and of workers.
MOST_AXES, MOST_ROWS, MOST_WORKERS = 8, 500, 40
#: Characters of a value that are shown.
LONGEST = 24
#: Ratio of the largest and the smallest value above which an axis is logarithmic.
WIDE = 50.0
#: Number of models above which all but the first are faint, and only these have their forecast;
#: and how opaque these are.
MANY, FIRST, FAINT = 60, 10, 0.25
#: Part of the losses, from the lowest, that the plot of curves shows.
SHOWN = 0.97

Columns = dict[str, list[Any]]
LINE = ("x", "y", "color", "alpha", "width", "model", "state", "loss", "params")


def _empty(*names: str) -> Columns:
    return {name: [] for name in names}


@dataclass
class SearchData:
    """Everything that the page of one search shows, as columns for Bokeh."""

    head: str = ""
    curves: Columns = field(default_factory=lambda: _empty(*LINE))
    forecasts: Columns = field(default_factory=lambda: _empty(*LINE))
    threads: Columns = field(
        default_factory=lambda: _empty("worker", "left", "right", "color", "model", "state", "loss")
    )
    workers: list[str] = field(default_factory=list)
    parallel: Columns = field(default_factory=lambda: _empty(*LINE))
    ticks: Columns = field(default_factory=lambda: _empty("x", "y", "text"))
    axes: list[str] = field(default_factory=list)
    table: Columns = field(default_factory=dict)
    low: float = 0.0  # of the losses that the plot shows
    high: float = 1.0


def searches_of(scheduler: Scheduler) -> list[str]:
    """Return the names of the searches that run or ended lately, the newest first."""
    plugin = registered_plugin(scheduler)
    return [] if plugin is None else plugin.searches.tables.names()


_cache: WeakKeyDictionary[Scheduler, dict[str, tuple[float, SearchData]]] = WeakKeyDictionary()


def search_data_of(scheduler: Scheduler, name: str) -> SearchData:
    """Return the data of a search; the same object until there are newer ones."""
    known, now = _cache.setdefault(scheduler, {}), monotonic()
    if name not in known or now > known[name][0]:
        plugin = registered_plugin(scheduler)
        data = SearchData(f"No search {printable(name)!r} is known.")
        if plugin is not None:
            rows, settings = plugin.searches.tables.table(name)
            if settings is not None:
                workers = {w.address: (w.name, w.nthreads) for w in scheduler.workers.values()}
                data = make_data(name, rows, settings, workers)
        took = monotonic() - now
        known[name] = now + max(FRESH, FRESH_PER_SECOND * took), data
        for old in [each for each, (until, _) in known.items() if until < now - 60]:
            del known[old]
    return known[name][1]


def make_data(
    name: str,
    rows: list[dict[str, Any]],
    settings: SearchSettings,
    workers: dict[str, tuple[Any, int]],
) -> SearchData:
    """Return the data of a search from its trials, and name and threads of workers by address."""
    data, sign = SearchData(), -1.0 if settings.maximize else 1.0
    order = list(STATE_COLORS)
    for i, row in enumerate(rows):
        row["model"] = i
        row["text"] = ", ".join(f"{k}={in_cell(v)}" for k, v in list(row["params"].items())[:8])
    ranked = sorted(rows, key=lambda r: (not math.isfinite(r["loss"]), sign * r["loss"]))
    counts = [(state, sum(row["state"] == state for row in rows)) for state in reversed(order)]
    counted = ", ".join(f"{n} {state}" for state, n in counts if n)
    best = f"; best {number(ranked[0]['loss'])}" if ranked and ranked[0]["iteration"] else ""
    data.head = f"Search {printable(name)}: {counted or 'no models yet'}{best}."
    drawn = sorted(rows, key=lambda row: order.index(row["state"]))
    _add_curves(data, drawn, settings)
    _add_threads(data, ranked, workers)
    _add_parallel(data, [row for row in reversed(ranked) if math.isfinite(row["loss"])])
    _add_table(data, ranked)
    return data


def _add_curves(data: SearchData, rows: list[dict[str, Any]], settings: SearchSettings) -> None:
    points = max(MOST_IN_ALL // max(len(rows), 1), FEWEST_POINTS)
    sign = -1.0 if settings.maximize else 1.0
    first = _first(rows, "loss", sign), _first(rows, "predicted", sign)
    rows = sorted(rows, key=lambda row: row["model"] in first[0])  # over the others
    longest = max((row["iteration"] for row in rows), default=0)
    known = []
    for row in rows:
        x = np.frombuffer(row.get("steps", b""), np.int64)
        y = np.frombuffer(row.get("losses", b""), float)
        if not len(x):
            continue
        if len(x) > points:
            some = np.unique(np.linspace(0, len(x) - 1, points).round().astype(int))
            x, y = x[some], y[some]
        known.append(y)
        many, best = len(rows) > MANY, row["model"] in first[0]
        width = 2 if (best if many else row["state"] == "training") else 1
        _add(data.curves, row, x.tolist(), y.tolist(), FAINT if many and not best else 0.9, width)
        end = max(settings.steps or longest, row["iteration"] + 1)
        if row["model"] in first[1]:
            known.append(np.array([row["predicted"]]))
            line = [row["iteration"], end], [row["loss"], row["predicted"]]
            _add(data.forecasts, row, *line, 0.5, 1)
    if known:
        # The first losses of bad models would take the whole plot.
        losses = np.concatenate(known)
        cut = (0.0, SHOWN) if not settings.maximize else (1 - SHOWN, 1.0)
        low, high = np.quantile(losses, cut).tolist()
        room = 0.05 * (high - low) or max(abs(high), 1.0) * 0.05
        data.low, data.high = low - room, high + room


def _first(rows: list[dict[str, Any]], by: str, sign: float) -> set[int]:
    """Return the models that stand out: the best by a loss, or all if there are not many."""
    some = sorted((r for r in rows if math.isfinite(r[by])), key=lambda r: sign * r[by])
    return {row["model"] for row in (some if len(rows) <= MANY else some[:FIRST])}


def _add_threads(
    data: SearchData, ranked: list[dict[str, Any]], workers: dict[str, tuple[Any, int]]
) -> None:
    """Add a box per thread of a worker, and behind them one per model that waits there."""
    at: defaultdict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in ranked:
        if row["state"] in ("training", "waiting"):
            at[row["worker"]][row["state"]].append(row)
    for address in sorted(at, key=str)[:MOST_WORKERS]:
        name, threads = workers.get(address, (address, 0))
        label = printable(name)[:LONGEST]
        data.workers.append(label)
        train, wait = at[address]["training"], at[address]["waiting"]
        free: list[Any] = [None] * max(threads - len(train), 0)
        boxes = [*train, *free, *wait]
        for place, row in enumerate(boxes):
            data.threads["worker"].append(label)
            data.threads["left"].append(place + 0.05)
            data.threads["right"].append(place + 0.95)
            data.threads["color"].append("#f4f4f4" if row is None else STATE_COLORS[row["state"]])
            data.threads["model"].append("" if row is None else row["text"] or str(row["key"]))
            data.threads["state"].append("free for others" if row is None else row["state"])
            data.threads["loss"].append("" if row is None else number(row["loss"]))


def _add_parallel(data: SearchData, rows: list[dict[str, Any]]) -> None:
    """Add a line per model through its parameters to its loss, the best ones on top."""
    names = _names(rows)
    if not names or len(rows) < 2:
        return
    data.axes = [*names, "loss"]
    columns: dict[str, list[Any]] = {n: [row["params"].get(n) for row in rows] for n in names}
    columns["loss"] = [row["loss"] for row in rows]
    places = []
    for i, name in enumerate(data.axes):
        at, ticks = _scaled(columns[name])
        places.append(at)
        for y, text in ticks:
            for key, value in (("x", i), ("y", y), ("text", text)):
                data.ticks[key].append(value)
    n = len(rows)
    sharp = max(3.0, n / 10)  # some ten of them are dark, however many there are
    for j, row in enumerate(rows):
        line, part = (list(range(len(data.axes))), [at[j] for at in places]), (j + 1) / n
        _add(data.parallel, row, *line, 0.25 + 0.65 * part**sharp, 1 if j < n - 5 else 2)
        data.parallel["color"][-1] = _shade(part ** (sharp / 3))


def _names(rows: list[dict[str, Any]]) -> list[str]:
    """Return the names of the parameters in which models differ, the first ones."""
    rows = [row for row in rows if row["params"]]  # others have not reported
    names = dict.fromkeys(name for row in rows for name in row["params"])
    differ = (n for n in names if len({repr(row["params"].get(n)) for row in rows}) > 1)
    return list(islice(differ, MOST_AXES))


def _scaled(values: list[Any]) -> tuple[list[float], list[tuple[float, str]]]:
    """Return the values as places on an axis from 0 to 1, and its ticks."""
    numbers = [v for v in values if isinstance(v, int | float) and not isinstance(v, bool)]
    if len(numbers) == len(values) and all(math.isfinite(v) for v in numbers):
        low, high = float(min(numbers)), float(max(numbers))
        log = low > 0 and high > WIDE * low
        at = np.log(np.array(numbers, float)) if log else np.array(numbers, float)
        span = max(float(at.max() - at.min()), 1e-300)
        middle = math.sqrt(low * high) if log else (low + high) / 2
        ticks = [(0.0, number(low, 3)), (0.5, number(middle, 3)), (1.0, number(high, 3))]
        return ((at - at.min()) / span).tolist(), ticks
    kinds = sorted({in_cell(value) for value in values})
    step = 1.0 / max(len(kinds) - 1, 1)
    place = {kind: i * step for i, kind in enumerate(kinds)}
    shown = [(place[kind], kind) for kind in kinds[:: max(len(kinds) // 12, 1)]]
    return [place[in_cell(value)] for value in values], shown


def _add_table(data: SearchData, ranked: list[dict[str, Any]]) -> None:
    rows = ranked[:MOST_ROWS]
    names = _names(rows)
    data.table = {
        "rank": list(range(1, len(rows) + 1)),
        "color": [STATE_COLORS[row["state"]] for row in rows],
        "state": [row["state"] for row in rows],
        "loss": [_finite(row["loss"]) for row in rows],
        "predicted": [_finite(row["predicted"]) for row in rows],
        "step": [row["iteration"] for row in rows],
        **{
            f"params {name}": [in_cell(row["params"].get(name, "")) for row in rows]
            for name in names
        },
        "computed": [round(row["computed"], 2) for row in rows],
        "waited": [round(row["waited"], 2) for row in rows],
        "worker": [row["worker"] for row in rows],
        "error": [printable(row["error"]) for row in rows],
    }


def _add(
    columns: Columns, row: dict[str, Any], x: list[Any], y: list[Any], alpha: float, width: float
) -> None:
    values = (x, y, STATE_COLORS[row["state"]], alpha, width, str(row["model"]), row["state"])
    for key, value in zip(LINE, (*values, number(row["loss"]), row["text"]), strict=True):
        columns[key].append(value)


def _shade(part: float) -> str:
    """Return a color from light grey, for the worst model, to dark blue, for the best."""
    ends = (0xD8, 0xDC, 0xE0), (0x08, 0x3D, 0x8C)
    rgb = (round(a + (b - a) * part**2) for a, b in zip(*ends, strict=True))
    return "#" + "".join(f"{value:02x}" for value in rgb)


def _finite(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None
