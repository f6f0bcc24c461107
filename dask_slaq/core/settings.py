"""Checks of settings, names and resources, for client and scheduler, and names that both use."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Collection, Mapping
from typing import Any, TypeGuard

import numpy as np

from dask_slaq.core.errors import InvalidSetting

#: Maximum number of characters in a name, of a job, an owner, a label and so on.
MOST_NAME_CHARACTERS = 256
#: Maximum number of iterations, of a job or of all models of a search: more are not told apart.
MOST_ITERATIONS = 10**12
NAMES = f"a string of 1 to {MOST_NAME_CHARACTERS} printable characters"
#: Messages by which the scheduler asks a client to stop one of its jobs, and tells it that tasks
#: come from outside of an open block, that some can never start, or that trials do not report as
#: they should.
STOP, OUTSIDE, BLOCKED, SILENT = "slaq-stop", "slaq-outside", "slaq-blocked", "slaq-silent"
#: Message of an alert to a client that follows them, and topic of their events for anybody: a job
#: reached its target, converged, diverged, and so on.
ALERT, ALERT_TOPIC = "slaq-alert", "slaq"
#: Topic of events on who changed what.
AUDIT_TOPIC = "slaq-audit"
#: Topic of the events by which workers tell that a task reports, and belongs to no search.
UNOWNED_TOPIC = "slaq-unowned"
#: What tasks report to the block of their client, and beginning of the topics for it.
LOSS_TOPIC = "slaq-loss"
#: Annotation that names the label of a task.
LIMIT_LABEL = "slaq_limit"
#: Name of the stand-in for a plugin that could not start, and key of the reason in the scheduler's
#: metadata.
NOT_STARTED = "slaq-not-started"
#: Alerts that a job ended; the last one if its client was lost.
ENDS = ("done", "stopped", "failed", "lost")
#: Largest price and value of an hour.
MOST_PRICE = 1e9
#: Longest time in seconds that a setting may name.
MOST_SECONDS = 86_400e3
#: What the loss reduction of a job may be divided by; see `dask_slaq.core.forecast.corrections`.
NORMALIZERS = ("range", "largest-change")
#: Model of the seconds of an iteration on N threads: waves of tasks or Ernest's law, as observed;
#: or the paper's c.S/N.
RUNTIMES = ("observed", "linear")
#: Settings of an engine that a policy may preset, with the defaults that it replaces.
PRESETS: dict[str, Any] = {
    "predictor": None,
    "normalizer": "range",
    "runtime": "observed",
    "max_slowdown": 2.0,
    "floor": 0.75,
}

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 100


def our_topics(topics: object) -> list[str]:
    """Return those of some topics, or of one, under which only this package publishes events."""
    if isinstance(topics, str):
        topics = [topics]
    names = [str(name) for name in topics] if isinstance(topics, Collection) else []
    return [name for name in names if name == ALERT_TOPIC or name.startswith(f"{ALERT_TOPIC}-")]


def shown(value: object) -> str:
    """Return the repr of a value, shortened to at most 100 characters."""
    if isinstance(value, bytes | bytearray):
        value = value[:100]
    try:
        return _repr.repr(value)[:100]
    except Exception:  # for example, an int with too many digits
        return f"a {type(value).__name__}"


def require(name: str, value: Any, ok: object, must: str) -> Any:
    """Return a value if it is `ok`, or raise `InvalidSetting` with what it must be."""
    if not ok:
        raise InvalidSetting(f"{name} must be {must}, not {shown(value)}")
    return value


def is_name(value: object) -> TypeGuard[str]:
    """Return whether a value may be a name: one line that nothing in it ends or turns around."""
    return isinstance(value, str) and 0 < len(value) <= MOST_NAME_CHARACTERS and value.isprintable()


def check_text(what: str, value: object) -> None:
    """Raise `InvalidSetting` for lone surrogates, which Dask cannot send: it logs the message."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidSetting(f"{what} must be text of Unicode, not {shown(value)}") from None
    elif isinstance(value, Mapping):
        check_text(what, [*value, *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            check_text(what, each)


def check_name(name: object) -> None:
    """Raise `InvalidSetting` unless a value may be the name of a job."""
    must = f"{NAMES} that does not start with 'other:'"
    require("a job's name", name, is_name(name) and not name.startswith("other:"), must)


def check_owner(owner: object) -> str:
    """Return the name of an owner, empty for None, or raise `InvalidSetting`."""
    if owner is None:
        return ""
    found = owner.rstrip("/") if isinstance(owner, str) else ""
    require("owner", owner, is_name(found), NAMES)
    return found


def check_limits(limits: Any) -> dict[str, int]:
    """Return limits as a dict of label to the most tasks at once, or raise `InvalidSetting`."""
    require("limits", limits, isinstance(limits, Mapping), "a mapping like {'database': 8}")
    for label, most in limits.items():
        number = isinstance(most, int) and not isinstance(most, bool)
        if not (is_name(label) and number and 1 <= most <= 1_000_000):
            raise InvalidSetting(
                "limits must map labels to numbers of tasks at once, whole and from 1 to 1000000, "
                f"not {shown(label)} to {shown(most)}"
            )
    return dict(limits)


def check_resources(resources: Mapping[str, float] | None) -> dict[str, float]:
    """Return resources as a dict of name to amount, empty for None, or raise `InvalidSetting`."""
    if resources is None:
        return {}
    require("resources", resources, isinstance(resources, Mapping), "a mapping like {'GPU': 1}")
    for name, amount in resources.items():
        if not (is_name(name) and is_number(amount) and amount > 0):
            raise InvalidSetting(
                f"resources must map names to amounts > 0, not {shown(name)} to {shown(amount)}"
            )
    return dict(resources)


def is_number(value: object) -> TypeGuard[float]:
    """Return whether a value is a finite real number; booleans are not."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:  # an int beyond the range of floats
        return False


def is_whole(value: object, least: int) -> bool:
    """Return whether a value is a whole number of at least `least`; booleans are not."""
    return is_number(value) and least <= value == int(value)


def check_max_slowdown(max_slowdown: float) -> Any:
    """Return a factor of the fair time, or raise `InvalidSetting`."""
    is_factor = is_number(max_slowdown) or isinstance(max_slowdown, float)  # inf, too
    ok = is_factor and max_slowdown >= 1
    return require("max_slowdown", max_slowdown, ok, "a factor >= 1 of the fair time, inf for none")


def check_engine_settings(
    epoch: float,
    normalizer: str,
    floor: float,
    move_pause: float,
    max_slowdown: float,
    runtime: str,
) -> None:
    """Raise `InvalidSetting` if a setting of an engine is invalid. See `Engine`."""
    require("epoch", epoch, epoch > 0 and math.isfinite(epoch), "a positive number of seconds")
    require("floor", floor, 0 <= floor <= 1, "a fraction in [0, 1]")
    check_max_slowdown(max_slowdown)
    require("normalizer", normalizer, normalizer in NORMALIZERS, f"one of {', '.join(NORMALIZERS)}")
    require("runtime", runtime, runtime in RUNTIMES, f"one of {', '.join(RUNTIMES)}")
    require("move_pause", move_pause, move_pause >= 0 and math.isfinite(move_pause), "seconds >= 0")


def check_value_per_hour(value: Any) -> float:
    """Return what an hour of a job's time is worth, nan for None, or raise `InvalidSetting`."""
    if value is None:
        return math.nan
    ok = is_number(value) and 0 < value <= MOST_PRICE
    require("value_per_hour", value, ok, f"a number > 0 and at most {MOST_PRICE:g}")
    return float(value)


def teams_above(owner: str) -> list[str]:
    """Return the teams that are part of an owner's name, nearest first: ``a/b``, ``a``."""
    if "/" not in owner:
        return []
    names = list(filter(None, owner.partition("@")[0].split("/")))
    return ["/".join(names[:n]) for n in range(len(names) - 1, 0, -1)]
