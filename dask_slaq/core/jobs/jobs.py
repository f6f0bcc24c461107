"""Jobs of an engine, as one row per job in shared arrays."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from dask_slaq.core.errors import DuplicateJob, UnknownJob
from dask_slaq.core.jobs import ends, fair_clock
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray, JobArrays
from dask_slaq.core.jobs.reports import LOST_REPORTS
from dask_slaq.core.jobs.settings import JOB_SETTINGS, OF_ENGINE
from dask_slaq.core.placement import Workers
from dask_slaq.core.runtime import Runtimes
from dask_slaq.core.settings import teams_above


class Epoch(NamedTuple):
    """Epoch that begins with a decision, on a cluster of `capacity` threads; in seconds."""

    now: float
    elapsed: float  # since the decision before
    seconds: float
    capacity: int


class JobOrder(NamedTuple):
    """Order of the jobs, by name, in all arrays of one decision."""

    names: tuple[str, ...]
    rows: IntArray  # (n_jobs,) rows in the tables
    position: dict[str, int]  # position of each name
    reported: tuple[str, ...]  # names of the jobs that were added as reporting a loss
    reporting: IntArray  # (n_reported,) positions of the jobs in `reported`
    owners: tuple[str, ...]  # owners of the jobs
    owner: IntArray  # (n_jobs,) position of each job's owner in `owners`
    searches: tuple[IntArray, ...]  # positions of the jobs of each search with several

    def capacity(self, workers: Workers, eligible: Mapping[str, Collection[str]]) -> FloatArray:
        """Return the threads (n_jobs,) that each job may use. See `Engine.reallocate`."""
        room = np.full(len(self.names), float(workers.total))
        for name, addresses in eligible.items():
            if name in self.position:
                room[self.position[name]] = sum(workers.get(address, 0) for address in addresses)
        return room


class JobTable(Mapping[str, "JobRecord"]):
    """Mapping of name to `JobRecord`, made on access. Methods give arrays (n_jobs,) in `order`.

    ``table`` has one row per job; ``runtimes`` has its observed iterations and tasks in the same
    row. ``fair_clock`` knows what the jobs would have received on a cluster that shares fairly, and
    ``ends`` when they are expected to end.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        settings = [JOB_SETTINGS[name] for name in OF_ENGINE]
        self.table = JobArrays(
            {
                # Settings: floor and most in threads, a loss as target, and so on.
                **{each.column: ((), np.float64, each.empty) for each in settings},
                "reports": ((), np.bool_, True),  # False for work without a loss
                "demand": number,  # tasks that are ready or running now
                "entitled": number,  # core-seconds of a fair share while it had work
                "bucket": ((), np.float64, math.inf),  # core-seconds of tokens left of the floor
                "attained_before": number,  # core-seconds charged until the last decision
                "arrival": number,  # seconds on the caller's clock
                "paused": ((), np.bool_, False),
                "attained_by_owner": number,  # core-seconds charged to the owner
                "left": ((), np.float64, math.nan),  # core-seconds of submitted tasks, or nan
                "submitted": ((), np.float64, math.nan),  # the same where more may come
                **fair_clock.COLUMNS,
                **ends.COLUMNS,
            }
        )
        self.runtimes = Runtimes()
        self.fair_clock = fair_clock.FairClock(self.table)
        self.ends = ends.EndForecasts(self.table)
        self.owner: dict[str, str] = {}
        self.search: dict[str, str] = {}  # of the jobs that are models of a search, or are one
        self.teams = Counter[str]()  # of these owners
        self.rows: dict[str, int] = {}
        self._sorted: list[str] = []
        self._order: JobOrder | None = None

    def __getitem__(self, name: str) -> JobRecord:
        return JobRecord(self, self.row(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.rows)

    def __contains__(self, name: object) -> bool:
        return name in self.rows

    def row(self, name: str) -> int:
        """Return the row of a job, or raise `UnknownJob`."""
        try:
            return self.rows[name]
        except KeyError:
            running = ", ".join(map(repr, sorted(self.rows)[:100])) or "none"
            raise UnknownJob(f"no job named {name!r} is running; running are: {running}") from None

    def column(self, name: str, jobs: Sequence[str]) -> FloatArray:
        """Return a column (n_jobs,) of `table` for some jobs, or raise `UnknownJob`."""
        return self.table.column[name][[self.row(job) for job in jobs]]

    def refuse_duplicate(self, name: str) -> None:
        """Raise `DuplicateJob` if a job of this name is running."""
        if name in self.rows:
            raise DuplicateJob(
                f"a job named {name!r} is running already, and names are unique on one scheduler: "
                f"end it with slaq.stop({name!r}), wait for its end, or use another name"
            )

    def add(self, name: str, owner: str = "", search: str = "", **settings: float) -> None:
        """Add the job `name` of an `owner`, with values for some columns of `table`."""
        row = self.table.acquire()
        self.runtimes.acquire()  # both tables acquire and release together, so rows agree
        for column, value in settings.items():
            self.table.column[column][row] = value
        self.rows[name] = row
        self.owner[name] = owner
        if search:
            self.search[name] = search
        self.teams.update(teams_above(owner))
        self._sorted.append(name)
        self._order = None

    def remove(self, name: str) -> None:
        """Remove a job."""
        row = self.rows.pop(name)
        self.fair_clock.leave(row, self.runtimes.column["attained"].item(row))
        for team in teams_above(self.owner.pop(name)):
            self.teams[team] -= 1
            if not self.teams[team]:
                del self.teams[team]
        self.search.pop(name, None)
        self.table.release(row)
        self.runtimes.forget(row)
        self._order = None

    def order(self) -> JobOrder:
        """Return the jobs in the order of their names; cached until a job arrives or ends."""
        if self._order is None:
            if len(self._sorted) > len(self.rows):
                self._sorted = list(dict.fromkeys(n for n in self._sorted if n in self.rows))
            self._sorted.sort()
            names = tuple(self._sorted)
            rows = np.fromiter(map(self.rows.__getitem__, names), np.int64, len(names))
            reporting = np.flatnonzero(self.table.column["reports"][rows])
            reported = names
            if len(reporting) < len(names):
                reported = tuple(names[i] for i in reporting.tolist())
            position = dict(zip(names, range(len(names)), strict=True))
            owners = tuple(sorted(set(self.owner.values())))
            number = dict(zip(owners, range(len(owners)), strict=True))
            owner = np.fromiter((number[self.owner[name]] for name in names), np.int64, len(names))
            of: dict[str, list[int]] = {}
            for name, search in self.search.items():
                of.setdefault(search, []).append(position[name])
            searches = tuple(np.array(sorted(at)) for at in of.values() if len(at) > 1)
            self._order = JobOrder(
                names, rows, position, reported, reporting, owners, owner, searches
            )
        return self._order

    def age(self, rows: IntArray, now: float) -> FloatArray:
        """Return the seconds from the arrival of the jobs in `rows` until `now`."""
        return np.maximum(now - self.table.column["arrival"][rows], 0.0)

    def ahead(self, rows: IntArray) -> FloatArray:
        """Return the most reports to come (n,); inf where unknown, or after ``max_iter``."""
        seen = self.runtimes.column
        left = (self.table.column["max_iter"][rows] - seen["step"][rows]) / seen["stride"][rows]
        return np.where(left > 0, left, math.inf)

    def before_report(self, rows: IntArray) -> BoolArray:
        """Return which jobs (n,) in `rows` have announced iterations, and ended none so far."""
        announced = np.isfinite(self.table.column["max_iter"][rows])
        new: BoolArray = announced & (self.runtimes.column["reports"][rows] == 0)
        return new

    def first_iteration(self, rows: IntArray, work: FloatArray) -> FloatArray:
        """Return the core-seconds (n,) of the first iteration of jobs before their first report.

        It is as long as the tasks that the job submitted, and at least as those of past runs. If
        nothing is submitted now, it is at least as long as those of other jobs, in `work`.
        """
        seen = self.runtimes.column
        left = np.nan_to_num(self.table.column["submitted"][rows])
        begun, past = seen["attained"][rows] + left, seen["past_work"][rows]
        return np.maximum(np.where((past == 0) & (left == 0), work, past), begun)

    def diverge(self, rows: IntArray) -> BoolArray:
        """Return which of the jobs (n,) in `rows` have had no usable loss for long."""
        lost: BoolArray = self.runtimes.column["missed"][rows] >= LOST_REPORTS
        return lost

    def max_slowdown(self, rows: IntArray, default: float) -> FloatArray:
        """Return the factors (n,) of their fair time at which jobs end at the latest."""
        own = self.table.column["max_slowdown"][rows]
        return np.where(np.isnan(own), default, own)

    def total(self, rows: IntArray, work: FloatArray) -> FloatArray:
        """Return the core-seconds (n,) of jobs from arrival to end, inf if unknown.

        `work` is that of an iteration. Before its first report, one as long as those of past runs
        counts, or else as the tasks that the job submitted, or else as those of other jobs.
        """
        seen = self.runtimes.column
        ahead = self.ahead(rows)
        attained, left = seen["attained"][rows], self.table.column["left"][rows]
        total: FloatArray = np.where(np.isnan(left), np.inf, attained + left)
        at_report = attained - seen["charged"][rows]
        to_come = np.multiply(work, ahead, out=np.full(len(rows), np.inf), where=work > 0)
        total = np.where(np.isnan(left), at_report + to_come, total)
        begun, one = attained + np.nan_to_num(left), self.first_iteration(rows, work)
        first = self.before_report(rows)
        rest = np.multiply(ahead - 1, one, out=np.full(len(rows), np.inf), where=first & (one > 0))
        total = np.where(first, np.maximum(one, begun) + rest, total)
        total = np.maximum(total, attained)
        return total


def _cell(name: str, none: float | None = None) -> Any:
    """Return a property that reads a column of `JobTable.table`; `none` and nan stand for None."""

    def read(job: JobRecord) -> Any:
        value = job._jobs.table.column[name].item(job._row)
        return None if value == none or value != value else value

    return property(read)


def _seen(name: str) -> Any:
    """Return a property that reads a column of `JobTable.runtimes`."""
    return property(lambda job: job._jobs.runtimes.column[name].item(job._row))


class JobRecord:
    """View of the row of one job, valid until the job is removed."""

    __slots__ = ("_jobs", "_row")

    # Settings, each a property; see `JOB_SETTINGS`.
    weight: float
    min_share: float | None
    max_share: float | None
    max_slowdown: float | None
    target: float | None
    max_iter: float | None

    reports: bool = _cell("reports")  # False for work without a loss
    iteration: int = _seen("step")  # reports so far, or as they are numbered
    missed: int = _seen("missed")  # last reports without a usable loss
    loss: float = _seen("loss")  # the last usable one, raw; nan before it
    # As of the last decision, but for `attained`.
    work: float = _seen("work")  # core-seconds per iteration, 0 before the first report
    attained: float = _seen("attained")  # core-seconds charged to the job so far
    scaled: bool = _seen("scaled")  # whether its times follow Ernest's law, not linear scaling
    paused: bool = _cell("paused")
    arrival: float = _cell("arrival")  # seconds on the caller's clock

    def __init__(self, jobs: JobTable, row: int) -> None:
        self._jobs, self._row = jobs, row

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that the engine uses, by name."""
        return {name: getattr(self, name) for name in OF_ENGINE}


for _name in OF_ENGINE:
    setattr(JobRecord, _name, _cell(JOB_SETTINGS[_name].column, JOB_SETTINGS[_name].empty))
