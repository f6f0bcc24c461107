"""Trials of a search as rows, a DataFrame, curves, and HTML."""

from __future__ import annotations

import concurrent.futures
import inspect
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict

import dask
import numpy as np
from dask.tokenize import tokenize
from dask.utils import key_split
from distributed import Client, Future
from distributed.protocol import pickle

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_whole, shown
from dask_slaq.core.text import duration, in_cell, number
from dask_slaq.core.trials import STATE_COLORS, as_parameters

if TYPE_CHECKING:
    import pandas
    import xarray
    from dask.typing import Key


#: Columns of a DataFrame before the parameters, and after them.
FIRST = ("loss", "state", "iteration")
LAST = (
    *("lowest", "lowest_step", "predicted", "low", "high", "began", "ended"),
    *("computed", "waited", "worker", "error", "trial", "key"),
)

Row = dict[str, Any]


class Trial(TypedDict):
    """Row of `Search.trials`: what one model does."""

    #: Of its task and result; and its number, where one task trains several models.
    key: Key
    trial: int
    #: Plain arguments of the call, or parameters of Optuna's trial; of a model that has not
    #: reported, only what `Search.map` knows.
    params: dict[str, Any]
    #: ``pending``, ``training``, ``waiting`` in a report, ``migrating``, ``stalled``,
    #: ``done``, ``pruned``, ``stopped``, ``failed`` or ``retried``; the error with which it failed.
    state: str
    error: str
    #: The last loss, as it was reported, and its step; the lowest, and its step.
    loss: float
    iteration: int
    lowest: float
    lowest_step: int
    #: Predicted final loss and its 80 % band, nan without a forecast, and once it has ended.
    predicted: float
    low: float
    high: float
    #: Unix seconds; seconds of computing, and of waiting in reports; address of its worker.
    began: float
    ended: float
    computed: float
    waited: float
    worker: str
    #: Steps and losses, at most 500 points; last values of other metrics, and their curves.
    curve: list[tuple[int, float]]
    metrics: dict[str, float]
    curves: dict[str, list[tuple[int, float]]]


class Best(NamedTuple):
    """Best model of a search: its `params`, its last `loss`, and the `future` of its result.

    The future is None if this client no longer holds the result.
    """

    params: dict[str, Any]
    loss: float
    future: Future[Any] | concurrent.futures.Future[Any] | None


def read_rows(
    sent: Sequence[Mapping[str, Any]], given: Mapping[Any, Mapping[str, Any]]
) -> list[Row]:
    """Return the rows that the scheduler sent, with their curves as lists of step and loss.

    `given` are parameters by key of the task, which this client knows better.
    """
    rows = []
    for each in sent:
        row = dict(each)
        others = row.pop("others", {})
        row["params"] = as_parameters(given.get(row["key"]) or row["params"])
        row["curve"] = _points(row.pop("steps", b""), row.pop("losses", b""))
        row["curves"] = {name: _points(*packed) for name, packed in others.items()}
        rows.append(row)
    return rows


def _points(steps: bytes, values: bytes) -> list[tuple[int, float]]:
    numbers = np.frombuffer(steps, np.int64).tolist(), np.frombuffer(values, float).tolist()
    return list(zip(*numbers, strict=True))


def best_row(rows: Sequence[Row], maximize: bool, by: str = "loss") -> Row | None:
    """Return the row of the model that is done with the lowest loss, or the highest score."""
    done = [row for row in rows if row["state"] == "done" and math.isfinite(row[by])]
    sign = -1.0 if maximize else 1.0
    return min(done, key=lambda row: sign * row[by], default=None)


def in_order(rows: Sequence[Row], maximize: bool) -> list[Row]:
    """Return the rows with the best loss first, and those without one last."""
    sign = -1.0 if maximize else 1.0
    return sorted(rows, key=lambda r: (not math.isfinite(r["loss"]), sign * r["loss"]))


def names_of(rows: Sequence[Row]) -> list[str]:
    """Return the names of all parameters, in order of appearance."""
    return list(dict.fromkeys(name for row in rows for name in row["params"]))


def as_frame(rows: Sequence[Row], maximize: bool) -> pandas.DataFrame:
    """Return a DataFrame with one row per trial, the best first; see `Search.results`."""
    import pandas as pd

    rows, names = in_order(rows, maximize), names_of(rows)
    columns: dict[str, Any] = {name: [row[name] for row in rows] for name in FIRST}
    for name in dict.fromkeys(name for row in rows for name in row["metrics"]):
        columns[f"metrics_{name}"] = [row["metrics"].get(name, math.nan) for row in rows]
    columns |= {name: [row[name] for row in rows] for name in LAST}
    for name in ("began", "ended"):
        columns[name] = pd.to_datetime(columns[name], unit="s", utc=True)
    for name in names:  # at the end, which a narrow terminal shows as it shows the beginning
        columns[f"params_{name}"] = pd.Series([row["params"].get(name) for row in rows])
    return pd.DataFrame(columns)


def as_curves(rows: Sequence[Row], metric: str | None = None) -> xarray.DataArray:
    """Return the losses of all trials by step, or another metric; see `Search.curves`."""
    import xarray as xr

    curves = [row["curve"] if metric is None else row["curves"].get(metric, []) for row in rows]
    steps = sorted({step for curve in curves for step, _ in curve})
    place = {step: i for i, step in enumerate(steps)}
    losses = np.full((len(rows), len(steps)), math.nan)
    for i, curve in enumerate(curves):
        for step, loss in curve:
            losses[i, place[step]] = loss
    coords: dict[str, Any] = {
        "model": range(len(rows)),
        "step": steps,
        "state": ("model", [row["state"] for row in rows]),
        "key": ("model", np.array([str(row["key"]) for row in rows], dtype=object)),
    }
    for name in names_of(rows):
        values = np.empty(len(rows), dtype=object)
        values[:] = [row["params"].get(name) for row in rows]
        if all(isinstance(v, int | float) and not isinstance(v, bool) for v in values):
            values = values.astype(float)
        coords[f"params_{name}"] = "model", values
    return xr.DataArray(losses, coords, ("model", "step"), metric or "loss")


def in_words(rows: Sequence[Row]) -> str:
    """Return how many trials are in each state."""
    counts = Counter(row["state"] for row in rows)
    parts = [f"{counts[state]} {state}" for state in reversed(STATE_COLORS) if counts[state]]
    return ", ".join(parts) or "no models yet"


def in_short(rows: Sequence[Row], maximize: bool) -> str:
    """Return how many trials are done, the best loss, and what the others do."""
    counts = Counter(
        {"training": "train", "waiting": "wait"}.get(s, s) for s in (r["state"] for r in rows)
    )
    parts = [f"{counts.pop('done', 0)} of {len(rows)} done"]
    if (best := best_row(rows, maximize)) is not None:
        parts.append(f"best {number(best['loss'])}")
    return ", ".join([*parts, *(f"{count} {state}" for state, count in counts.items())])


def as_cells(
    rows: Sequence[Row], maximize: bool, most: int = 20, most_names: int = 8
) -> tuple[list[str], list[list[str]]]:
    """Return the heading and the texts of a table of the best trials, with some parameters."""
    ranked = in_order(rows, maximize)[:most]
    names = names_of(ranked)[:most_names]
    head = ["", "loss", "predicted", "state", "step", *names, "computed"]
    return head, [
        [
            str(place),
            number(row["loss"]),
            number(row["predicted"]),
            row["state"],
            str(row["iteration"]),
            *(in_cell(row["params"].get(name, "")) for name in names),
            duration(row["computed"]),
        ]
        for place, row in enumerate(ranked, 1)
    ]


def as_html(name: str, rows: Sequence[Row], maximize: bool) -> str:
    """Return a table of the best trials for notebooks."""
    head, body = as_cells(rows, maximize)
    more = len(rows) - len(body)
    return (
        f"<div>search <b>{escape(name)}</b>: {in_words(rows)}</div><table><thead>"
        + html_row("th", head)
        + "</thead><tbody>"
        + "".join(html_row("td", cells) for cells in body)
        + "</tbody></table>"
        + (f"<div>and {more} more: <code>results()</code> has all</div>" if more > 0 else "")
    )


def html_row(tag: str, cells: Sequence[str], style: str = "") -> str:
    """Return the row of a table."""
    return "<tr>" + "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for cell in cells) + "</tr>"


#: Annotations with the names of the last state in Dask's memory, and with the task that kept it.
STATE, FROM = "slaq_state", "slaq_from"


def check_models(keys: Iterable[Any] | None, best: int | None, steps: int) -> dict[str, Any]:
    """Return which models train on, as the scheduler is asked. Raises `InvalidSetting`."""
    if (keys is None) == (best is None):
        raise InvalidSetting("train_on needs either keys or best")
    if best is not None and not is_whole(best, 1):
        raise InvalidSetting(f"best must be a number of models >= 1, not {shown(best)}")
    if not is_whole(steps, 1):
        raise InvalidSetting(f"steps must be a number of steps >= 1, not {shown(steps)}")
    if isinstance(keys, str | bytes | Future):
        keys = [keys]
    some = None if keys is None else [k.key if isinstance(k, Future) else k for k in keys]
    return {"keys": some, "best": best, "steps": steps}


def submit_again(
    client: Client,
    rows: Iterable[Mapping[str, Any]],
    annotations: Mapping[str, Any],
    changes: Mapping[str, Any],
) -> list[Future[Any]]:
    """Submit the task of each row again, with some keyword arguments changed.

    Returns their futures. Raises `InvalidSetting` if a function does not take the arguments.
    """
    made = []
    for row in rows:
        task, before = pickle.loads(row["task"]), row["key"]
        key = f"{key_split(before)}-on-{tokenize(before, dict(changes))}"
        made.append((_changed(task, key, changes), {STATE: row["states"] or None, FROM: before}))
    found = []
    for task, known in made:
        with dask.annotate(**annotations, **known):
            found += client.get({task.key: task}, [task.key], sync=False)
    return found


def _changed(task: Any, key: str, changes: Mapping[str, Any]) -> Any:
    """Return a task like another one, with some keyword arguments changed."""
    func, args = getattr(task, "func", None), getattr(task, "args", ())
    arguments = {**(getattr(task, "kwargs", None) or {}), **changes}
    try:
        inspect.signature(func).bind(*args, **arguments)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        name = getattr(func, "__name__", func)
        raise InvalidSetting(
            f"{name} cannot train on: it must take its number of steps as the keyword argument "
            f"'steps', as in client.map({name}, grid, steps=40), or train_on other ones ({error})"
        ) from error
    return type(task)(key, func, *args, **arguments)
