"""Reservations of threads for owners, by operators."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dask_slaq.client.connection import ask, owner_of_client
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_number, shown

if TYPE_CHECKING:
    from distributed import Client


def reserve(
    owner: str,
    threads: float,
    begin: str | float | datetime | None,
    end: str | float | datetime,
    client: Client | None = None,
) -> Any:
    """Reserve threads for an owner: in that time it deserves at least these.

    What it does not use is lent, and running tasks of others end first. It lasts over restarts of
    the scheduler if ``slaq.memory`` names a file.

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
    """
    first, last = span_of(begin, end, time.time())
    said = {"owner": owner, "threads": threads, "begin": first, "end": last}
    return ask(client, "slaq_reserve", by=owner_of_client(), **said)


def unreserve(number: int, client: Client | None = None) -> Any:
    """Remove a reservation by its number. See `reserve` and `reservations`."""
    return ask(client, "slaq_unreserve", by=owner_of_client(), number=number)


def reservations(client: Client | None = None) -> Any:
    """Return the reservations that have not ended, by when they begin.

    Each is a dict with the fields of `reserve`, and ``now``, whether it counts now.
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
        return float(value)  # type: ignore[arg-type]
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
