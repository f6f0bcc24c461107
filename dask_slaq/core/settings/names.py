"""Checks of job names and resources, used by both the client and the scheduler."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping

from dask_slaq.core.errors import InvalidSetting

__all__ = [
    "ALERTS",
    "ALERT_TOPIC",
    "AUDIT_TOPIC",
    "ENDS",
    "LONGEST_NAME",
    "NOT_STARTED",
    "STEER_TOPIC",
    "check_limits",
    "check_name",
    "check_owner",
    "check_resources",
    "shown",
]

#: Maximum number of characters in the name of a job.
LONGEST_NAME = 256
#: Topic of events by which the scheduler asks clients to stop their jobs.
STEER_TOPIC = "slaq-steer"
#: Topic of alerts: a job reached its target, converged, diverged, and so on.
ALERT_TOPIC = "slaq"
#: Topic of events on who changed what.
AUDIT_TOPIC = "slaq-audit"
#: Name of the stand-in for a plugin that could not start, and key of the reason in the scheduler's
#: metadata.
NOT_STARTED = "slaq-not-started"
#: Alerts that a job ended; the last one if its client was lost.
ENDS = ("done", "stopped", "failed", "lost")
#: All kinds of alerts.
ALERTS = ("reached", "late", "converged", "stalled", "diverged", *ENDS, "fell back", "audit")

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


def shown(value: object) -> str:
    """Return the repr of a value, shortened to at most 100 characters."""
    if isinstance(value, bytes | bytearray):
        value = value[:100]
    try:
        return _repr.repr(value)[:100]
    except Exception:  # for example, an int with too many digits
        return f"a {type(value).__name__}"


def check_name(name: object) -> None:
    """Raise `InvalidSetting` unless a value may be the name of a job."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME or name.startswith("other:"):
        raise InvalidSetting(
            f"a job's name must be a string of 1 to {LONGEST_NAME} characters that does not start "
            f"with 'other:', not {shown(name)}"
        )


def check_owner(owner: object) -> str:
    """Return the name of an owner, empty for None.

    Raises
    ------
    InvalidSetting
        If it is not a string of at most `LONGEST_NAME` characters.
    """
    if owner is None:
        return ""
    if not isinstance(owner, str) or not 0 < len(owner) <= LONGEST_NAME:
        raise InvalidSetting(
            f"owner must be a string of 1 to {LONGEST_NAME} characters, not {shown(owner)}"
        )
    return owner


def check_limits(limits: object) -> dict[str, int]:
    """Return limits as a dict of label to the most tasks at once.

    Raises
    ------
    InvalidSetting
        If `limits` does not map strings to whole numbers from 1 to a million.
    """
    if not isinstance(limits, Mapping):
        raise InvalidSetting(
            f"limits must be a mapping like {{'database': 8}}, not {shown(limits)}"
        )
    for label, most in limits.items():
        number = isinstance(most, int) and not isinstance(most, bool)
        known = isinstance(label, str) and 0 < len(label) <= LONGEST_NAME
        if not (known and number and 1 <= most <= 1_000_000):
            raise InvalidSetting(
                "limits must map labels to numbers of tasks at once, whole and from 1 to 1000000, "
                f"not {shown(label)} to {shown(most)}"
            )
    return dict(limits)


def check_resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return resources as a dict of name to amount, as Dask expects them.

    Raises
    ------
    InvalidSetting
        If `resources` does not map strings to finite amounts > 0. None is allowed.
    """
    if resources is None:
        return {}
    if not isinstance(resources, Mapping):
        raise InvalidSetting(
            f"resources must be a mapping like {{'GPU': 1}}, not {shown(resources)}"
        )
    for name, amount in resources.items():
        number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not (isinstance(name, str) and number and math.isfinite(amount) and amount > 0):
            raise InvalidSetting(
                f"resources must map names to amounts > 0, not {shown(name)} to {shown(amount)}"
            )
    return dict(resources)
