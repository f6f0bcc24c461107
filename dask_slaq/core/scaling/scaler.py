"""Number of workers that a cluster is to have, followed over time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np

from dask_slaq.core.errors import BROKEN
from dask_slaq.core.scaling.value import Demand, Value
from dask_slaq.core.scaling_terms import ScalingTerms


class Scaler:
    """Target of a cluster by `terms`: what pays now, by a `rule`, and what is kept for later."""

    def __init__(self, terms: ScalingTerms, rule: ScalingRule | None = None) -> None:
        self.terms, self.threads, self._rule = terms, 1.0, rule
        self.target = terms.minimum
        self._levels, self._usual = Levels(), UsualValue()
        # Start-ups that are remembered.
        self._start_ups: deque[float] = deque(maxlen=9)
        self._absent: dict[int, float] = {}  # levels that have not come, and when they were asked

    @property
    def start_up(self) -> float:
        """Expected seconds from the request of a worker until it computes."""
        return float(np.median(self._start_ups)) if self._start_ups else self.terms.start_up

    def update(self, demand: Demand, here: int, now: float, *, least: int = 0) -> int:
        """Return how many workers, at least `least`, there are to be; some are `here`."""
        terms = self.terms
        for level in [k for k in self._absent if k <= here]:
            self._start_ups.append(now - self._absent.pop(level))
        self._usual.add(now, self.target, len(demand.work))
        value = self.value(demand, here, terms.maximum, now)
        pays = self.best(value, here, least)
        target = self._levels.update(
            pays, now, use=value.use.tolist(), start_up=self.start_up, stay=terms.stay
        )
        self.target = min(max(target, terms.minimum), max(terms.maximum, pays))
        for level in [k for k in self._absent if k > self.target]:
            del self._absent[level]
        for level in range(here + 1, self.target + 1):
            self._absent.setdefault(level, now)
        return self.target

    def value(self, demand: Demand, here: int, most: int, now: float) -> Value:
        """Return what up to `most` workers cost, of which some are `here` and some have to come."""
        usual = self._usual.per_second * self.terms.price
        demand = replace(demand, value=np.where(np.isnan(demand.value), usual, demand.value))
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
        return Value(
            demand.waiting(), np.array(arrive), np.array(stays), self.threads, self.terms.per_second
        )

    def best(self, value: Value, here: int, least: int = 0) -> int:
        """Return the number of workers that pays, of which some are `here`, by the rule."""
        least, most = max(self.terms.minimum, least), self.terms.maximum
        if not value.demand.work.size:
            return least
        chosen = None if self._rule is None else self._rule(value, here)
        if chosen is None:
            chosen = value.best(min(least, most), most)
        return max(min(chosen, most), least)


class UsualValue:
    """Worker-seconds that the cluster has cost per second of a job, of late.

    If a second of a job is worth as much, to end 1 % sooner may cost 1 % more.
    """

    def __init__(self) -> None:
        self._paid = self._spent = 0.0
        self._last: float | None = None

    def add(self, now: float, workers: int, jobs: int) -> None:
        """Count the time since the last call, in which there were some workers and jobs."""
        elapsed = 0.0 if self._last is None else max(now - self._last, 0.0)
        self._last = now
        fades = math.exp(-elapsed / 3600.0)  # the last hour counts
        self._paid = self._paid * fades + workers * elapsed
        self._spent = self._spent * fades + jobs * elapsed

    @property
    def per_second(self) -> float:
        """Value of a second of a job, in seconds of a worker."""
        # Value of a job's second that is assumed, and the least and most, in seconds of a worker.
        assumed, least, most = 5.0, 1.0, 10.0
        # Job-seconds for which the assumed value counts.
        counts_for = 600.0
        found = (self._paid + assumed * counts_for) / (self._spent + counts_for)
        return min(max(found, least), most)


def seconds_to_keep(pauses: Sequence[float], again: float) -> float:
    """Return for how many seconds to keep a worker that has no work.

    `again` is what it costs to get one again: to keep it for that long never costs more than twice
    the best. With experience it is the time that would have cost least over the `pauses` without
    work.
    """
    if not pauses:
        return again
    known = np.asarray(pauses, dtype=float)
    # Pauses shorter and longer than anything seen are possible: some that end at any time.
    # How many pauses the rule without any experience counts for.
    assumed = np.linspace(0.0, 2.0 * again, 2 * 4 + 1)[1::2]
    every = np.concatenate([known, assumed])
    tries = np.unique(np.concatenate([[0.0, again], every[every <= again]]))
    cost = [
        np.where(every <= seconds, np.minimum(every, seconds), seconds + again).sum()
        for seconds in tries
    ]
    best = float(tries[int(np.argmin(cost))])
    # A little longer than the pause that it is to outlast.
    return min(best * 1.1, again)


class Levels:
    """Number of workers to have, from the number that pays now and what each would be of use.

    A level that is not there is asked for, too, once its lack has cost more than it would have. It
    stays for a while, and for as long as it pays to keep a worker that may be wanted again.
    """

    def __init__(self) -> None:
        self._wanted: list[float] = []  # when each level was last wanted
        self._asked: list[float] = []  # when it was first asked for since it was last given up
        self._idle: list[bool] = []  # whether it has been without work since
        self._missed: list[float] = []  # what its lack has cost beyond it, in worker-seconds
        self._use: list[float] = []  # what it was worth per second when last wanted, in workers
        # Pauses that are remembered.
        self._pauses: deque[float] = deque(maxlen=64)
        self._last: float | None = None

    @property
    def pauses(self) -> tuple[float, ...]:
        """Seconds for which levels were not wanted, before they were again."""
        return tuple(self._pauses)

    def asked(self, level: int) -> float | None:
        """Return since when there is to be a `level`, from 1; None if there is not."""
        return self._asked[level - 1] if level <= len(self._asked) else None

    def update(
        self, pays: int, now: float, *, use: Sequence[float], start_up: float, stay: float
    ) -> int:
        """Return how many workers there are to be; `pays` do now, and `use` is their value."""
        held, most = len(self._asked), max(pays, len(use))
        wanted = max(pays, self._miss(use, now, held, start_up + stay))
        more = most - len(self._wanted)
        self._wanted += [now] * more
        self._idle += [False] * more
        self._use += [0.0] * more
        self._missed += [0.0] * (most - len(self._missed))
        for k in range(wanted):
            if self._idle[k]:
                self._pauses.append(now - self._wanted[k])
            self._wanted[k], self._idle[k] = now, False
            self._use[k] = max(use[k] if k < len(use) else 0.0, 0.98 * self._use[k])
        target = wanted
        for k in range(wanted, held):
            self._idle[k] = True
            again = start_up * (1.0 + self._use[k])
            keep = seconds_to_keep(self._pauses, again)
            if now - self._wanted[k] < keep or now - self._asked[k] < start_up + stay:
                target = k + 1
        for k in range(target):
            self._missed[k] = 0.0
        del self._asked[target:]
        self._asked += [now] * (target - len(self._asked))
        return target

    def _miss(self, use: Sequence[float], now: float, held: int, cost: float) -> int:
        """Return the highest level that has been missed for what it costs."""
        elapsed, self._last = 0.0 if self._last is None else now - self._last, now
        self._missed += [0.0] * (len(use) - len(self._missed))
        for k in range(held, len(self._missed)):
            # If it were there, it would cost a second of a worker each second, in pauses as well.
            gained = (use[k] if k < len(use) else 0.0) - 1.0
            self._missed[k] = max(self._missed[k] + gained * elapsed, 0.0)
        return max((k + 1 for k in range(held, len(use)) if self._missed[k] >= cost), default=0)


class ScalingRule(Protocol):
    """Chooses the number of workers of a cluster. It may remember what it was asked before.

    Whatever it chooses is kept within the minimum and the maximum of ``slaq.scaling``, and what is
    no longer chosen stays for as long as it would cost to get it again.
    """

    def __call__(self, value: Value, here: int) -> int | None:
        """Return how many workers there are to be, or None for what the default says.

        Parameters
        ----------
        value : Value
            What the jobs still need, as ``value.demand`` with arrays (n_jobs,): `work` in
            core-seconds, the threads `width` that each can use, its `weight`, and the `value` of
            an hour of its time. For 0, 1, 2, ... workers, ``value.end`` (n_workers + 1, n_jobs) has
            the seconds until each job ends, and ``value.paid`` (n_workers + 1,) the seconds of all
            workers until none is of use. A worker has ``value.threads``, and costs ``value.price``
            per second.
        here : int
            Number of workers that the cluster has.
        """
        ...


class GuardedRule:
    """Rule of somebody else, which leaves the number to the default once it breaks."""

    def __init__(self, rule: ScalingRule, tell: Callable[[str], object]) -> None:
        self._rule, self._tell = rule, tell
        self.broken: str | None = None

    def __call__(self, value: Value, here: int) -> int | None:
        """Return what the rule says if that is a number of workers. See `ScalingRule`."""
        if self.broken is None:
            try:
                found = self._rule(value, here)
                if found is None:
                    return None
                if isinstance(found, bool) or int(found) != found or found < 0:
                    raise ValueError(f"{found!r} is not a number of workers")
                return int(found)
            except BROKEN as error:
                self.broken = f"{type(error).__name__}: {error}"
                self._tell(self.broken)
        return None
