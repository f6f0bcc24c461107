"""Check of the settings of a job."""

from __future__ import annotations

import math

import numpy as np

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings.names import shown

__all__ = ["check_job_settings", "is_number"]

#: Bounds on settings, so that sums over jobs do not overflow.
LEAST_WEIGHT, MOST_WEIGHT = 1e-6, 1e6
MOST_THREADS = 1e9
MOST_SECONDS = 86_400e3
#: What a target is: a loss, or a part of the predicted range of the loss.
TARGET_KINDS = ("loss", "reduction")


def check_latest(latest: float) -> None:
    """Raise `InvalidSetting` unless `latest` is a factor of the fair time."""
    number = isinstance(latest, int | float) and not isinstance(latest, bool)
    if not (number and latest >= 1):
        raise InvalidSetting(
            f"latest must be a factor >= 1 of the fair time, inf for none, not {shown(latest)}"
        )


def check_job_settings(
    weight: float = 1.0,
    min_share: float | None = None,
    max_share: float | None = None,
    target: float | None = None,
    max_iter: int | None = None,
    latest: float | None = None,
    gang: bool = False,
    target_kind: str = "loss",
    by: float | None = None,
    stop: bool = False,
) -> None:
    """Raise `InvalidSetting` if a setting is not allowed. See `Engine.add_job`.

    With `gang`, the ready tasks of a job must start together. A `target` of the kind
    ``"reduction"`` is a part of the predicted range of the loss, to be reached in `by` seconds.
    """
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
    if latest is not None:
        check_latest(latest)
    if target is not None and not is_number(target):
        raise InvalidSetting(f"target must be a finite loss, not {shown(target)}")
    if max_iter is not None and not (is_number(max_iter) and 1 <= max_iter == int(max_iter)):
        raise InvalidSetting(f"max_iter must be a number of iterations >= 1, not {shown(max_iter)}")
    if not isinstance(gang, bool):
        raise InvalidSetting(f"gang must be True or False, not {shown(gang)}")

    if target_kind not in TARGET_KINDS:
        raise InvalidSetting(
            f"target_kind must be one of {', '.join(TARGET_KINDS)}, not {shown(target_kind)}"
        )
    if target_kind == "reduction" and target is not None and not 0 < target < 1:
        raise InvalidSetting(
            f"target must be a part of the loss reduction in (0, 1), not {shown(target)}"
        )
    if by is not None and not (is_number(by) and 0 < by <= MOST_SECONDS):
        raise InvalidSetting(f"by must be a time > 0 and at most 1000 days, not {shown(by)}")
    if not isinstance(stop, bool):
        raise InvalidSetting(f"stop must be True or False, not {shown(stop)}")
    if target is None and (by is not None or stop):
        raise InvalidSetting("by and stop need a target")


def is_number(value: object) -> bool:
    """Return whether a value is a finite real number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False
