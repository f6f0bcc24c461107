"""Budgets of owners and teams on a scheduler: what was used, and which jobs wait for that."""

from __future__ import annotations

from collections.abc import Callable
from time import time
from typing import TYPE_CHECKING, Any

from dask_slaq.core.budgets import Budgets
from dask_slaq.core.usage import DAY

if TYPE_CHECKING:
    from dask_slaq.core.budgets import Spending
    from dask_slaq.core.engine import Engine
    from dask_slaq.core.recording import Recorder
    from dask_slaq.scheduler.accounts import Accounts


class BudgetWatch:
    """Budgets of the owners of an engine, by what `accounts` have counted.

    `alert` is called with alerts, and `changed` when other jobs may run than before.
    """

    def __init__(
        self,
        engine: Engine | Recorder,
        accounts: Accounts,
        alert: Callable[[dict[str, Any]], object],
        changed: Callable[[], object],
    ) -> None:
        self._engine, self._accounts = engine, accounts
        self._alert, self._changed = alert, changed
        self._budgets = Budgets(accounts.spent)
        self._read = accounts.loaded  # whether usage was read from the file at the last check

    def check(self) -> None:
        """Alert of budgets that are almost or wholly used, and let jobs begin or wait for them."""
        owners = self._engine.owners if self._accounts.broken is None else None
        before, self._read = (self._over(), self._read), self._accounts.loaded
        for spending in self._budgets.update(owners, int(time() // DAY)):
            self._alert(
                {
                    "event": "budget",
                    "job": "",
                    "owner": spending.account,
                    "message": spending.in_words() + (": " + _above(spending)) * spending.is_over,
                }
            )
        if (self._over(), self._read) != before:
            self._changed()

    def _over(self) -> set[tuple[str, str]]:
        """Return the accounts of budgets that are used up, and what happens then."""
        return {(each.account, each.terms.over) for each in self.all() if each.is_over}

    def all(self) -> list[Spending]:
        """Return what was used of all budgets, the most used one first."""
        return self._budgets.all()

    def of(self, owner: str) -> Spending | None:
        """Return what was used of the budget that limits an owner or team most; None without any.

        It is as of the last check.
        """
        return self._budgets.of(owner)

    def is_awaited(self, owner: str) -> bool:
        """Return whether new jobs of an owner wait, because nothing of its budget is left.

        Until usage is read from the file, all wait that have a budget.
        """
        if self._accounts.broken is not None:
            return False
        if not self._accounts.loaded:
            owners = self._engine.owners
            return owners is not None and owners.of(owner).has_budget
        spending = self.of(owner)
        return spending is not None and spending.waits

    def is_over(self, owner: str) -> bool:
        """Return whether an owner runs on what nobody else wants."""
        spending = self.of(owner)
        return spending is not None and spending.is_over


def _above(spending: Spending) -> str:
    """Return what happens above a budget."""
    on_spare = "its jobs run on what nobody else wants"
    return f"new jobs wait, and {on_spare}" if spending.waits else on_spare
