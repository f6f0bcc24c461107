"""Settings of a job: the one table that blocks, requests, the engine and recordings follow.

A new setting is one row here, an argument with its docs where people call it (`slaq.job`; if its
row says so, `slaq.search` and `change`), a line in ``docs/configuration.md``, and its use.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.run_history import check_kind
from dask_slaq.core.settings import (
    MOST_ITERATIONS,
    MOST_SECONDS,
    check_max_slowdown,
    check_owner,
    check_resources,
    check_value_per_hour,
    is_number,
    is_whole,
    require,
    shown,
)

#: What a target is: a loss, or a part of the predicted range of the loss.
TARGET_KINDS = ("loss", "reduction")


@dataclass(frozen=True)
class JobSetting:
    """One setting of a job."""

    name: str
    #: What it is, in the help of commands.
    about: str
    #: Returns a value as it is kept, or raises `InvalidSetting`.
    check: Callable[[Any], Any]
    default: Any = None
    #: Whether `slaq.search` takes it as well, and whether it can be changed while a job runs.
    search: bool = False
    changes: bool = False
    #: Column of the engine's jobs in which it is, empty if the engine does not use it; and the
    #: number that stands for None there, by which a change also removes it.
    column: str = ""
    empty: float = math.nan
    #: What its number counts, in the help of commands.
    unit: str = ""
    #: Whether the scheduler is told.
    sent: bool = True


def _weight(value: Any) -> Any:
    require("weight", value, is_number(value) and value > 0, "a finite number > 0")
    # Sums over jobs must not overflow.
    return require("weight", value, 1e-6 <= value <= 1e6, "from 1e-06 to 1e+06")


def _threads(name: str, value: Any) -> Any:
    require(name, value, is_number(value) and value >= 0, "a finite number of threads >= 0")
    return require(name, value, value <= 1e9, "at most 1e+09")


def _max_share(value: Any) -> Any:
    if _threads("max_share", value) == 0:
        raise InvalidSetting("max_share must be > 0: a job without threads never ends")
    return value


def _target(value: Any) -> Any:
    return require("target", value, is_number(value), "a finite loss")


def _max_iter(value: Any) -> Any:
    ok = is_whole(value, 1) and value <= MOST_ITERATIONS
    return require("max_iter", value, ok, "a number of iterations from 1 to 1e12")


def _by(value: Any) -> Any:
    ok = is_number(value) and 0 < value <= MOST_SECONDS
    return require("by", value, ok, "a time > 0 and at most 1000 days")


def _flag(name: str, value: Any) -> Any:
    return require(name, value, isinstance(value, bool), "True or False")


def _target_kind(value: Any) -> str:
    require("target_kind", value, value in TARGET_KINDS, f"one of {', '.join(TARGET_KINDS)}")
    return str(value)


def _or_none(check: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else check(value)


_EVERYWHERE: dict[str, Any] = {"search": True, "changes": True}

#: All settings of a job by name, in the order in which they are listed.
JOB_SETTINGS = {
    each.name: each
    for each in (
        JobSetting(
            "weight", "relative importance, above 0", _weight, 1.0, column="weight", **_EVERYWHERE
        ),
        JobSetting(
            "min_share",
            "least threads that it keeps; 0 for none",
            _or_none(partial(_threads, "min_share")),
            column="floor",
            empty=0.0,
            unit="threads",
            **_EVERYWHERE,
        ),
        JobSetting(
            "max_share",
            "most threads while others want them; inf for no limit",
            _or_none(_max_share),
            column="most",
            empty=math.inf,
            unit="threads",
            **_EVERYWHERE,
        ),
        JobSetting(
            "max_slowdown",
            "factor of its fair time at which it ends; inf for no such end",
            _or_none(check_max_slowdown),
            column="max_slowdown",
            **_EVERYWHERE,
        ),
        JobSetting("resources", "what each of its tasks needs", check_resources, search=True),
        JobSetting(
            "target", "loss to reach", _or_none(_target), changes=True, column="target", unit="loss"
        ),
        JobSetting(
            "max_iter",
            "most iterations",
            _or_none(_max_iter),
            column="max_iter",
            empty=math.inf,
            unit="iterations",
        ),
        JobSetting("gang", "whether tasks start together", partial(_flag, "gang"), False),
        JobSetting("target_kind", "what the target is", _target_kind, "loss"),
        JobSetting("by", "time in which to reach its target", _or_none(_by), unit="seconds"),
        JobSetting("stop", "whether it ends at its target", partial(_flag, "stop"), False),
        JobSetting("kind", "what it trains", check_kind),
        JobSetting("owner", "whose it is", check_owner, search=True),
        JobSetting(
            "value_per_hour",
            "what it is worth that it ends an hour sooner",
            _or_none(check_value_per_hour),
            **_EVERYWHERE,
        ),
    )
}
#: Those that `slaq.search` takes, that can be changed while a job runs, that the engine uses, and
#: that the scheduler is told.
OF_SEARCH = tuple(name for name, each in JOB_SETTINGS.items() if each.search)
CHANGEABLE = tuple(name for name, each in JOB_SETTINGS.items() if each.changes)
OF_ENGINE = tuple(name for name, each in JOB_SETTINGS.items() if each.column)
SENT = tuple(name for name, each in JOB_SETTINGS.items() if each.sent)


def check_job_settings(
    given: Mapping[str, Any], allowed: Collection[str] = tuple(JOB_SETTINGS)
) -> dict[str, Any]:
    """Return `allowed` settings of a new job, checked, with defaults; or raise."""
    _refuse_others(given, allowed, "is not a job setting")
    found = {}
    for name in allowed:
        each = JOB_SETTINGS[name]
        found[name] = plain(each.check(given.get(name, each.default)))
    _check_together(found)
    return found


def check_changes(
    given: Mapping[str, Any], now: Mapping[str, Any], allowed: Collection[str] = CHANGEABLE
) -> dict[str, Any]:
    """Return checked new values for settings of a running job; None for one that is removed."""
    _refuse_others(given, allowed, "cannot be changed while a job runs")
    found = {}
    for name, value in given.items():
        each = JOB_SETTINGS[name]
        removes = isinstance(value, int | float) and value == each.empty
        found[name] = None if removes else plain(each.check(value))
    _check_together({**now, **found})
    return found


def as_columns(settings: Mapping[str, Any]) -> dict[str, float]:
    """Return settings that the engine uses by column of its jobs, with numbers for None."""
    rows = ((JOB_SETTINGS[name], value) for name, value in settings.items())
    return {row.column: row.empty if value is None else value for row, value in rows}


def given_settings(
    arguments: Mapping[str, Any], allowed: Collection[str] = tuple(JOB_SETTINGS)
) -> dict[str, Any]:
    """Return the settings among the `arguments` of a call."""
    return {name: arguments[name] for name in allowed}


def plain(value: Any) -> Any:
    """Convert a NumPy scalar to one of Python, which can be sent and written to a log."""
    return value.item() if hasattr(value, "item") else value


def _refuse_others(given: Mapping[str, Any], allowed: Collection[str], why: str) -> None:
    if unknown := [key for key in given if key not in allowed]:
        raise InvalidSetting(f"{shown(unknown[0])} {why}; allowed are: " + ", ".join(allowed))


def _check_together(found: Mapping[str, Any]) -> None:
    """Raise `InvalidSetting` if settings that are allowed each are not allowed together."""
    least, most, target = (found.get(name) for name in ("min_share", "max_share", "target"))
    if least is not None and most is not None and least > most:
        raise InvalidSetting(
            f"min_share ({least!r} threads) must not be over max_share ({most!r} threads)"
        )
    if found.get("target_kind") == "reduction" and target is not None:
        require("target", target, 0 < target < 1, "a part of the loss reduction in (0, 1)")
    if target is None and (found.get("by") is not None or found.get("stop")):
        raise InvalidSetting("by and stop need a target")
