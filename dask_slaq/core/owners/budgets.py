"""Budgets: core-hours that owners and teams may use within a period, which is the last whole days.

Days are counted in UTC, and today is one of them. What was used on a day no longer counts once the
day is older than the period.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dask_slaq.core.owners.owners import Owners
from dask_slaq.core.owners.terms import DEFAULT, WAIT, OwnerTerms
from dask_slaq.core.owners.usage import DAY_SECONDS, Spent

#: Part of a budget whose use is worth an alert.
ALERT_PART = 0.8


class Spending(NamedTuple):
    """What was used of one budget."""

    account: str  # see `Owners.account_of`
    used: float  # core-hours
    terms: OwnerTerms

    @property
    def part(self) -> float:
        """Part of the budget that was used."""
        return self.used / self.terms.core_hours

    @property
    def is_over(self) -> bool:
        """Whether nothing of the budget is left."""
        return self.used >= self.terms.core_hours

    @property
    def waits(self) -> bool:
        """Whether new jobs wait."""
        return self.is_over and self.terms.over == WAIT

    @property
    def left(self) -> float:
        """Core-hours that are left."""
        return max(self.terms.core_hours - self.used, 0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values: core-hours, the period in days, and all in words."""
        return {
            "owner": self.account,
            "core_hours": self.terms.core_hours,
            "used": self.used,
            "left": self.left,
            "days": self.terms.period / DAY_SECONDS,
            "over": self.terms.over,
            "text": self.in_words(),
        }

    def in_words(self) -> str:
        """Return what was used, as a clause."""
        days = self.terms.period / DAY_SECONDS
        return (
            f"{self.account} has used {_hours(self.used)} of {_hours(self.terms.core_hours)} "
            f"core-hours of {'today' if days == 1 else f'the last {days:g} days'}"
        )


class Budgets:
    """What owners used of their budgets, as of the last `update`; `spent` is by day."""

    def __init__(self, spent: Spent) -> None:
        self.spent = spent
        self._owners: Owners | None = None
        self._of_account: dict[str, Spending] = {}
        self._told: dict[str, float] = {}  # parts of budgets that were returned as reached
        self._before: dict[str, float] = {}  # core-seconds of the days before today, by account
        self._as_of: object = None  # of these

    def update(self, owners: Owners | None, today: int) -> list[Spending]:
        """Return budgets that have reached `ALERT_PART`, or all, since they were last returned."""
        self._owners, self._of_account = owners, {}
        terms: Mapping[str, OwnerTerms] = {} if owners is None else owners.terms
        with_budget = {name for name, each in terms.items() if each.has_budget}
        if owners is None or not with_budget:
            self._told, self._before, self._as_of = {}, {}, None
            return []
        used = dict(self._before_today(owners, today))
        for account in with_budget:
            if account.rpartition("/")[2] == DEFAULT:
                continue
            used.setdefault(account, 0.0)
        for owner, seconds in self.spent.days.get(today, {}).items():
            for account in owners.budgets_of(owner):
                used[account] = used.get(account, 0.0) + seconds
        for account, seconds in used.items():
            self._of_account[account] = Spending(account, seconds / 3600, owners.given(account))
        return self._news()

    def _before_today(self, owners: Owners, today: int) -> dict[str, float]:
        """Return the core-seconds of former days by account; they are added up once per day."""
        days = self.spent.days
        as_of = (today, owners.terms, sum(map(len, days.values())) - len(days.get(today, ())))
        if as_of != self._as_of:
            self._as_of, self._before = as_of, {}
            for day, of_day in days.items():
                for owner, seconds in of_day.items() if day < today else ():
                    for account, terms in owners.budgets_of(owner).items():
                        if (today - day) * DAY_SECONDS < terms.period:
                            self._before[account] = self._before.get(account, 0.0) + seconds
        return self._before

    def _news(self) -> list[Spending]:
        """Return the budgets that have reached a level that was not told."""
        news, before, self._told = [], self._told, {}
        for account, spending in self._of_account.items():
            level = 1.0 if spending.is_over else ALERT_PART if spending.part >= ALERT_PART else 0.0
            if level:
                self._told[account] = level
                if level > before.get(account, 0.0):
                    news.append(spending)
        return news

    def of(self, owner: str) -> Spending | None:
        """Return what was used of that budget, also of a team, which limits an owner most."""
        if not self._of_account or self._owners is None:
            return None
        budgets = map(self._of_account.get, self._owners.budgets_of(owner))
        known = (each for each in budgets if each is not None)
        return max(known, key=lambda each: (each.waits, each.is_over, each.part), default=None)

    def all(self) -> list[Spending]:
        """Return what was used of all budgets, the most used one first."""
        return sorted(self._of_account.values(), key=lambda each: (-each.part, each.account))


def _hours(hours: float) -> str:
    return f"{hours:.0f}" if hours >= 100 else f"{hours:.3g}"
