"""A job as the engine sees it, what it is granted, and the settings it may have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.runtime import JobRuntime


@dataclass
class Job:
    """One training run as the engine sees it.

    Attributes
    ----------
    weight : float
        Relative importance, > 0.
    min_share, max_share : float or None
        Floor and cap in threads.
    reports : bool
        False for a stand-in that has no loss (other clients' tasks): it gets a fair share.
    iteration, loss : int, float
        Reports so far, and the last raw loss (nan before the first).
    demand : int
        Tasks that are ready or running now.
    entitled : float
        Core-seconds that a fair scheduler would have given it while it had work to do.
    """

    weight: float = 1.0
    min_share: float | None = None
    max_share: float | None = None
    reports: bool = True
    iteration: int = 0
    loss: float = math.nan
    demand: int = 0
    entitled: float = 0.0
    runtime: JobRuntime = field(default_factory=JobRuntime)


@dataclass(frozen=True)
class Grant:
    """What one job holds until the next reallocation.

    Attributes
    ----------
    share : float
        Threads.
    index : float
        Order of dispatch; higher first.
    workers : Mapping of str to float
        The worker set: threads on each worker; fractions are time-shared.
    tokens : float
        Core-seconds by which the job is behind its floor; served before any index.
    most : float
        Its cap in threads: beyond that it is served when nobody else has anything ready.
    iteration : int
        Reports received.
    loss, normalized, predicted : float
        Last raw loss; remaining loss in [0, 1]; predicted fall of the normalized loss by the next
        epoch with `share` threads.
    why : str
        The reason in words.
    """

    share: float
    index: float
    workers: Mapping[str, float]
    tokens: float
    most: float
    iteration: int
    loss: float
    normalized: float
    predicted: float
    why: str


def check_job_settings(
    weight: float, min_share: float | None, max_share: float | None, target: float | None
) -> None:
    """Raise `InvalidSetting` naming the value and what is allowed."""
    if not (is_number(weight) and weight > 0):
        raise InvalidSetting(f"weight must be a finite number > 0, not {weight!r}")
    for name, share in (("min_share", min_share), ("max_share", max_share)):
        if share is not None and not (is_number(share) and share >= 0):
            raise InvalidSetting(f"{name} must be a finite number of threads >= 0, not {share!r}")
    if max_share == 0:
        raise InvalidSetting("max_share must be > 0: a job without threads never ends")
    if min_share is not None and max_share is not None and min_share > max_share:
        raise InvalidSetting(
            f"min_share ({min_share!r} threads) must not be over max_share ({max_share!r} threads)"
        )
    if target is not None and not is_number(target):
        raise InvalidSetting(f"target must be a finite loss, not {target!r}")


def is_number(value: object) -> bool:
    """Whether `value` is a finite real number (booleans are not)."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    return math.isfinite(value)
