"""Tree of owners: a name such as ``team/ann`` says which teams an owner is in.

Shares are divided among the teams at the top, and then within each. What owners use counts for all
teams above them. The name of a team ends with a slash, so that ``team`` may also own jobs itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np

from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.policies import fair_fill


class OwnerTree:
    """Owners, then the teams above them, in the order of all arrays (n_names,)."""

    def __init__(self, owners: Sequence[str], line: Callable[[str], Sequence[str]]) -> None:
        above = {below: team for owner in owners for below, team in pairwise(line(owner))}
        teams = sorted(set(above.values()), key=lambda name: (-name.count("/"), name))
        self.names = (*owners, *teams)
        self.n_owners = len(owners)
        number = {name: len(owners) + i for i, name in enumerate(teams)}
        #: Position (n_names,) of the team that each is in, -1 without one.
        self.above: IntArray = np.array(
            [number[above[name]] if name in above else -1 for name in self.names], np.int64
        )
        #: From the top, the position of each team, and those directly in it; -1 for all others.
        self._within = [
            (team, np.flatnonzero(self.above == team))
            for team in (-1, *range(len(self.names) - 1, len(owners) - 1, -1))
        ]

    def sums(self, values: FloatArray) -> FloatArray:
        """Return values (n_owners,) of owners with their sums for teams, (n_names,)."""
        found = np.concatenate([values, np.zeros(len(self.names) - self.n_owners)])
        for team, members in reversed(self._within):
            if team >= 0:
                found[team] = found[members].sum()
        return found

    def under(self, position: int) -> BoolArray:
        """Return which owners (n_owners,) a name stands for: itself, or all in the team."""
        found: BoolArray = np.arange(len(self.names)) == position
        for team, members in self._within if position >= self.n_owners else ():
            if team >= 0:
                found[members] |= found[team]
        return found[: self.n_owners]

    def parts(self, values: FloatArray, of: FloatArray) -> FloatArray:
        """Return each name's part of the `values` of its team, over that `of` it; else 0."""
        found = np.zeros(len(self.names))
        for _, members in self._within:
            if (total := values[members].sum()) > 0:
                of_team = of[members] / of[members].sum()
                found[members] = values[members] / total / of_team
        return found

    def flat(self, weight: FloatArray, active: BoolArray) -> FloatArray:
        """Return weights (n_owners,) by which `active` owners share as in the tree."""
        counts = self.sums(active.astype(np.float64)) > 0
        found = weight.copy()
        for team, members in self._within:
            if team >= 0 and counts[team]:
                found[members] *= found[team] / weight[members][counts[members]].sum()
        return found[: self.n_owners]

    def fill(
        self,
        weight: FloatArray,
        floor: FloatArray,
        cap: FloatArray,
        limit: FloatArray,
        capacity: float,
    ) -> FloatArray:
        """Return weighted fair shares (n_names,): what a member leaves goes to its team first."""
        more = np.zeros(len(self.names) - self.n_owners)
        cap = np.minimum(np.concatenate([cap, more]), limit)
        floor = np.concatenate([floor, more])
        for team, members in reversed(self._within):
            if team >= 0:
                cap[team] = min(cap[members].sum(), limit[team])
                floor[team] = floor[members].sum()
        share = np.zeros(len(self.names))
        for team, members in self._within:
            whole = capacity if team < 0 else share[team]
            share[members] = fair_fill(weight[members], floor[members], cap[members], whole)
        return share
