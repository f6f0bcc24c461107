"""Check of the settings of an engine."""

from __future__ import annotations

import math

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings.job import check_latest

__all__ = ["NORMALIZERS", "check_engine_settings"]

#: What the loss reduction of a job may be divided by; see `dask_slaq.core.forecast.quality`.
NORMALIZERS = ("range", "largest-change")


def check_engine_settings(
    epoch: float, normalizer: str, floor: float, move_pause: float, latest: float = 2.0
) -> None:
    """Raise `InvalidSetting` if a setting of an engine is invalid.

    Parameters
    ----------
    epoch : float
        Seconds, positive.
    normalizer : {"range", "largest-change"}
    floor : float
        Fraction in [0, 1].
    move_pause : float
        Seconds, at least 0.
    latest : float
        Factor, at least 1; inf for none.
    """
    if not (epoch > 0 and math.isfinite(epoch)):
        raise InvalidSetting(f"epoch must be a positive number of seconds, not {epoch!r}")
    if not 0 <= floor <= 1:
        raise InvalidSetting(f"floor must be a fraction in [0, 1], not {floor!r}")
    check_latest(latest)
    if normalizer not in NORMALIZERS:
        allowed = ", ".join(NORMALIZERS)
        raise InvalidSetting(f"normalizer must be one of {allowed}, not {normalizer!r}")
    if not (move_pause >= 0 and math.isfinite(move_pause)):
        raise InvalidSetting(f"move_pause must be seconds >= 0, not {move_pause!r}")
