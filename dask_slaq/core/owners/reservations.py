"""Reservations: threads that an owner deserves at least in a span of time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.core.settings import check_owner, is_number, require, shown


class Reservation(NamedTuple):
    """Threads for one owner, from `begin` to `end`, in Unix seconds."""

    number: int
    owner: str  # ``ann@desk``, or ``ann`` for all of her machines together
    threads: float
    begin: float
    end: float


class Reservations:
    """Reservations that have not ended, by number."""

    def __init__(self) -> None:
        self.by_number: dict[int, Reservation] = {}
        self._next = 1

    def add(
        self, owner: object, threads: object, begin: object, end: object, now: float
    ) -> Reservation:
        """Add a reservation, or raise `InvalidSetting`. All times are in Unix seconds."""
        self.forget(now)
        if not (isinstance(owner, str) and (owner := check_owner(owner))):
            raise InvalidSetting(f"owner must be the name of an owner, not {shown(owner)}")
        ok = is_number(threads) and 0 < float(threads) <= 1e6
        require("threads", threads, ok, "a number > 0 and at most 1e6")
        if not (is_number(begin) and is_number(end)):
            raise InvalidSetting(
                f"a reservation is from a time to another, not {shown(begin)} to {shown(end)}"
            )
        first, last = float(begin), float(end)
        # Maximum number of reservations that have not ended, and days that one may last or be
        # ahead.
        most, longest = 1000, 366
        if not (max(first, now) < last <= now + longest * DAY_SECONDS):
            raise InvalidSetting(
                "a reservation must end after it begins, from now on and within "
                f"{longest} days, not {(last - now) / DAY_SECONDS:.3g} days from now"
            )
        if len(self.by_number) >= most:
            raise InvalidSetting(f"there are {most} reservations; remove one first")
        made = Reservation(self._next, owner, float(threads), first, last)  # type: ignore[arg-type]
        self.put([made])
        return made

    def put(self, reservations: Iterable[Reservation]) -> None:
        """Put reservations that were made before."""
        for each in reservations:
            self.by_number[each.number] = each
            self._next = max(self._next, each.number + 1)

    def remove(self, number: object) -> Reservation:
        """Remove a reservation, or raise `InvalidSetting`."""
        known = isinstance(number, int) and not isinstance(number, bool)
        if not known or number not in self.by_number:
            numbers = ", ".join(map(str, self.by_number)) or "none"
            raise InvalidSetting(f"there is no reservation {shown(number)}; there are: {numbers}")
        return self.by_number.pop(number)

    def forget(self, now: float) -> None:
        """Forget reservations that have ended."""
        for each in [each for each in self.by_number.values() if each.end <= now]:
            del self.by_number[each.number]

    def at(self, now: float) -> dict[str, float]:
        """Return the threads that are reserved at a time, by owner."""
        found: dict[str, float] = {}
        for each in self.by_number.values():
            if each.begin <= now < each.end:
                found[each.owner] = found.get(each.owner, 0.0) + each.threads
        return found

    def most(self, begin: float, end: float) -> float:
        """Return the most threads that are reserved at any time between two."""
        times = [begin, *(each.begin for each in self.by_number.values())]
        return max(sum(self.at(t).values()) for t in times if begin <= t < end)

    def as_dicts(self, now: float) -> list[dict[str, Any]]:
        """Return the reservations that have not ended, by when they begin."""
        self.forget(now)
        ordered = sorted(self.by_number.values(), key=lambda each: (each.begin, each.number))
        return [{**each._asdict(), "now": each.begin <= now} for each in ordered]
