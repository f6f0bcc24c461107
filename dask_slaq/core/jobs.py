"""Jobs of an engine, as one row per job in shared arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core import ends, fair_clock
from dask_slaq.core.errors import DuplicateJob, UnknownJob
from dask_slaq.core.job_arrays import JobArrays
from dask_slaq.core.placement import Workers
from dask_slaq.core.runtime import Runtimes

__all__ = ["Job", "JobRuntime", "Jobs", "Order"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


class Order(NamedTuple):
    """Order of the jobs, by name, in all arrays of one decision."""

    names: tuple[str, ...]
    rows: IntArray  # (n_jobs,) rows in the tables
    position: dict[str, int]  # position of each name
    reported: tuple[str, ...]  # names of the jobs that were added as reporting a loss
    reporting: IntArray  # (n_reported,) positions of the jobs in `reported`
    owners: tuple[str, ...]  # owners of the jobs
    owner: IntArray  # (n_jobs,) position of each job's owner in `owners`

    def room(self, workers: Workers, eligible: Mapping[str, Collection[str]]) -> FloatArray:
        """Return the threads (n_jobs,) that each job may use. See `Engine.reallocate`."""
        room = np.full(len(self.names), float(workers.total))
        for name, addresses in eligible.items():
            if name in self.position:
                room[self.position[name]] = sum(workers.get(address, 0) for address in addresses)
        return room


class Jobs(Mapping[str, "Job"]):
    """Mapping of name to `Job`, made on access. Methods give arrays (n_jobs,) in `order`.

    Attributes
    ----------
    table : JobArrays
        Columns ``weight``, ``floor`` (threads, 0 for none), ``most`` (cap in threads, inf for
        none), ``target`` (loss, nan for none), ``max_iter`` (inf for unknown), ``latest`` (factor,
        nan for that of all), ``reports``, ``demand``, ``entitled`` and ``arrival``: see `Job`.
        Also ``left``, core-seconds of the tasks that have been submitted, nan if unknown;
        ``bucket``, the tokens left of the floor, and ``attained_before`` and ``attained_by_owner``,
        core-seconds charged until the last decision.
    fair_clock : FairClock
        What the jobs would have received on a cluster that shares fairly.
    ends : EndForecasts
        When they are expected to end.
    runtimes : Runtimes
        Observed iterations and tasks, in the same rows.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        self.table = JobArrays(
            {
                "weight": number,
                "floor": number,
                "most": ((), np.float64, math.inf),
                "target": ((), np.float64, math.nan),
                "max_iter": ((), np.float64, math.inf),
                "reports": ((), np.bool_, True),
                "demand": number,
                "entitled": number,
                "bucket": ((), np.float64, math.inf),
                "attained_before": number,
                "arrival": number,
                "paused": ((), np.bool_, False),
                "attained_by_owner": number,
                "latest": ((), np.float64, math.nan),
                "left": ((), np.float64, math.nan),
                **fair_clock.COLUMNS,
                **ends.COLUMNS,
            }
        )
        self.runtimes = Runtimes()
        self.fair_clock = fair_clock.FairClock(self.table)
        self.ends = ends.EndForecasts(self.table)
        self.owner: dict[str, str] = {}
        self._row: dict[str, int] = {}
        self._sorted: list[str] = []
        self._order: Order | None = None

    def __getitem__(self, name: str) -> Job:
        return Job(self, self.row(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._row)

    def __len__(self) -> int:
        return len(self._row)

    def __contains__(self, name: object) -> bool:
        return name in self._row

    def row(self, name: str) -> int:
        """Return the row of a job.

        Raises
        ------
        UnknownJob
        """
        try:
            return self._row[name]
        except KeyError:
            running = ", ".join(map(repr, sorted(self._row)[:100])) or "none"
            raise UnknownJob(f"no job named {name!r} is running; running are: {running}") from None

    def column(self, name: str, jobs: Sequence[str]) -> FloatArray:
        """Return a column (n_jobs,) of `table` for some jobs.

        Parameters
        ----------
        name : str
            Name of the column.
        jobs : sequence of str

        Raises
        ------
        UnknownJob
        """
        values: FloatArray = self.table.column[name][[self.row(job) for job in jobs]]
        return values

    def refuse_duplicate(self, name: str) -> None:
        """Raise `DuplicateJob` if a job of this name is running."""
        if name in self._row:
            raise DuplicateJob(
                f"a job named {name!r} is running already; names are unique on one scheduler"
            )

    def add(self, name: str, owner: str = "", **settings: float) -> None:
        """Add the job `name` of an `owner`, with values for some columns of `table`."""
        row = self.table.acquire()
        self.runtimes.acquire()  # both tables acquire and release together, so rows agree
        for column, value in settings.items():
            self.table.column[column][row] = value
        self._row[name] = row
        self.owner[name] = owner
        self._sorted.append(name)
        self._order = None

    def remove(self, name: str) -> None:
        """Remove a job."""
        row = self._row.pop(name)
        self.fair_clock.leave(row, self.runtimes.column["attained"].item(row))
        del self.owner[name]
        self.table.release(row)
        self.runtimes.forget(row)
        self._order = None

    def order(self) -> Order:
        """Return the jobs in the order of their names; cached until a job arrives or ends."""
        if self._order is None:
            if len(self._sorted) > len(self._row):
                self._sorted = list(dict.fromkeys(n for n in self._sorted if n in self._row))
            self._sorted.sort()
            names = tuple(self._sorted)
            rows = np.fromiter(map(self._row.__getitem__, names), np.int64, len(names))
            reporting = np.flatnonzero(self.table.column["reports"][rows])
            reported = names
            if len(reporting) < len(names):
                reported = tuple(names[i] for i in reporting.tolist())
            position = dict(zip(names, range(len(names)), strict=True))
            owners = tuple(sorted(set(self.owner.values())))
            number = dict(zip(owners, range(len(owners)), strict=True))
            owner = np.fromiter((number[self.owner[name]] for name in names), np.int64, len(names))
            self._order = Order(names, rows, position, reported, reporting, owners, owner)
        return self._order

    def age(self, rows: IntArray, now: float) -> FloatArray:
        """Return the seconds from the arrival of the jobs in `rows` until `now`."""
        age: FloatArray = np.maximum(now - self.table.column["arrival"][rows], 0.0)
        return age

    def ahead(self, rows: IntArray, reports: IntArray) -> FloatArray:
        """Return the most iterations to come (n,) of jobs in `rows` with these `reports` (n,).

        It is inf where unknown, and where a job goes on after its ``max_iter``.
        """
        left = self.table.column["max_iter"][rows] - reports
        return np.where(left > 0, left, math.inf)

    def latest(self, rows: IntArray, default: float) -> FloatArray:
        """Return the factors (n,) of their fair time at which the jobs in `rows` end at the latest.

        Parameters
        ----------
        rows : (n,) array of int
        default : float
            Factor of jobs without their own.
        """
        own = self.table.column["latest"][rows]
        return np.where(np.isnan(own), default, own)

    def total(self, rows: IntArray, work: FloatArray) -> FloatArray:
        """Return the core-seconds (n,) of jobs from arrival to end; inf if the end is unknown.

        Parameters
        ----------
        rows : (n,) array of int
        work : (n,) array
            Core-seconds of an iteration, 0 if unknown.
        """
        seen = self.runtimes.column
        ahead = self.ahead(rows, seen["reports"][rows])
        attained, left = seen["attained"][rows], self.table.column["left"][rows]
        total: FloatArray = np.where(np.isnan(left), np.inf, attained + left)
        at_report = attained - seen["charged"][rows]
        to_come = np.multiply(work, ahead, out=np.full(len(rows), np.inf), where=work > 0)
        total = np.where(np.isnan(left), at_report + to_come, total)
        total = np.maximum(total, attained)
        return total


def _cell(name: str, doc: str, none: float | None = None) -> Any:
    """Return a property that reads and writes a column, in which `none` stands for None."""

    def read(job: Job) -> Any:
        value = job._jobs.table.column[name].item(job._row)
        return None if none is not None and _same(value, none) else value

    def write(job: Job, value: float | None) -> None:
        job._jobs.table.column[name][job._row] = none if value is None else value

    return property(read, write, doc=doc)


def _seen(name: str, doc: str) -> Any:
    """Return a property that reads a column of `Jobs.runtimes` that is always up to date."""

    def read(job: Job) -> Any:
        return job._jobs.runtimes.column[name].item(job._row)

    return property(read, doc=doc)


class Job:
    """View of the row of one job, valid until the job is removed."""

    __slots__ = ("_jobs", "_row")

    weight: float = _cell("weight", "Relative importance, > 0.")
    min_share: float | None = _cell("floor", "Floor in threads.", none=0.0)
    max_share: float | None = _cell("most", "Cap in threads.", none=math.inf)
    latest: float | None = _cell(
        "latest", "Factor of its fair time at which it ends at the latest.", none=math.nan
    )
    target: float | None = _cell("target", "Loss it should reach.", none=math.nan)
    max_iter: float | None = _cell(
        "max_iter", "Iterations that it runs at most, as it said.", none=math.inf
    )
    reports: bool = _cell("reports", "False for what has no loss: it gets a fair share.")
    iteration: int = _seen("reports", "Reports so far.")
    loss: float = _seen("loss", "Last raw loss, nan before the first.")
    demand: float = _cell("demand", "Tasks that are ready or running now.")
    paused: bool = _cell("paused", "Whether it is given no threads until it is resumed.")
    arrival: float = _cell("arrival", "When it came, seconds on the caller's clock.")
    entitled: float = _cell(
        "entitled", "Core-seconds that a fair scheduler would have given it while it had work."
    )

    def __init__(self, jobs: Jobs, row: int) -> None:
        self._jobs, self._row = jobs, row

    @property
    def runtime(self) -> JobRuntime:
        """Observed iterations: `attained` as of now, the rest as of the last decision."""
        column = self._jobs.runtimes.column
        return JobRuntime(*(column[name].item(self._row) for name in JobRuntime._fields))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Job):
            return NotImplemented
        return all(map(_same, self._values(), other._values()))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        names = [*self._jobs.table.column, "iteration", "loss", "runtime"]
        pairs = zip(names, self._values(), strict=True)
        return f"Job({', '.join(f'{name}={value!r}' for name, value in pairs)})"

    def _values(self) -> list[Any]:
        column = self._jobs.table.column
        cells = [array.item(self._row) for array in column.values()]
        return [*cells, self.iteration, self.loss, self.runtime]


class JobRuntime(NamedTuple):
    """Observations of the iterations of one job."""

    work: float  # core-seconds per iteration, 0 before the first report
    width: float  # tasks of one iteration that run in parallel, at least 1
    attained: float  # core-seconds charged to the job so far
    scaled: bool  # whether its times follow Ernest's law rather than linear scaling


def _same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)
