"""What each number of workers costs, and what the time is worth that it saves.

For every number at once, the jobs are run to their ends on paper: they share the threads fairly, as
on the fair clock, each on as many as it has tasks, and new workers come after their start-up time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dask_slaq.core.forecast import Forecast
from dask_slaq.core.jobs.arrays import EPSILON_THREADS, FloatArray
from dask_slaq.core.jobs.jobs import JobTable
from dask_slaq.core.milestones import END_PART, JobCurves
from dask_slaq.core.scaling_terms import ScalingTerms
from dask_slaq.core.text import duration

#: Least work that counts.
INSTANT_CORE_SECONDS = 1e-9


@dataclass(frozen=True)
class Demand:
    """`work` (n_jobs,) of jobs in core-seconds, their `width`, `weight`, and an hour's `value`."""

    work: FloatArray
    width: FloatArray
    weight: FloatArray
    value: FloatArray

    def __post_init__(self) -> None:
        for name in ("work", "width", "weight", "value"):
            object.__setattr__(self, name, np.asarray(getattr(self, name), dtype=float))

    @property
    def waits(self) -> bool:
        """Whether there is any work."""
        return bool(((self.work > INSTANT_CORE_SECONDS) & (self.width > 0)).any())

    def waiting(self) -> Demand:
        """Return the demand without jobs that have nothing to run."""
        some = (self.work > INSTANT_CORE_SECONDS) & (self.width > 0)
        return Demand(self.work[some], self.width[some], self.weight[some], self.value[some])


class Value:
    """Costs of 0, 1, 2, ... workers for some demand: ``end`` of the jobs, and ``paid`` seconds.

    `arrive` (n_workers,) is the seconds until each worker computes, increasing, and `stays` those
    for which each costs at least. A worker has `threads`, and costs `price` per second.
    """

    def __init__(
        self, demand: Demand, arrive: FloatArray, stays: FloatArray, threads: float, price: float
    ) -> None:
        self.demand, self.price, self.threads = demand, price, threads
        self._arrive, self._stays = np.asarray(arrive, float), np.asarray(stays, float)
        # Seconds (n_workers + 1, n_jobs) until jobs end, and those (n_workers + 1,) of all workers.
        self.end, self.paid = self._run()

    def _run(self) -> tuple[FloatArray, FloatArray]:
        demand, arrive = self.demand, self._arrive
        count = np.arange(len(arrive) + 1)
        rows, jobs = len(count), len(demand.work)
        there = count[:, None] > np.arange(len(arrive))  # (rows, workers)
        left = np.tile(demand.work, (rows, 1))
        end, until = np.zeros((rows, jobs)), np.zeros((rows, len(arrive)))
        at = np.zeros(rows)
        fill = _Fill(demand.weight, demand.width)
        # Ends of jobs and arrivals of workers that are followed exactly; the rest share as they are
        # then.
        for turn in range(48, 0, -1):
            alive = left > INSTANT_CORE_SECONDS
            if not alive.any():
                break
            here = there & (arrive <= at[:, None])
            share = fill(alive, self.threads * here.sum(axis=1))
            with np.errstate(divide="ignore", invalid="ignore"):
                to_end = np.where(alive & (share > EPSILON_THREADS), left / share, np.inf)
            coming = np.where(there & ~here, arrive - at[:, None], np.inf).min(
                axis=1, initial=np.inf
            )
            step = np.minimum(to_end.min(axis=1, initial=np.inf), coming)
            # What is left over after the last turn goes on as it is; nothing ends without workers.
            last = turn == 1
            used = np.ceil(share.sum(axis=1) / self.threads - 1e-6)
            busy = there & (np.arange(len(arrive)) < used[:, None])
            if last:
                end = np.where(alive, at[:, None] + to_end, end)
                longest = np.where(alive & np.isfinite(to_end), to_end, 0.0).max(axis=1, initial=0)
                until = np.where(busy, (at + longest)[:, None], until)
                break
            goes = np.isfinite(step)
            step = np.where(goes, step, 0.0)
            left = np.where(alive, np.maximum(left - share * step[:, None], 0.0), 0.0)
            left[left <= 1e-9 * demand.work] = 0.0
            at = at + step
            until = np.where(busy & (step > 0)[:, None], at[:, None], until)
            end = np.where(alive, np.where(goes[:, None], at[:, None], np.inf), end)
            left[~goes] = 0.0
        paid = np.where(there, np.maximum(until, self._stays), 0.0).sum(axis=1)
        return end, paid

    @cached_property
    def money(self) -> FloatArray:
        """What all workers (n_workers + 1,) cost until they are no longer of use."""
        return self.price * self.paid

    @cached_property
    def time(self) -> FloatArray:
        """What jobs lose by their time with each number of workers; inf if they never end."""
        rate = self.demand.value / 3600.0
        return (rate * self.end).sum(axis=1)

    @cached_property
    def use(self) -> FloatArray:
        """What each worker (n_workers,) is worth per second, in workers, if all were there now."""
        demand, count = self.demand, np.arange(len(self._arrive) + 1)
        if not len(demand.work):
            return np.zeros(len(self._arrive))
        alive = np.ones((len(count), len(demand.work)), dtype=bool)
        share = _Fill(demand.weight, demand.width)(alive, (self.threads * count).astype(np.float64))
        before, after = share[:-1], share[1:]
        part = np.divide(
            after - before, after, out=np.zeros_like(after), where=after > EPSILON_THREADS
        )
        value = demand.value / 3600.0 / self.price * part
        return np.maximum(value, 0.0).sum(axis=1)

    def best(self, least: int = 0, most: int | None = None) -> int:
        """Return the fewest workers from `least` to `most` at which time and money cost least."""
        most = len(self._arrive) if most is None else min(most, len(self._arrive))
        total = (self.money + self.time)[least : most + 1]
        if not len(total) or not np.isfinite(total).any():
            return max(least, 0) if not len(total) else most
        return least + int(np.argmin(total))

    def compare(self, fewer: int, more: int) -> dict[str, Any]:
        """Return what is gained by `more` workers instead of `fewer`, in seconds and prices."""
        with np.errstate(invalid="ignore"):
            sooner = np.nan_to_num(self.end[fewer] - self.end[more], nan=0.0, posinf=np.inf)
            value = self.time[fewer] - self.time[more]
        last = self.end[fewer].max(initial=0.0) - self.end[more].max(initial=0.0)
        return {
            "seconds": float(sooner.sum()),
            "jobs": int((np.abs(sooner) >= 0.5).sum()),
            "last": 0.0 if math.isnan(last) else float(last),
            "worth": 0.0 if math.isnan(value) else float(value),
            "cost": float(self.money[more] - self.money[fewer]),
        }


class _Fill:
    """Fair shares of several numbers of threads at once; see `fair_fill`."""

    def __init__(self, weight: FloatArray, width: FloatArray) -> None:
        self._order = np.argsort(width / weight)
        self._back = np.argsort(self._order)
        self._weight, self._width = weight[self._order], width[self._order]

    def __call__(self, alive: Any, threads: FloatArray) -> FloatArray:
        """Return the shares (n_rows, n_jobs) of `threads` (n_rows,) for jobs that are `alive`."""
        alive = alive[:, self._order]
        weight, width = self._weight * alive, self._width * alive
        # The first jobs in this order get all that they can use, the others go by weight.
        full = np.cumsum(width, axis=1) - width
        rest = np.cumsum(weight[:, ::-1], axis=1)[:, ::-1]
        with np.errstate(divide="ignore", invalid="ignore"):
            level = np.where(rest > 0, (threads[:, None] - full) / rest, np.inf)
            fits = (level * self._weight <= self._width) & alive
        # The first that gets less than it can use tells how much a weight of one gets.
        first = np.take_along_axis(level, fits.argmax(axis=1)[:, None], axis=1)
        first = np.where(fits.any(axis=1)[:, None], np.maximum(first, 0.0), 1e300)
        share = np.minimum(width, weight * first)
        return share[:, self._back]


def work_left(
    jobs: JobTable, forecast: Forecast, tasks: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the core-seconds (n_jobs,) that jobs have left, and the threads that they can use.

    One of unknown length has the iterations after which its loss hardly falls any more, or goes on
    for as long as it has; one of which no task has ended has nan.
    """
    order = jobs.order()
    rows, at = order.rows, order.reporting
    column, seen = jobs.table.column, jobs.runtimes.column
    speeds, attained = jobs.runtimes.speeds(rows), seen["attained"][rows]
    left = jobs.total(rows, speeds.work) - attained
    ahead = JobCurves.of(jobs, forecast, speeds.work).iterations(END_PART)
    by_curve = np.full(len(rows), np.inf)
    known = speeds.work[at] > 0
    by_curve[at[known]] = (ahead * speeds.work[at])[known]
    submitted = column["submitted"][rows]
    so_far = np.where(attained > 0, attained, np.nan)
    unknown = np.where(np.isnan(submitted), so_far, submitted)
    for other in (by_curve, unknown):
        left = np.where(np.isfinite(left), left, other)
    # Between two iterations there are no tasks for a moment.
    tasks = np.maximum(tasks, column["demand"][rows])
    trains = column["reports"][rows] & (seen["reports"][rows] > 0)
    tasks = np.where(trains, np.maximum(tasks, speeds.width), tasks)
    width = np.minimum(tasks, column["most"][rows])
    width[speeds.scaled] = np.minimum(width, speeds.efficient)[speeds.scaled]
    return left, np.where(column["paused"][rows], 0.0, width)


def in_words(value: Value, here: int, best: int, asked: int | None, terms: ScalingTerms) -> str:
    """Return why `best` workers pay, or what `asked` ones would change; `here` are there now."""
    if not value.demand.work.size:
        reason = f"no work waits: {_count(best, 'worker')}"
        if best:
            reason += ", the minimum" if best == terms.minimum else ", for the data in memory"
        return reason
    if asked is not None and asked != here:
        change = _change(value.compare(here, asked), terms)
        return f"{_count(asked, 'worker')} instead of {here}: {change}"
    pay = f"{_count(best, 'worker')} {'pays' if best == 1 else 'pay'} now"
    if best >= terms.maximum:
        pay = f"{pay}, and no more are allowed"
    elif best == terms.minimum:
        pay = f"{_count(best, 'worker')}, the minimum"
    return f"{pay}: {_one_more(value, best, terms)}"


def _one_more(value: Value, best: int, terms: ScalingTerms) -> str:
    found = value.compare(best, best + 1)
    if found["jobs"] == 0 or not math.isfinite(found["seconds"]):
        return "another one would save no time"
    saved = f"another one would save {duration(found['seconds'])} of {_count(found['jobs'], 'job')}"
    worth, cost = (_money(found[key], terms) for key in ("worth", "cost"))
    return f"{saved}, worth {worth}, and costs {cost}"


def _change(found: dict[str, Any], terms: ScalingTerms) -> str:
    last, cost = found["last"], found["cost"]
    for_ = f"for {_money(abs(cost), terms)} {'more' if cost >= 0 else 'less'}"
    if abs(cost) < 1e-12:
        for_ = "for the same"
    if math.isinf(last):
        return f"{'all would end at last' if last > 0 else 'nothing would end'}, {for_}"
    if abs(last) < 0.5 and abs(found["seconds"]) < 0.5:
        return f"nothing ends sooner, {for_}"
    if abs(last) < 0.5:
        sooner = "sooner" if found["seconds"] > 0 else "later"
        total = duration(abs(found["seconds"]))
        return f"{_count(found['jobs'], 'job')} end {total} {sooner} in total, {for_}"
    return f"all ends {duration(abs(last))} {'sooner' if last > 0 else 'later'}, {for_}"


def _count(count: int, what: str) -> str:
    return f"{count} {what}" + "s" * (count != 1)


def _money(amount: float, terms: ScalingTerms) -> str:
    unit = f" {terms.unit}" if terms.unit else ""
    return (f"{amount:.2f}" if abs(amount) >= 0.095 else f"{amount:.2g}") + unit
