"""Number of workers that a cluster is to have, followed over time."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median

import numpy as np

from dask_slaq.core.scaling.keeping import Levels
from dask_slaq.core.scaling.rules import ScalingRule
from dask_slaq.core.scaling.usual import UsualWorth
from dask_slaq.core.scaling.worth import Demand, Worth
from dask_slaq.core.scaling_terms import ScalingTerms

#: Start-ups that are remembered.
REMEMBERED = 9


class Scaler:
    """Target of a cluster by `terms`: what pays now, and what is kept for what may come.

    It learns from its calls how long workers take to come, and what time is worth where the demand
    has nan. A worker has `threads`; `target` is the number of workers of the last call. A `rule`
    chooses what pays, instead of the number at which workers and lost time cost least together.
    """

    def __init__(self, terms: ScalingTerms, rule: ScalingRule | None = None) -> None:
        self.terms, self.threads, self._rule = terms, 1.0, rule
        self.target = terms.minimum
        self._levels, self._usual = Levels(), UsualWorth()
        self._start_ups: deque[float] = deque(maxlen=REMEMBERED)
        self._absent: dict[int, float] = {}  # levels that have not come, and when they were asked

    @property
    def start_up(self) -> float:
        """Expected seconds from the request of a worker until it computes."""
        return median(self._start_ups) if self._start_ups else self.terms.start_up

    def update(self, demand: Demand, here: int, now: float, *, least: int = 0) -> int:
        """Return how many workers there are to be for a `demand`, of which some are `here`.

        At least `least` are needed, whatever the demand is.
        """
        terms = self.terms
        for level in [k for k in self._absent if k <= here]:
            self._start_ups.append(now - self._absent.pop(level))
        self._usual.add(now, self.target, len(demand.work))
        worth = self.worth(demand, here, terms.maximum, now)
        pays = self.best(worth, here, least)
        target = self._levels.update(
            pays, now, use=worth.use.tolist(), start_up=self.start_up, stay=terms.stay
        )
        self.target = min(max(target, terms.minimum), max(terms.maximum, pays))
        for level in [k for k in self._absent if k > self.target]:
            del self._absent[level]
        for level in range(here + 1, self.target + 1):
            self._absent.setdefault(level, now)
        return self.target

    def worth(self, demand: Demand, here: int, most: int, now: float) -> Worth:
        """Return what up to `most` workers cost, of which some are `here` and some have to come."""
        usual = self._usual.per_second * self.terms.price
        demand = replace(demand, worth=np.where(np.isnan(demand.worth), usual, demand.worth))
        stay, start = self.terms.stay, self.start_up
        here = min(here, most)
        # Those that are there or were asked for stay anyway: only what they are used for counts.
        arrive, stays = [0.0] * here, [0.0] * most
        for level in range(here + 1, most + 1):
            asked = self._absent.get(level)
            # One that is late may come at any time, or not at all: half of its time again.
            seconds = start if asked is None else max(asked + start - now, start / 2)
            arrive.append(max(seconds, arrive[-1] if arrive else 0.0))
            if asked is None:
                stays[level - 1] = arrive[-1] + stay
        return Worth(
            demand.waiting(), np.array(arrive), np.array(stays), self.threads, self.terms.per_second
        )

    def best(self, worth: Worth, here: int, least: int = 0) -> int:
        """Return the number of workers that pays, of which some are `here`, by the rule."""
        least, most = max(self.terms.minimum, least), self.terms.maximum
        if not worth.demand.work.size:
            return least
        chosen = None if self._rule is None else self._rule(worth, here)
        if chosen is None:
            chosen = worth.best(min(least, most), most)
        return max(min(chosen, most), least)
