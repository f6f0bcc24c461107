"""Validation of reported losses and of times."""

from __future__ import annotations

import math
import re
from typing import Any

from dask.utils import parse_timedelta

from dask_slaq.core.errors import InvalidSetting, NonFiniteLoss
from dask_slaq.core.settings import shown


def finite(loss: Any) -> float:
    """Convert a loss to a finite float.

    Raises
    ------
    NonFiniteLoss
        The loss is a string, bytes or a boolean, or does not convert to a finite number.
    """
    if not isinstance(loss, str | bytes | bool):
        try:
            value = float(loss)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if math.isfinite(value):
            return value
    raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")


def seconds_of(by: str | float) -> float:
    """Return a time in seconds.

    Raises
    ------
    InvalidSetting
    """
    try:
        # Dask knows minutes as "m" only.
        return float(
            parse_timedelta(re.sub(r"(?<=\d)\s*min$", "m", by) if isinstance(by, str) else by)
        )
    except (KeyError, TypeError, ValueError) as error:
        raise InvalidSetting(
            f"by must be a time such as '10min' or a number of seconds, not {shown(by)}"
        ) from error
