"""What may be reported as a loss, with one clear sentence where it may not."""

from __future__ import annotations

import math
from typing import Any

from dask_slaq.core.errors import NonFiniteLoss


def finite(loss: Any) -> float:
    """A loss as a float.

    Raises
    ------
    NonFiniteLoss
    """
    if not isinstance(loss, str | bytes | bool):
        try:
            value = float(loss)
        except (TypeError, ValueError, OverflowError):
            value = math.nan
        if math.isfinite(value):
            return value
    raise NonFiniteLoss(f"a loss must be a finite number, not {loss!r}")
