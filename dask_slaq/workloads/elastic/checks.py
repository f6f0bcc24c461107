"""Checks of parameters: an error names the parameter, its value and what is allowed."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dask_slaq.core.errors import InvalidSetting

__all__ = ["check_integer", "check_number"]


def check_number(name: str, value: Any, *, zero: bool) -> None:
    """A finite real number above zero, or zero itself if that is allowed.

    Raises
    ------
    InvalidSetting
        A `ValueError`.
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and math.isfinite(value) and (value > 0 or (zero and value == 0))):
        sign = ">=" if zero else ">"
        raise InvalidSetting(f"{name} must be a finite number {sign} 0, not {value!r}")


def check_integer(name: str, value: Any, least: int = 1) -> None:
    """An integer, not less than `least`.

    Raises
    ------
    InvalidSetting
        A `ValueError`.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise InvalidSetting(f"{name} must be an integer >= {least}, not {value!r}")
