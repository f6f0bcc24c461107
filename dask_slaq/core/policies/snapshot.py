"""What a policy sees of the jobs and what it decides."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.policies.increments import BoolArray, FloatArray, Gain, IntArray, rows_of

#: Fields of a snapshot with one value a job.
ARRAYS = (
    *("weight", "floor", "cap", "known", "normalized", "reporting", "to_target"),
    *("age", "attained", "to_end", "efficient"),
)
#: What is taken for granted of a field that is not given.
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


def _no_gain() -> Gain:
    return np.zeros_like


def _by_threads() -> Gain:
    return np.asarray


@dataclass(frozen=True)
class Snapshot:
    """What a policy sees. Arrays are (n_jobs,), in the order of `jobs`.

    Parameters
    ----------
    jobs : tuple of str
        Names; where jobs tie, they are served in the order of their names.
    capacity : int
        Threads to share out.
    weight : array
        Positive factors of importance.
    floor : array
        Threads a job gets at least; 0 for none. Floors that sum to more than the capacity are
        scaled down in proportion.
    cap : array
        Threads a job can use at most; may be fractional or infinite. It holds against the floor.
    known : array of bool
        True where the job has a usable forecast. The others get a fair share.
    normalized : array
        Present normalized loss, a fraction in [0, 1].
    gain : callable
        Threads (n_jobs,) to the reduction (n_jobs,) of normalized loss that is predicted by the
        next epoch; 0 at 0, nondecreasing, and concave unless `concave` is false. A job whose
        gain is not finite counts as not known. With a method ``of(rows)``, to the gain of these
        jobs alone, it is evaluated much less.
    reporting : array of bool, optional
        False for what never reports: jobs without a loss, tasks of other clients. They get a fair
        share, and the lowest index where a new job's is the highest. All true by default.
    to_target : array, optional
        Core-seconds predicted until the job's loss is at its target: 0 where it has reached it,
        inf or nan where that cannot be told. All unknown by default.
    speed : callable, optional
        Threads (n_jobs,) to the core-seconds of the work in `to_target` that each job does in a
        second; nondecreasing and concave. As many as threads by default.
    age, attained : array, optional
        Seconds since the job arrived, and core-seconds that it was served since; 0 by default.
    to_end : array, optional
        Like `to_target`, until the loss falls no more to speak of.
    efficient : array, optional
        Threads beyond which a further one makes the job little faster; no limit by default.
    concave : bool
        False where gains have steps, as when iterations run in waves: policies that need
        concave gains then work on the upper hull.

    Raises
    ------
    InvalidSetting
        If an array has another length than `jobs`, a weight is not positive and finite, a floor
        or cap is negative or nan, or `to_target` is negative.
    """

    jobs: tuple[str, ...]
    capacity: int
    weight: FloatArray
    floor: FloatArray
    cap: FloatArray
    known: BoolArray
    normalized: FloatArray
    # By factory: an attribute of the class would hide what is yet to be taken for a part.
    gain: Gain = field(default_factory=_no_gain)
    reporting: BoolArray = field(default_factory=lambda: np.zeros(0, dtype=bool))
    concave: bool = True
    to_target: FloatArray = field(default_factory=_not_given)
    speed: Gain = field(default_factory=_by_threads)
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
        """The same of some of the jobs alone, of one maybe several times."""
        part = object.__new__(Snapshot)  # what was checked is not checked again
        part.__dict__.update(capacity=self.capacity, concave=self.concave, _whole=self, _rows=rows)
        return part

    def __getattr__(self, name: str) -> Any:
        """A field of a part, taken when it is first looked at: a policy looks at few of them."""
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
    """What a policy decides. Arrays are (n_jobs,), in the order of the snapshot.

    Parameters
    ----------
    share : array
        Threads, at least 0, possibly fractional; their sum is at most the capacity (but for
        rounding below 1e-9 threads).
    index : array
        Order of dispatch, higher first. Jobs of equal index are served by attained
        core-seconds over share.
    """

    share: FloatArray
    index: FloatArray
