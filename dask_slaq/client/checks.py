"""What a job may be given: losses and resources, with one clear sentence where it may not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from dask_slaq.core.errors import InvalidSetting, NonFiniteLoss


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


def check_resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Resources as Dask takes them.

    Raises
    ------
    InvalidSetting
    """
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise InvalidSetting(f"resources must be a mapping like {{'GPU': 1}}, not {resources!r}")
    for name, amount in resources.items():
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not (isinstance(name, str) and number and math.isfinite(amount) and amount > 0):
            raise InvalidSetting(
                f"resources must map names to amounts > 0, not {name!r} to {amount!r}"
            )
    return dict(resources)
