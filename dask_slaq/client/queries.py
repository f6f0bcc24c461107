"""Queries to the scheduler: status and history of jobs, explanations, task bindings, usage."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dask.utils import parse_timedelta

from dask_slaq.client.connection import ask, current_client, owner_of_client, request
from dask_slaq.client.live import Status
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.columns import JOB_COLUMNS
from dask_slaq.core.owners.usage import check_by
from dask_slaq.core.settings import is_number, shown

if TYPE_CHECKING:
    import xarray
    from distributed import Client


def status(client: Client | None = None) -> Status:
    """Return the current status of the plugin and of every job.

    Parameters
    ----------
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    Status
        A dict, which notebooks show as a table: ``policy``; ``epoch`` (seconds); ``capacity``
        (threads); ``holding`` (whether tasks are held in pools now); ``failed`` (why the plugin
        left all tasks to plain Dask, or None); ``jobs``, a dict per job by name, whose keys
        `dask_slaq.core.jobs.columns.JOB_COLUMNS` describes; ``owners``, a dict per owner;
        ``teams``, one per team of owners, by its name with a slash;
        ``speeds``, how many workers surely differ from the others (empty if none does).

    Raises
    ------
    NoPlugin

    See Also
    --------
    explain : why one job has what it has.

    Examples
    --------
    >>> status()["jobs"]["logreg-C0.1"]["loss"]  # doctest: +SKIP
    0.31
    """
    return ask(client, "slaq_status", Status)


def explain(job: str, client: Client | None = None) -> dict[str, Any]:
    """Return why a job has the threads that it has, or waits.

    Parameters
    ----------
    job : str
        Name of a running job, or of one that ended within a day.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    dict
        ``text`` is for people. Of a job that has ended, there are ``job`` and ``state`` besides, as
        ``event`` of `ended`. The rest is the job's `status` and ``policy``, ``epoch``,
        ``would_change`` (what would give it more threads, as sentences), and, or None if unknown:
        ``next_slot`` (seconds until a thread is free), ``next_thread`` (predicted fall of the
        normalized loss in an epoch by one more thread), ``competing`` (``job``, ``next_thread``: of
        the best use of another thread), ``yields`` (how its owner's weight counts because of what
        it used lately), ``last_sent`` (why its newest running task went to its worker).

    Raises
    ------
    UnknownJob, NoPlugin

    Examples
    --------
    >>> print(explain("logreg-C0.1")["text"])  # doctest: +SKIP
    """
    return ask(client, "slaq_explain", job=job)


def whatif(workers: int | None = None, client: Client | None = None) -> dict[str, Any]:
    """Return how many workers pay for the jobs that run now, and what another number would change.

    Parameters
    ----------
    workers : int, optional
        Number of workers to compare with those that are there; the number that pays by default.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    dict
        ``text`` is for people. ``workers`` are there, and ``target`` pay. Of those asked for:
        ``last`` (seconds sooner at which the last job ends), ``seconds`` (of all jobs together),
        ``jobs`` (how many end sooner), ``cost`` (of the workers) and ``worth`` (of the time), in
        the unit of ``price`` in ``slaq.scaling``; without it, in worker-hours.

    Raises
    ------
    InvalidSetting, NoPlugin

    Examples
    --------
    >>> print(whatif(workers=16)["text"])  # doctest: +SKIP
    16 workers instead of 8: all ends 12 min sooner, for 0.80 more
    """
    return ask(client, "slaq_whatif", workers=workers)


def ended(client: Client | None = None) -> list[dict[str, Any]]:
    """Return the jobs that ended within a day, oldest first.

    Parameters
    ----------
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    list of dict
        ``job``, ``owner``, ``event`` (``done``, ``stopped``, ``failed`` or ``lost``),
        ``iteration``, ``loss``, ``seconds``, ``core_seconds``, ``ended`` (Unix seconds) and
        ``message``.

    Raises
    ------
    NoPlugin

    Examples
    --------
    >>> [end["job"] for end in ended() if end["event"] == "failed"]  # doctest: +SKIP
    """
    return ask(client, "slaq_ended")


def workers(client: Client | None = None) -> dict[str, dict[str, Any]]:
    """Return how long tasks take on each worker, relative to a median worker; see `workers_of`.

    It is by address. With an asynchronous client, an awaitable is returned.
    """
    return ask(client, "slaq_workers")


def history(client: Client | None = None) -> xarray.Dataset:
    """Return the progress and share of every job in each epoch that the scheduler remembers.

    Parameters
    ----------
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    xarray.Dataset
        Variables of shape (job, epoch), nan where a job did not run: ``iteration``, ``loss``,
        ``normalized_loss``, ``predicted``, ``share`` (threads), ``running`` (tasks),
        ``core_seconds`` (used so far). The coordinate ``time`` (epoch) is in unix seconds.

    Raises
    ------
    NoPlugin

    Examples
    --------
    >>> history().loss.sel(job="logreg-C0.1").plot()  # doctest: +SKIP
    """
    client = current_client(client)
    return client.sync(history_of, client)


def bindings(client: Client | None = None) -> list[dict[str, Any]]:
    """Return the task bindings that the scheduler remembers, oldest first, a dict per task sent.

    ``time`` is in Unix seconds; ``reason`` is ``granted``, ``floor`` (the job was behind its
    floor), ``lent`` (the worker is outside the job's worker set), or ``passed`` (the task was not
    held, as a pinned task, or any task without contention); ``why`` says it in words.
    """
    names = ("time", "key", "job", "worker", "reason", "why")
    return ask(
        client, "slaq_bindings", lambda rows: [dict(zip(names, row, strict=True)) for row in rows]
    )


def usage(
    since: str | float | None = None,
    by: str | Sequence[str] = "owner",
    client: Client | None = None,
) -> dict[str, Any]:
    """Return what was used of the cluster, by jobs and outside of them.

    Parameters
    ----------
    since : str or float, optional
        How far back, such as ``"7d"``, or in seconds. Days count as a whole, in UTC. All usage by
        default.
    by : str or sequence of str
        What to sum by: ``"owner"``, ``"kind"`` (of job), ``"job"`` (name) or ``"day"``, or several.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    dict
        ``rows``: a dict per owner, kind, job or day, with ``core_seconds``, ``waited`` (seconds in
        which jobs had tasks to run and no thread), ``jobs`` (that ended), and of these ``done``,
        ``stopped``, ``failed`` and ``lost``; work outside of jobs has an empty kind and job.
        ``budgets``: a dict per budget: ``owner``, ``core_hours``, ``used`` and ``left`` of the last
        ``days``, ``over``, ``text``. Or None: ``file`` (where it is kept), ``since`` (Unix seconds,
        if usage is known only since then), ``note`` (what is missing, in words).

    Raises
    ------
    InvalidSetting, NoPlugin

    Examples
    --------
    >>> usage("7d", by=["owner", "kind"])["rows"]  # doctest: +SKIP
    """
    by, seconds = check_by(by), seconds_of(since)
    return ask(client, "slaq_usage", by=by, seconds=seconds)


def seconds_of(time: object, name: str = "since", example: str = "7d or 12h") -> float | None:
    """Return a time in seconds, None for None. Raises `InvalidSetting` with the `name` of it."""
    if time is None:
        return None
    try:
        # Dask knows minutes as "m" only.
        text: Any = re.sub(r"(?<=\d)\s*min$", "m", time) if isinstance(time, str) else time
        seconds = math.nan if isinstance(time, bool) else float(parse_timedelta(text))
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise InvalidSetting(f"{name} must be a time such as {example}, not {shown(time)}")
    return seconds


async def history_of(client: Client) -> xarray.Dataset:
    """Return the history of all jobs; see `history`."""
    pieces: list[dict[str, Any]] = []
    start: int | None = 0
    stop: int | None = None
    while start is not None:
        piece = await request(client, "slaq_history", start=start, stop=stop)
        pieces.append(piece)
        start, stop = piece["next"], piece["stop"]
    return dataset(pieces)


def dataset(pieces: list[dict[str, Any]]) -> xarray.Dataset:
    """Combine pieces of epochs into one Dataset; see `dask_slaq.core.jobs.history.Epochs.read`."""
    import numpy as np
    import xarray as xr

    from dask_slaq.core.jobs.history import ROW

    rows = [np.frombuffer(piece["rows"], ROW) for piece in pieces]
    places: dict[str, int] = {}  # row of each job in the dataset, in order of appearance
    job = np.concatenate([_places(r, p, places) for r, p in zip(rows, pieces, strict=True)])
    times = np.concatenate([np.array(piece["times"], float) for piece in pieces])
    sizes = np.concatenate([np.array(piece["sizes"], int) for piece in pieces])
    epoch = np.repeat(np.arange(len(sizes)), sizes)
    found = {}
    for column in JOB_COLUMNS:
        if column.kept:
            values = np.full((len(places), len(sizes)), np.nan)
            values[job, epoch] = np.concatenate([r[column.name] for r in rows])
            about = {"long_name": column.about, "units": column.unit}
            found[column.name] = ("job", "epoch"), values, about
    return xr.Dataset(
        found,
        coords={
            "job": np.array(list(places), dtype=object),
            "epoch": np.arange(len(sizes)),
            "time": ("epoch", times, {"long_name": "unix time of the epoch", "units": "s"}),
        },
    )


def _places(rows: Any, piece: dict[str, Any], places: dict[str, int]) -> Any:
    """Return the dataset row of the job of each of `rows`; new jobs are appended to `places`."""
    import numpy as np

    name_of = dict(zip(piece["numbers"], piece["names"], strict=True))
    numbers, first, which = np.unique(rows["job"], return_index=True, return_inverse=True)
    for number in numbers[np.argsort(first)].tolist():
        places.setdefault(name_of[number], len(places))
    return np.array([places[name_of[number]] for number in numbers.tolist()], int)[which]


def reserve(
    owner: str,
    threads: float,
    begin: str | float | datetime | None,
    end: str | float | datetime,
    client: Client | None = None,
) -> dict[str, Any]:
    """Reserve threads for an owner: in that time it deserves at least these.

    What it does not use is lent, and running tasks of others end first. It lasts over restarts of
    the scheduler if ``slaq.run-history`` names a file.

    Parameters
    ----------
    owner : str
        ``ann@desk``, or ``ann`` for all of her machines together.
    threads : float
        Threads, above 0.
    begin, end : str, float or datetime.datetime
        Times of this machine, as ``"18:00"`` (the next one) or ``"2026-11-30 18:00"``; or Unix
        seconds. None begins now.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    dict
        ``number``, ``owner``, ``threads``, ``begin`` and ``end`` in Unix seconds, and as ``note``
        that more is reserved than the cluster has now, or None.

    Raises
    ------
    InvalidSetting, NotAllowed, NoPlugin
        Nothing was reserved.

    Examples
    --------
    >>> reserve("ann", 16, "18:00", "22:00")["number"]  # doctest: +SKIP
    1
    """
    first, last = span_of(begin, end, time.time())
    terms = {"owner": owner, "threads": threads, "begin": first, "end": last}
    return ask(client, "slaq_reserve", by=owner_of_client(), **terms)


def unreserve(number: int, client: Client | None = None) -> None:
    """Remove a reservation.

    Parameters
    ----------
    number : int
        The ``number`` of it, see `reserve` and `reservations`.
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Raises
    ------
    InvalidSetting, NotAllowed, NoPlugin
        Nothing was removed.

    Examples
    --------
    >>> unreserve(1)  # doctest: +SKIP
    """
    return ask(client, "slaq_unreserve", by=owner_of_client(), number=number)


def reservations(client: Client | None = None) -> list[dict[str, Any]]:
    """Return the reservations that have not ended, by when they begin.

    Parameters
    ----------
    client : distributed.Client, optional
        Defaults to the current client. With an asynchronous client, an awaitable is returned.

    Returns
    -------
    list of dict
        The keys of `reserve` but ``note``, and ``now``, whether it counts now.

    Raises
    ------
    NoPlugin

    Examples
    --------
    >>> [each["owner"] for each in reservations() if each["now"]]  # doctest: +SKIP
    ['ann']
    """
    return ask(client, "slaq_reservations")


def span_of(begin: object, end: object, now: float) -> tuple[float, float]:
    """Return two times in Unix seconds; times of a day are the next that end after `now`.

    Raises `InvalidSetting`.
    """
    last = _moment("to", end, now, later=True)
    first = now if begin is None else _moment("from", begin, last, later=False)
    return first, last


def _moment(name: str, value: object, near: float, later: bool) -> float:
    """Return a time in Unix seconds; a time of day is the next or last one at a time `near`."""
    if is_number(value):
        return float(value)
    try:
        if isinstance(value, datetime):
            return value.timestamp()
        text = str(value).strip()
        if not re.fullmatch(r"\d{1,2}:\d{2}", text):
            return datetime.fromisoformat(text).timestamp()
        hour, minute = map(int, text.split(":"))
        at = datetime.fromtimestamp(near).replace(hour=hour, minute=minute, second=0, microsecond=0)
    except (ValueError, OverflowError, OSError):
        raise InvalidSetting(
            f"{name} must be a time such as 18:00 or '2026-11-30 18:00', not {shown(value)}"
        ) from None
    if later and at.timestamp() <= near:
        at += timedelta(days=1)
    if not later and at.timestamp() >= near:
        at -= timedelta(days=1)
    return at.timestamp()
