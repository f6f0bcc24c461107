"""Validation of reported losses."""

from __future__ import annotations

import math
from typing import Any

from dask_slaq.core.errors import NonFiniteLoss


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
