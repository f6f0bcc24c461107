"""Sums of usage, and what of it counts as used lately."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import shown
from dask_slaq.core.usage import DAY, EARLIER, Usage, UsageKey

#: What usage can be summed by.
BY = ("owner", "kind", "job", "day")


def check_by(by: object) -> tuple[str, ...]:
    """Return what usage is summed `by`: one of `BY`, or several. Raises `InvalidSetting`."""
    names = (by,) if isinstance(by, str) else by
    if isinstance(names, list | tuple) and names and all(name in BY for name in names):
        return tuple(dict.fromkeys(names))
    raise InvalidSetting(
        f"usage can be summed by {', '.join(BY)} or several of them, not {shown(by)}"
    )


def sum_by(
    rows: Iterable[tuple[UsageKey, Usage]], by: Sequence[str]
) -> dict[tuple[str | int, ...], Usage]:
    """Return usage by the values of some fields of the keys."""
    found: dict[tuple[str | int, ...], Usage] = {}
    for key, usage in rows:
        found.setdefault(tuple(getattr(key, name) for name in by), Usage()).add(usage)
    return found


def decayed(day: int, core_seconds: float, now: float, half_life: float) -> float:
    """Return the core-seconds of a day, halved for each half-life (seconds) since then.

    They are taken to have been used in the middle of the day, or of what has passed of it at `now`
    (seconds since 1970).
    """
    if day == EARLIER:
        return 0.0
    middle = (day * DAY + min((day + 1) * DAY, max(now, day * DAY))) / 2
    return core_seconds * math.exp2(-max(now - middle, 0.0) / half_life)
