"""Usage of a cluster: core-seconds, waits and ended jobs by owner, kind of job, job and day.

Rows are bounded: of one day, and of all days, further jobs are added up under `OTHERS`. So are
owners, once there are very many: an owner cannot hide its use by many names of jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import shown

#: Days are counted from 1970, in UTC; `EARLIER_DAY` is all days that are long past.
DAY_SECONDS, EARLIER_DAY = 86_400.0, -1
#: Name of the jobs, kinds and owners that are added up.
OTHERS = "(others)"
#: Ends of jobs. A job whose client left is ``lost``.
OUTCOMES = ("done", "stopped", "failed", "lost")
#: Maximum number of rows of one day, by job and in all; and of rows of all days in memory.
MOST_ROWS_BY_JOB, MOST_ROWS_OF_A_DAY, MOST_ROWS = 1000, 3000, 20_000
#: Days of which `Spent` has the core-seconds by owner, and the numbers of a day and of all days.
MOST_DAYS, MOST_SPENT_NUMBERS = 366, 100_000


class UsageKey(NamedTuple):
    """Whose usage: kind and job are empty for work outside of jobs."""

    day: int
    owner: str
    kind: str
    job: str


@dataclass(slots=True)
class Usage:
    """Usage of the cluster, and the jobs that ended by outcome."""

    core_seconds: float = 0.0
    waited: float = 0.0  # seconds in which jobs had tasks to run, and none of them had a thread
    done: int = 0
    stopped: int = 0
    failed: int = 0
    lost: int = 0
    loss_reduction: float = 0.0  # sum over the jobs that ended, in normalized loss

    @property
    def jobs(self) -> int:
        """Number of jobs that ended."""
        return self.done + self.stopped + self.failed + self.lost

    def add(self, other: Usage) -> None:
        """Add the `other` usage to this one."""
        for name, value in zip(COLUMNS, astuple(other), strict=True):
            setattr(self, name, getattr(self, name) + value)


#: Names of the numbers of a `Usage`, in order.
COLUMNS = tuple(Usage.__slots__)


class Ledger:
    """Usage that was not taken yet, in rows. Bounded in size."""

    def __init__(self) -> None:
        self.rows: dict[UsageKey, Usage] = {}
        self._day, self._known = EARLIER_DAY, set[UsageKey]()

    def of(self, day: int, owner: str, kind: str, job: str) -> Usage:
        """Return the row to add to. See `UsageKey`."""
        key = UsageKey(day, owner, kind, job)
        if (row := self.rows.get(key)) is not None:
            return row
        if day != self._day:
            self._day, self._known = day, set()
        if key not in self._known:
            if len(self._known) >= MOST_ROWS_BY_JOB and job:
                key = key._replace(job=OTHERS)
            if len(self._known) >= MOST_ROWS_OF_A_DAY and key not in self._known:
                key = UsageKey(day, OTHERS, OTHERS, OTHERS)
            self._known.add(key)
        if len(self.rows) >= MOST_ROWS:
            self._shorten()
        return self.rows.setdefault(key, Usage())

    def drain(self) -> list[tuple[UsageKey, Usage]]:
        """Return all rows, and begin anew."""
        rows, self.rows = self.rows, {}
        return list(rows.items())

    def _shorten(self) -> None:
        """Add up the jobs of former days; if there are many rows still, these days as well."""
        whole: dict[str, Any] = {"day": EARLIER_DAY, "kind": OTHERS, "job": OTHERS}
        for changed in ({"job": OTHERS}, whole):
            if len(self.rows) < MOST_ROWS // 2:
                return
            for key, usage in self.drain():
                if key.day != self._day:  # work outside of jobs has no kind
                    names = changed if key.kind else {"day": changed.get("day", key.day)}
                    key = key._replace(**names)
                self.rows.setdefault(key, Usage()).add(usage)


class Spent:
    """Core-seconds by day and owner, of the last `MOST_DAYS` days. Bounded in size."""

    def __init__(self) -> None:
        self.days: dict[int, dict[str, float]] = {}
        self._size = 0

    def add(self, day: int, owner: str, seconds: float) -> None:
        """Add core-seconds of one day; negative ones correct what was charged before."""
        if day == EARLIER_DAY:
            return
        if day not in self.days:
            self.days[day] = {}
            for past in [past for past in self.days if past <= max(self.days) - MOST_DAYS]:
                self._drop(past)
        while self._size >= MOST_SPENT_NUMBERS and len(self.days) > 1:
            self._drop(min(self.days))
        if (of_day := self.days.get(day)) is not None:
            self._size += owner not in of_day
            of_day[owner] = of_day.get(owner, 0.0) + seconds

    def _drop(self, day: int) -> None:
        self._size -= len(self.days.pop(day))


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
    """Return the core-seconds of a day, halved for each half-life (seconds) since its middle."""
    if day == EARLIER_DAY:
        return 0.0
    middle = (day * DAY_SECONDS + min((day + 1) * DAY_SECONDS, max(now, day * DAY_SECONDS))) / 2
    return core_seconds * 0.5 ** (max(now - middle, 0.0) / half_life)
