"""The jobs as the engine sees them: one row a job in shared arrays, and what may be set."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dask_slaq.core.errors import DuplicateJob, InvalidSetting, UnknownJob
from dask_slaq.core.placement import Workers
from dask_slaq.core.rows import Rows
from dask_slaq.core.runtime import Runtimes
from dask_slaq.core.validation import shown

__all__ = ["Job", "JobRuntime", "Jobs", "Order", "check_job_settings"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
BoolArray = NDArray[np.bool_]


#: Epochs' worth of its fair share after which a job that has not reported yet is taken for one that
#: never does: it would come before all others as long as it runs.
EXPLORED = 2.0
#: Epochs' worth of its share that a job without a loss may owe.
LENT = 1.0
#: Bounds of what may be set, so that no sum over jobs overflows.
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
MOST_THREADS = 1e9


class Order(NamedTuple):
    """The jobs in the order of their names, which is that of all arrays of one decision."""

    names: tuple[str, ...]
    rows: IntArray  # (n_jobs,)
    position: dict[str, int]  # of each name
    reported: tuple[str, ...]  # names of those that report
    reporting: IntArray  # (n_reported,) their positions

    def room(self, workers: Workers, eligible: Mapping[str, Collection[str]]) -> FloatArray:
        """Threads (n_jobs,) of the workers that each job may use; all, if it is not listed."""
        room = np.full(len(self.names), float(workers.total))
        for name, addresses in eligible.items():
            if name in self.position:
                room[self.position[name]] = sum(workers.get(address, 0) for address in addresses)
        return room


class Jobs(Mapping[str, "Job"]):
    """All jobs by name; a `Job` is made when one is asked for.

    Attributes
    ----------
    table : Rows
        Columns ``weight``, ``floor`` and ``most`` (threads, 0 and inf for none), ``target``
        (loss, nan for none), ``max_iter`` (inf for unknown), ``reports``, ``demand``,
        ``entitled``, ``arrival``: see `Job`; ``bucket``, what is left of the tokens of its floor,
        and ``attained_before``, the core-seconds at the last decision.
    runtimes : Runtimes
        What was seen of their iterations, in the same rows.
    """

    def __init__(self) -> None:
        number = ((), np.float64, 0.0)
        self.table = Rows(
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
            }
        )
        self.runtimes = Runtimes()
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
        """The row of a job.

        Raises
        ------
        UnknownJob
        """
        try:
            return self._row[name]
        except KeyError:
            running = ", ".join(map(repr, sorted(self._row)[:100])) or "none"
            raise UnknownJob(f"no job named {name!r} is running; running are: {running}") from None

    def refuse_duplicate(self, name: str) -> None:
        """Raise `DuplicateJob` if there is such a job."""
        if name in self._row:
            raise DuplicateJob(
                f"a job named {name!r} is running already; names are unique on one scheduler"
            )

    def add(self, name: str, **settings: float) -> None:
        """Give a job a row, and set some of its columns."""
        row = self.table.acquire()
        self.runtimes.acquire()  # the tables take and free rows together, so they agree
        for column, value in settings.items():
            self.table.column[column][row] = value
        self._row[name] = row
        self._sorted.append(name)
        self._order = None

    def remove(self, name: str) -> None:
        """Forget a job."""
        row = self._row.pop(name)
        self.table.release(row)
        self.runtimes.forget(row)
        self._order = None

    def order(self) -> Order:
        """The jobs by name, sorted when some came or went."""
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
            self._order = Order(names, rows, position, reported, reporting)
        return self._order

    def pass_time(self, capacity: float, elapsed: float) -> None:
        """Let `elapsed` seconds go by, and credit each job that has work with its fair share of
        the capacity, in threads."""
        rows, column = self.order().rows, self.table.column
        self.runtimes.advance(rows, elapsed)
        demand = column["demand"][rows]
        weight = np.where(demand > 0, column["weight"][rows], 0.0)
        total = weight.sum()
        if total > 0:
            column["entitled"][rows] += np.minimum(capacity * weight / total, demand) * elapsed

    def reporting(self, capacity: float, epoch: float) -> BoolArray:
        """Which jobs (n_jobs,) report a loss, or may do so yet."""
        rows, column, seen = self.order().rows, self.table.column, self.runtimes.column
        weight = column["weight"][rows]
        explored = EXPLORED * epoch * capacity * weight / weight.sum()
        silent = (seen["reports"][rows] == 0) & (seen["attained"][rows] > explored)
        reporting: BoolArray = column["reports"][rows] & ~silent
        return reporting

    def age(self, rows: IntArray, now: float) -> FloatArray:
        """Seconds (n_jobs,) since they came."""
        age: FloatArray = np.maximum(now - self.table.column["arrival"][rows], 0.0)
        return age

    def ahead(self, rows: IntArray, reports: IntArray) -> FloatArray:
        """Iterations (n_jobs,) still to come at most, of jobs with so many reports; inf where that
        is unknown, or where a job goes on beyond what it said."""
        left = self.table.column["max_iter"][rows] - reports
        return np.where(left > 0, left, math.inf)

    def refill(
        self,
        share: FloatArray,
        reporting: BoolArray,
        credit: float,
        epoch: float,
        elapsed: float,
    ) -> FloatArray:
        """Grant tokens (n_jobs,), core-seconds to serve before any index: what a job has less than
        the part `credit` of its entitlement, and its floor in threads for the seconds `elapsed`,
        with what is left of it from before, at most an epoch's. What never reports comes last, so
        its share is its floor."""
        rows, column = self.order().rows, self.table.column
        attained = self.runtimes.column["attained"][rows]
        least = column["floor"][rows]
        floor = np.where(reporting, least, share)
        # What it was lent beyond that comes off later: who lent it is behind.
        debt = LENT * np.maximum(floor - least, 0.0) * epoch
        used = attained - column["attained_before"][rows]
        left = np.maximum(column["bucket"][rows] - used, -debt)
        bucket = np.minimum(left + floor * elapsed, floor * epoch)
        column["bucket"][rows], column["attained_before"][rows] = bucket, attained
        behind = credit * column["entitled"][rows] - attained
        tokens: FloatArray = np.maximum(np.maximum(behind, bucket), 0.0)
        return tokens


def _cell(name: str, doc: str, none: float | None = None) -> Any:
    """A property that reads and writes a column; `none` stands for None there."""

    def read(job: Job) -> Any:
        value = job._jobs.table.column[name].item(job._row)
        return None if none is not None and _same(value, none) else value

    def write(job: Job, value: float | None) -> None:
        job._jobs.table.column[name][job._row] = none if value is None else value

    return property(read, write, doc=doc)


def _seen(name: str, doc: str) -> Any:
    """A property that reads what was seen of the iterations, as of now."""

    def read(job: Job) -> Any:
        return job._jobs.runtimes.column[name].item(job._row)

    return property(read, doc=doc)


class Job:
    """One training run: a window on its row, valid until the job is removed."""

    __slots__ = ("_jobs", "_row")

    weight: float = _cell("weight", "Relative importance, > 0.")
    min_share: float | None = _cell("floor", "Floor in threads.", none=0.0)
    max_share: float | None = _cell("most", "Cap in threads.", none=math.inf)
    target: float | None = _cell("target", "Loss it should reach.", none=math.nan)
    max_iter: float | None = _cell(
        "max_iter", "Iterations that it runs at most, as it said.", none=math.inf
    )
    reports: bool = _cell("reports", "False for what has no loss: it gets a fair share.")
    iteration: int = _seen("reports", "Reports so far.")
    loss: float = _seen("loss", "Last raw loss, nan before the first.")
    demand: float = _cell("demand", "Tasks that are ready or running now.")
    arrival: float = _cell("arrival", "When it came, seconds on the caller's clock.")
    entitled: float = _cell(
        "entitled", "Core-seconds that a fair scheduler would have given it while it had work."
    )

    def __init__(self, jobs: Jobs, row: int) -> None:
        self._jobs, self._row = jobs, row

    @property
    def runtime(self) -> JobRuntime:
        """What was seen of its iterations: core-seconds as of now, the rest as of the last
        decision."""
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
    """What was seen of one job's iterations."""

    work: float  # core-seconds of one iteration, 0 until one was seen from report to report
    width: float  # tasks of one iteration that run in parallel, at least 1
    attained: float  # core-seconds charged to the job so far
    scaled: bool  # whether its times follow Ernest's law, and not the linear one


def _same(one: object, other: object) -> bool:
    return one == other or (one != one and other != other)


def check_job_settings(
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    gang: bool = False,
) -> None:
    """Raise `InvalidSetting` naming the value and what is allowed."""
    if not (is_number(weight) and weight > 0):
        raise InvalidSetting(f"weight must be a finite number > 0, not {shown(weight)}")
    if not LEAST_WEIGHT <= weight <= MOST_WEIGHT:
        raise InvalidSetting(
            f"weight must be from {LEAST_WEIGHT:g} to {MOST_WEIGHT:g}, not {shown(weight)}"
        )
    for name, share in (("min_share", min_share), ("max_share", max_share)):
        if share is not None and not (is_number(share) and share >= 0):
            raise InvalidSetting(
                f"{name} must be a finite number of threads >= 0, not {shown(share)}"
            )
        if share is not None and share > MOST_THREADS:
            raise InvalidSetting(f"{name} must be at most {MOST_THREADS:g}, not {shown(share)}")
    if max_share == 0:
        raise InvalidSetting("max_share must be > 0: a job without threads never ends")
    if min_share is not None and max_share is not None and min_share > max_share:
        raise InvalidSetting(
            f"min_share ({min_share!r} threads) must not be over max_share ({max_share!r} threads)"
        )
    if target is not None and not is_number(target):
        raise InvalidSetting(f"target must be a finite loss, not {shown(target)}")
    if max_iter is not None and not (is_number(max_iter) and 1 <= max_iter == int(max_iter)):
        raise InvalidSetting(f"max_iter must be a number of iterations >= 1, not {shown(max_iter)}")
    if not isinstance(gang, bool):
        raise InvalidSetting(f"gang must be True or False, not {shown(gang)}")


def is_number(value: object) -> bool:
    """Whether `value` is a finite real number (booleans are not)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the floats
        return False
