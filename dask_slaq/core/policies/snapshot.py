"""Input of a policy (`Snapshot`) and its output (`Allocation`)."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.jobs.arrays import BoolArray, FloatArray, IntArray
from dask_slaq.core.policies.water_filling import Gain, rows_of

#: Fields of a snapshot with one value per job.
ARRAYS = (
    *("weight", "floor", "cap", "known", "normalized", "reporting", "to_target"),
    *("age", "attained", "to_end", "efficient"),
)
#: Default value of each optional array.
ASSUMED = {
    "reporting": True,
    "to_target": np.inf,
    "age": 0.0,
    "attained": 0.0,
    "to_end": np.inf,
    "efficient": np.inf,
}


def _not_given() -> FloatArray:
    return np.zeros(0)


@dataclass(frozen=True)
class Snapshot:
    """State of the jobs at one decision. Arrays are (n_jobs,), in the order of `jobs`.

    Parameters
    ----------
    jobs : tuple of str
        Names. Ties between jobs are broken by name.
    capacity : int
        Threads to allocate.
    weight : array
        Importance of each job: positive and finite.
    floor : array
        Minimum threads; 0 for no minimum. Floors that sum to more than the capacity are scaled
        down in proportion.
    cap : array
        Maximum threads; may be fractional or infinite. Where floor and cap cross, the cap holds.
    known : array of bool
        Whether the job has a usable forecast. Jobs without one get a fair share. Work without a
        loss has one: it is a straight line.
    normalized : array
        Present normalized loss, at least 0, and at most 1 of the range. Of work without a loss it
        is the share of its work that is left, over the exchange rate (docs/evaluation.md).
    gain : callable, optional
        Maps threads (n_jobs,) to the reduction of normalized loss (n_jobs,) predicted by the next
        epoch: 0 at 0, nondecreasing and concave. A job whose gain is not finite counts as not
        known. A method ``of(rows)`` makes decisions much cheaper. All gains are 0 by default.
    reporting : array of bool, optional
        False for jobs that will have no forecast. They get a fair share and the lowest index,
        whereas new jobs get the highest. All true by default.
    to_target : array, optional
        Core-seconds predicted until the job's loss reaches its target: 0 where it is reached,
        inf or nan where the prediction is unknown. Of a job at its target it is the work left to
        the end, and of work without a loss that times the exchange rate. All unknown by default.
    speed : callable, optional
        Maps threads (n_jobs,) to the core-seconds of the work in `to_target` and `to_end` that
        each job completes per second: nondecreasing and concave. The identity by default.
    age, attained : array, optional
        Seconds since the job arrived, and core-seconds of service since then; 0 by default.
    to_end : array, optional
        Core-seconds predicted until the loss hardly falls any more; otherwise like `to_target`.
    efficient : array, optional
        Threads beyond which another thread makes the job little faster; inf by default. Used by
        `with_efficiency_cap`.

    Raises
    ------
    InvalidSetting
        An array does not have one element per job, a weight is not positive and finite, a floor
        or cap is negative or nan, or `to_target` or `to_end` is negative.
    """

    jobs: tuple[str, ...]
    capacity: int
    weight: FloatArray
    floor: FloatArray
    cap: FloatArray
    known: BoolArray
    normalized: FloatArray
    # A factory, because a class attribute would keep `__getattr__` from being called for parts.
    gain: Gain = field(default_factory=lambda: np.zeros_like)
    reporting: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    to_target: FloatArray = field(default_factory=_not_given)
    speed: Gain = field(default_factory=lambda: np.asarray)
    age: FloatArray = field(default_factory=_not_given)
    attained: FloatArray = field(default_factory=_not_given)
    to_end: FloatArray = field(default_factory=_not_given)
    efficient: FloatArray = field(default_factory=_not_given)

    def __post_init__(self) -> None:
        for name, value in ASSUMED.items():
            if self.jobs and not len(getattr(self, name)):
                object.__setattr__(self, name, np.full(len(self.jobs), value))
        for name in ARRAYS:
            shape = np.shape(getattr(self, name))
            if shape != (len(self.jobs),):
                raise InvalidSetting(f"{name} has shape {shape} for {len(self.jobs)} jobs")
        if not (np.isfinite(self.weight).all() and (self.weight > 0).all()):
            raise InvalidSetting("every weight must be positive and finite")
        if not ((self.floor >= 0).all() and (self.cap >= 0).all()):
            raise InvalidSetting("floors and caps must not be negative")
        if (self.to_target < 0).any() or (self.to_end < 0).any():
            raise InvalidSetting("work left must not be negative")

    def of(self, rows: IntArray) -> Snapshot:
        """Return the snapshot of the jobs at `rows`, which may repeat. Its fields are lazy."""
        part = object.__new__(Snapshot)  # skips the checks, which the whole has passed
        part.__dict__.update(capacity=self.capacity, _whole=self, _rows=rows)
        return part

    def __getattr__(self, name: str) -> Any:
        """Return a field of a part. Computed on first access, as a policy reads few fields."""
        if "_whole" not in self.__dict__ or name not in _FIELDS:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        whole, rows = self.__dict__["_whole"], self.__dict__["_rows"]
        value = getattr(whole, name)
        if name == "jobs":
            value = tuple(map(value.__getitem__, rows.tolist()))
        elif name in ARRAYS:
            value = value[rows]
        else:
            value = rows_of(value, rows, len(whole.weight))
        self.__dict__[name] = value
        return value


_FIELDS = frozenset(each.name for each in fields(Snapshot))


@dataclass(frozen=True)
class Allocation:
    """Decision of a policy. Arrays are (n_jobs,), in the order of the snapshot.

    Parameters
    ----------
    share : array
        Threads: at least 0, possibly fractional. The sum is at most the capacity, apart from
        rounding below 1e-9 threads.
    index : array
        Order of dispatch, higher first. Its unit is that of the policy: under `first-to-target` the
        part of the way to its goal that a job goes in a core-second, under `max-total` the part of
        its loss that it sheds in an epoch of one thread. The scheduler orders jobs with equal
        indices by least service for their weight. It may keep a slot free for a job whose index is
        more than four times that of another, so ratios of indices matter too.
    """

    share: FloatArray
    index: FloatArray
