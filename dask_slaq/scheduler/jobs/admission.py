"""Admission of jobs: which wait until others of their owner or team end, or for its budget."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from time import time
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.owners.budgets import Budgets
from dask_slaq.core.owners.terms import OwnerTerms
from dask_slaq.core.owners.usage import DAY_SECONDS
from dask_slaq.scheduler.jobs.values import Pace
from dask_slaq.scheduler.owners.accounts import Accounts


class KnownJobs(ABC):
    """What is known of the jobs on a scheduler, by their names; `ScheduledJobs` follows them."""

    engine: Engine
    accounts: Accounts
    budgets: BudgetWatch
    reports: dict[str, int]  # numbers of reports of the running jobs
    owner: dict[str, str]
    within: dict[str, str]  # job around a nested one
    pace: dict[str, Pace]
    queued: set[str]  # they wait until another job of their owner ends, or for its budget
    stopping: set[str]  # they were asked to stop
    alert: Callable[[dict[str, Any]], object]

    @abstractmethod
    def budgets_changed(self) -> None:
        """Look at what the budgets of owners allow now."""

    @abstractmethod
    def cap(self, name: str, most: float | None, *, gives_way: bool = False) -> None:
        """Cap the threads of a job; None for no cap. One that `gives_way` may borrow more."""

    @abstractmethod
    def stop(self, name: str) -> None:
        """Ask a job to stop."""

    def terms_of(self, owner: str) -> OwnerTerms:
        """Return the terms of an owner or team."""
        if self.engine.owners is not None:
            return self.engine.owners.of(owner)
        return OwnerTerms()

    def line(self, owner: str) -> tuple[str, ...]:
        """Return an owner and the teams that it is in, nearest first; see `Owners.line`."""
        return (owner,) if self.engine.owners is None else self.engine.owners.line(owner)


class BudgetWatch(Budgets):
    """Budgets of the owners, by what the accounts have counted until the last check."""

    def __init__(self, jobs: KnownJobs) -> None:
        super().__init__(jobs.accounts.spent)
        self._jobs = jobs
        self._read = jobs.accounts.loaded  # whether usage was read from the file at the last check

    def check(self) -> None:
        """Alert of budgets that are almost or wholly used, and let jobs begin or wait for them."""
        owners = self._jobs.engine.owners if self._jobs.accounts.broken is None else None
        before, self._read = (self._over(), self._read), self._jobs.accounts.loaded
        for spending in self.update(owners, int(time() // DAY_SECONDS)):
            message = spending.in_words()
            if spending.is_over:
                wait = "new jobs wait, and " if spending.waits else ""
                message += f": {wait}its jobs run on what nobody else wants"
            about = {"job": "", "owner": spending.account, "message": message}
            self._jobs.alert({"event": "budget", **about})
        if (self._over(), self._read) != before:
            self._jobs.budgets_changed()

    def _over(self) -> set[tuple[str, str]]:
        """Return the accounts of budgets that are used up, and what happens then."""
        return {(each.account, each.terms.over) for each in self.all() if each.is_over}

    def is_awaited(self, owner: str) -> bool:
        """Return whether new jobs of an owner wait, because nothing of its budget is left.

        Until usage is read from the file, all wait that have a budget.
        """
        if self._jobs.accounts.broken is not None:
            return False
        if not self._jobs.accounts.loaded:
            owners = self._jobs.engine.owners
            return owners is not None and owners.of(owner).has_budget
        spending = self.of(owner)
        return spending is not None and spending.waits

    def is_over(self, owner: str) -> bool:
        """Return whether an owner runs on what nobody else wants."""
        spending = self.of(owner)
        return spending is not None and spending.is_over


class Admission:
    """Places of owners and teams for jobs, by the terms of owners: jobs run that are not queued."""

    def __init__(self, jobs: KnownJobs) -> None:
        self._jobs = jobs

    def _line(self, name: str) -> tuple[str, ...]:
        """Return the owner of a job and the teams that it is in."""
        return self._jobs.line(self._jobs.owner[name])

    def _running(self) -> Iterator[str]:
        return (name for name in self._jobs.reports if name not in self._jobs.queued)

    def _running_of(self, owner: str) -> set[str]:
        """Return the jobs of an owner or team that may run tasks."""
        return {name for name in self._running() if owner in self._line(name)}

    def jobs_at_once(self, owner: str) -> tuple[int, float]:
        """Return the numbers of jobs of an owner or team that may run tasks, and that may at most.

        A job lends its place to one job within it: it may wait for that one's end; see `_lender`.
        """
        if (terms := self._jobs.terms_of(owner)).max_jobs == math.inf:
            return 0, math.inf
        admitted = self._running_of(owner)
        lending = {self._lender(name, owner) for name in admitted}
        return len(admitted - lending), terms.max_jobs

    def full_of(self, name: str) -> str | None:
        """Return the owner or team that keeps a job waiting, as it has as many as it may have."""
        return next((each for each in self._line(name) if self._is_full(each, name, set())), None)

    def _outer(self, name: str, owner: str) -> str | None:
        """Return the job of an owner or team in whose block a job was opened; None without one."""
        outer = self._jobs.within.get(name)
        if outer is None or outer not in self._jobs.reports:
            return None
        return outer if owner in self._line(outer) else None

    def _lender(self, name: str, owner: str) -> str | None:
        """Return the job whose place a job may have; None if it needs one of its own.

        Blocks within each other share a place if these around are of at most one search, and one
        job of each of two owners. Else a chain of blocks would pass any limit.
        """
        line, searches = [name], self._jobs.engine.jobs.search
        while (outer := self._outer(line[-1], owner)) is not None:
            line.append(outer)
        lent: list[str] = []  # the job around, and those whose place that one has
        for outer in reversed(line[1:]):
            lent = [outer, *lent]
            jobs = [self._jobs.owner[each] for each in lent if searches.get(each) != each]
            is_short = len(set(jobs)) == len(jobs) <= 2 and len(lent) - len(jobs) <= 1
            lent = lent if is_short else []
        return lent[0] if lent else None

    def waits_for_itself(self, name: str) -> str | None:
        """Return the owner or team whose places the blocks around a waiting job have; or None."""
        line = [name]
        while (outer := self._jobs.within.get(line[-1])) is not None:
            line.append(outer)
        for owner in self._line(name) if len(line) > 1 else ():
            if self._is_full(owner, name, set()) and self._running_of(owner).issubset(line):
                return owner
        return None

    def must_wait(self, name: str, full: set[str]) -> bool:
        """Return whether a job waits. Owners that may have no other one are added to `full`."""
        if name in self._jobs.stopping:  # it ends at its next report
            return False
        owner = self._jobs.owner[name]
        if (outer := self._outer(name, owner)) is not None:
            if outer in self._jobs.queued:
                return True
        elif self._jobs.budgets.is_awaited(owner):
            return True
        return any(self._is_full(each, name, full) for each in self._line(name))

    def _is_full(self, owner: str, name: str, full: set[str]) -> bool:
        """Return whether an owner or team has no place for a job. It is added to `full` then."""
        if self._jobs.terms_of(owner).max_jobs == math.inf:
            return False
        outer = self._lender(name, owner)
        if outer is not None and outer not in self._jobs.queued:
            others = (each for each in self._running() if each != name)
            if all(self._lender(each, owner) != outer for each in others):
                return False  # it has the place of the job around it
        if owner not in full:
            count, most = self.jobs_at_once(owner)
            if count < most:
                return False
            full.add(owner)
        return True
