"""Owners: people or groups who share the cluster by weights and limits.

Each owner deserves a weighted fair share of the threads, at most its limit and what its jobs can
use. Deserved core-seconds are served before any policy's index, so the policy decides within an
owner's share, and over the threads that other owners leave. An owner that lent threads gets its
share back first. An owner that used much lately yields, if its use is observed. An owner over its
budget runs on what nobody else wants. Teams of owners have all that too (`OwnerTree`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from dask_slaq.core.jobs.arrays import FloatArray, IntArray
from dask_slaq.core.jobs.jobs import Epoch, JobOrder, JobTable
from dask_slaq.core.owners.terms import DEFAULT, OwnerGrant, OwnerTerms
from dask_slaq.core.owners.tree import OwnerTree
from dask_slaq.core.policies import Allocation, Snapshot, fair_fill
from dask_slaq.core.settings import teams_above

#: Least factor by which the weight of an owner counts that used much lately.
LEAST_FACTOR = 0.1
#: Seconds' worth of its deserved threads that an owner gets back at most, and seconds for which its
#: account is kept while it has no job.
SAVED_SECONDS = 10.0


@dataclass(slots=True)
class _Account:
    """Account of one owner: core-seconds that it deserved, less those that it used."""

    balance: float = 0.0
    used: float = 0.0  # core-seconds since the last decision
    deserved: float = 0.0  # threads, since the last decision
    got: float = 0.0  # threads used, mean of recent epochs
    gone: float = 0.0  # seconds without a job

    def settle(self, owed: float, epoch: float, elapsed: float) -> None:
        """Credit and charge the `elapsed` seconds; all owners are `owed` core-seconds."""
        # Threads that nobody else wanted are no debt, but those of a gang may have been wanted.
        debt = self.deserved * epoch + owed - max(self.balance, 0.0)
        most = max(SAVED_SECONDS * self.deserved, self.balance)
        self.balance += self.deserved * elapsed - self.used
        self.balance = min(max(self.balance, -debt), most)
        if elapsed > 0:
            self.got += (1 - math.exp(-elapsed / (10 * epoch))) * (self.used / elapsed - self.got)
        self.used = 0.0


@dataclass
class Owners:
    """Shares of all owners, by their terms.

    The terms of ``ann`` also apply to ``ann@host``; owners without terms have those of ``default``.
    The terms of ``team`` are for all owners whose names begin with ``team/`` together, and each of
    them has terms of its own. If ``team/ann`` is listed, and ``ann`` is not, ``ann`` is in that
    team, too. `teams` has the teams of the owners of all jobs.
    """

    terms: Mapping[str, OwnerTerms]
    teams: Mapping[str, int] = field(default_factory=dict)
    _accounts: dict[str, _Account] = field(default_factory=dict)
    _used: Mapping[str, float] = field(default_factory=dict)
    # Of the names of this decision the factor of the weight, of its owners what it is never below.
    _factor: FloatArray | None = None
    _latest: FloatArray | None = None
    _spare: frozenset[str] = frozenset()  # owners over their budget
    _reserved: Mapping[str, float] = field(default_factory=dict)  # threads now, by name of an owner
    # What follows from the terms: these, teams that are listed, and the team of a name without one.
    _read: tuple[object, frozenset[str], Mapping[str, str]] = (None, frozenset(), {})
    _tree: tuple[object, object, OwnerTree] | None = None

    def of(self, name: str) -> OwnerTerms:
        """Return the terms of an owner, or of a team, whose name ends with a slash."""
        if name.endswith("/"):
            return self.given(name[:-1])
        path = self._path(name)
        if self._is_team(path) and (name == path or name not in self.terms):
            return self.terms.get(f"{path}/{DEFAULT}") or OwnerTerms()
        return self.given(name)

    def given(self, name: str) -> OwnerTerms:
        """Return the terms that are set for a name: those of the team if it is one."""
        if (found := self.terms.get(self.account_of(name))) is not None:
            return found
        team = self._path(name).rpartition("/")[0]
        return self.terms.get(f"{team}/{DEFAULT}" if team else DEFAULT) or OwnerTerms()

    def max_slowdown_of(self, owner: str) -> float | None:
        """Return the factor of their fair time at which jobs end at the latest; None if not set."""
        found = (self.of(name).max_slowdown for name in self.line(owner))
        return next((most for most in found if most is not None), None)

    def value_of(self, owner: str) -> float:
        """Return what an hour of the time of its jobs is worth; nan if not set."""
        found = (self.of(name).value_per_hour for name in self.line(owner))
        return next((value for value in found if value is not None), math.nan)

    def account_of(self, owner: str) -> str:
        """Return the name under which what an owner uses counts for its own budget."""
        path = self._path(owner)
        return path if owner not in self.terms and path in self.terms else owner

    def line(self, owner: str) -> tuple[str, ...]:
        """Return an owner and all teams that it is in, nearest first; teams end with a slash."""
        path = self._path(owner)
        own = [path] if self._is_team(path) else []
        return (owner, *(f"{team}/" for team in (*own, *teams_above(path))))

    def budgets_of(self, owner: str) -> dict[str, OwnerTerms]:
        """Return the terms of all budgets that what an owner uses counts for, by their accounts."""
        own, *teams = self.line(owner)
        found = {self.account_of(own): self.of(own)}
        found.update((team[:-1], self.of(team)) for team in teams)
        return {account: terms for account, terms in found.items() if terms.has_budget}

    def tree(self, owners: tuple[str, ...]) -> OwnerTree:
        """Return the tree of the owners of all jobs."""
        kept = self._tree
        if kept is None or kept[0] is not self.terms or kept[1] != owners:
            self._tree = kept = self.terms, owners, OwnerTree(owners, self.line)
        return kept[2]

    def _path(self, owner: str) -> str:
        """Return the name of an owner with its teams and without its machine."""
        user = owner.partition("@")[0]
        if "/" in user:
            return "/".join(filter(None, user.split("/")))
        if owner in self.terms or user in self.terms:
            return user
        return self._known()[2].get(user, user)

    def _is_team(self, path: str) -> bool:
        return path in self.teams or path in self._known()[1]

    def _known(self) -> tuple[object, frozenset[str], Mapping[str, str]]:
        if self._read[0] is not self.terms:
            listed = [name for name in self.terms if "/" in name.partition("@")[0]]
            teams = frozenset(team for name in listed for team in teams_above(name))
            users = {path.rpartition("/")[2]: path for path in reversed(listed) if "@" not in path}
            users.pop(DEFAULT, None)
            self._read = self.terms, teams, users
        return self._read

    def set_spare(self, owners: Iterable[str]) -> bool:
        """Let `owners` run on what nobody else wants, and no others. Returns if that is new."""
        before, self._spare = self._spare, frozenset(owners)
        return self._spare != before

    def set_reserved(self, threads: Mapping[str, float]) -> bool:
        """Let owners deserve at least so many `threads`. Returns if that is new."""
        before, self._reserved = self._reserved, dict(threads)
        return self._reserved != before

    def observe_use(self, used: Mapping[str, float]) -> None:
        """Record what owners `used` lately, in core-seconds that fade; empty not to count it."""
        self._used = dict(used)

    def weigh(self, jobs: JobTable, order: JobOrder, max_slowdown: float) -> None:
        """Let owners yield that used much lately, as in Slurm.

        To keep all promises, one deserves at least its fair share over the factor `max_slowdown`.
        """
        self._factor = self._max_slowdown = None
        if (lately := self._lately(order)) is not None:
            self._factor = np.maximum(np.exp2(-lately), LEAST_FACTOR)
            self._max_slowdown = np.full(len(order.owners), math.inf)
            np.minimum.at(
                self._max_slowdown, order.owner, jobs.max_slowdown(order.rows, max_slowdown)
            )

    def _lately(self, order: JobOrder) -> FloatArray | None:
        """Return the part of the use (n_names,) of each over its share; None without any."""
        used = np.array([self._used.get(owner, 0.0) for owner in order.owners])
        if not used.sum() > 0:
            return None
        tree = self.tree(order.owners)
        return tree.parts(tree.sums(used), np.array([self.of(n).weight for n in tree.names]))

    def weights(self, jobs: JobTable, order: JobOrder) -> FloatArray:
        """Return the weights of `jobs` in `order`: each owner's, divided among its jobs."""
        column, rows = jobs.table.column, order.rows
        weight = np.where(column["paused"][rows], 0.0, column["weight"][rows])
        total = _sums(order.owner, weight, len(order.owners))
        mine = self.tree(order.owners).flat(self._weight(order), total > 0)[order.owner]
        weights: FloatArray = np.ones(len(rows))
        np.divide(weight * mine, total[order.owner], out=weights, where=weight > 0)
        return weights

    def divide(
        self, policy: Callable[[Snapshot], Allocation], snapshot: Snapshot, order: JobOrder
    ) -> FloatArray:
        """Return shares (n_jobs,) in `order`, by `policy` on `snapshot` within those of owners."""
        most = _sums(order.owner, np.minimum(snapshot.cap, snapshot.capacity), len(order.owners))
        deserved = self._fill(order, most, snapshot.capacity)
        share = np.zeros(len(snapshot.jobs))
        for i, threads in enumerate(deserved.tolist()):
            rows = np.flatnonzero(order.owner == i)
            share[rows] = policy(replace(snapshot.of(rows), capacity=threads)).share
        return share

    def refill(
        self,
        jobs: JobTable,
        order: JobOrder,
        epoch: Epoch,
        age: FloatArray,
    ) -> dict[str, OwnerGrant]:
        """Refill tokens by the tasks that jobs had lately; return the grants of all owners."""
        _, elapsed, seconds, capacity = epoch
        column, rows, n = jobs.table.column, order.rows, len(order.owners)
        demand = np.where(age < seconds, capacity, column["fair_width"][rows])
        demand[column["paused"][rows]] = 0.0
        deserved = self._fill(order, _sums(order.owner, demand, n), capacity)
        could_use = np.where(column["paused"][rows], 0.0, capacity)
        entitled = self._fill(order, _sums(order.owner, could_use, n), capacity)
        attained = jobs.runtimes.column["attained"][rows]
        used = _sums(order.owner, attained - column["attained_by_owner"][rows], n)
        column["attained_by_owner"][rows] = attained
        for owner, more in zip(order.owners, used.tolist(), strict=True):
            self._accounts.setdefault(owner, _Account()).used += more
        owed = sum(max(account.balance, 0.0) for account in self._accounts.values())
        for account in self._accounts.values():
            account.settle(owed, seconds, elapsed)
        for owner, fair in zip(order.owners, deserved.tolist(), strict=True):
            account = self._accounts[owner]
            account.deserved, account.gone = fair, 0.0
        for gone in self._accounts.keys() - set(order.owners):
            account = self._accounts[gone]
            account.deserved, account.gone = 0.0, account.gone + elapsed
            if account.gone > SAVED_SECONDS:
                del self._accounts[gone]
        return self._grants(order, entitled, seconds)

    def _grants(self, order: JobOrder, entitled: FloatArray, epoch: float) -> dict[str, OwnerGrant]:
        """Return the grants of owners and teams; teams are served by what their owners are owed."""
        tree, grants = self.tree(order.owners), {}
        got = tree.sums(np.array([self._accounts[owner].got for owner in order.owners]))
        lately = self._lately(order)
        if self._factor is None or lately is None:
            factor = lately = np.ones(len(tree.names))
        else:
            factor = self._factor
        columns = tree.sums(entitled), got, factor, lately, tree.above
        values = zip(tree.names, *(column.tolist() for column in columns), strict=True)
        for i, (name, whole, used, yields, over, above) in enumerate(values):
            account, terms = self._accounts.get(name), self.of(name)
            tokens = 0.0
            if account is not None:
                tokens = max(account.balance + account.deserved * epoch, 0.0)
            spare = all(order.owners[k] in self._spare for k in np.flatnonzero(tree.under(i)))
            team = tree.names[above] if above >= 0 else ""
            limits = (terms.max_resources, team)
            grants[name] = OwnerGrant(
                whole, tokens, terms.max_threads, used, yields, over, spare, *limits
            )
        return grants

    def within_limits(
        self, order: JobOrder, capacity: float, weight: FloatArray, cap: FloatArray
    ) -> FloatArray:
        """Return the caps (n_jobs,) of jobs, which together keep to the limits of their owners."""
        tree = self.tree(order.owners)
        for i, name in enumerate(tree.names):
            if (most := self.of(name).max_threads) >= capacity:
                continue
            mine = tree.under(i)[order.owner]
            if most < cap[mine].sum():
                cap = cap.copy()
                cap[mine] = fair_fill(weight[mine], 0.0 * cap[mine], cap[mine], most)
        return cap

    def limits(self, order: JobOrder) -> FloatArray:
        """Return the most threads (n_jobs,) that the owner of each job, and its teams, may use."""
        most = [min(self.of(name).max_threads for name in self.line(each)) for each in order.owners]
        return np.array(most, np.float64)[order.owner]

    def rest(self) -> None:
        """Let nobody deserve anything from now on, as there is no job, and so no decision."""
        for account in self._accounts.values():
            account.deserved = 0.0

    def charge(self, owner: str, seconds: float) -> None:
        """Charge an owner for core-seconds of a job that ends before the next decision."""
        if owner in self._accounts:
            self._accounts[owner].used += seconds

    def _weight(self, order: JobOrder) -> FloatArray:
        """Return the weights (n_names,) of owners and teams."""
        tree = self.tree(order.owners)
        spare = tree.sums(np.array([owner in self._spare for owner in order.owners], np.float64))
        all_of = spare == tree.sums(np.ones(len(order.owners)))
        # Factor by which the weight of an owner counts that runs on what nobody else wants.
        return np.array([self.of(name).weight for name in tree.names]) * np.where(all_of, 1e-6, 1)

    def _fill(self, order: JobOrder, most: FloatArray, capacity: float) -> FloatArray:
        """Return the threads (n_owners,) that owners deserve, at most `most` each."""
        tree, weight, n = self.tree(order.owners), self._weight(order), len(order.owners)
        limit = np.array([self.of(name).max_threads for name in tree.names])
        floor = self._floors(order, weight, np.minimum(limit[:n], most))
        fair = tree.fill(weight, floor, most, limit, capacity)[:n]
        if self._factor is None or self._max_slowdown is None:
            return fair
        least = np.maximum(floor, fair / self._max_slowdown)
        return tree.fill(weight * self._factor, least, most, limit, capacity)[:n]

    def _floors(self, order: JobOrder, weight: FloatArray, cap: FloatArray) -> FloatArray:
        """Return the reserved threads (n_owners,) that owners can use, at most `cap` each."""
        floor, spare = 0.0 * cap, self._spare
        for name, threads in self._reserved.items():
            names = [name in self._names(o) and o not in spare for o in order.owners]
            if (mine := np.flatnonzero(names)).size:
                room = cap[mine] - floor[mine]
                floor[mine] += fair_fill(weight[mine], 0.0 * room, room, threads)
        return floor

    def _names(self, owner: str) -> set[str]:
        """Return the names by which something is for an owner: its own, and those of its teams."""
        teams = (team[:-1] for team in self.line(owner)[1:])
        return {owner, owner.partition("@")[0], self._path(owner), *teams}


def _sums(owner: IntArray, values: FloatArray, n: int) -> FloatArray:
    """Return the sums (n,) of `values` by the position of their owner."""
    return np.bincount(owner, values, n).astype(np.float64)
