"""Parameter checks whose errors name the parameter, its value and the allowed values."""

from __future__ import annotations

import math
import numbers
from typing import Any

from dask_slaq.core.errors import InvalidSetting

__all__ = ["check_integer", "check_number"]


def check_number(name: str, value: Any, *, zero: bool) -> None:
    """Check that a parameter is a positive, finite real number.

    Parameters
    ----------
    name : str
        Name of the parameter in the error message.
    value : object
        Value to check.
    zero : bool
        Whether 0 is allowed, too.

    Raises
    ------
    InvalidSetting
        If the check fails. A subclass of `ValueError`.
    """
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    if not (real and math.isfinite(value) and (value > 0 or (zero and value == 0))):
        sign = ">=" if zero else ">"
        raise InvalidSetting(f"{name} must be a finite number {sign} 0, not {value!r}")


def check_integer(name: str, value: Any, least: int = 1) -> None:
    """Check that a parameter is an integer of at least `least`.

    Parameters
    ----------
    name : str
        Name of the parameter in the error message.
    value : object
        Value to check.
    least : int
        Smallest allowed value.

    Raises
    ------
    InvalidSetting
        If the check fails. A subclass of `ValueError`.
    """
    whole = isinstance(value, numbers.Integral) and not isinstance(value, bool)
    if not (whole and value >= least):
        raise InvalidSetting(f"{name} must be an integer >= {least}, not {value!r}")
