"""Settings in the ``slaq`` section of the Dask configuration, validated when they are read.

Defaults are in ``slaq.yaml``. As with any Dask setting, ``DASK_SLAQ__EPOCH=2s`` and
``dask.config.set({"slaq.epoch": "2s"})`` work too.
"""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.core.owners import OwnerTerms, check_owners
from dask_slaq.core.policies import policy
from dask_slaq.core.settings import NORMALIZERS, NoticeTerms, check_limits, check_notify

with open(os.path.join(os.path.dirname(__file__), "slaq.yaml")) as file:
    DEFAULTS: dict[str, Any] = yaml.safe_load(file)

# `update_defaults` silently replaces a section that is not a mapping, such as ``DASK_SLAQ=x``.
_REPLACED = dask.config.config.get("slaq")
dask.config.update_defaults(DEFAULTS)
dask.config.ensure_file(
    source=os.path.join(os.path.dirname(__file__), "slaq.yaml"),
)

#: Names of the repairs, which can be disabled one by one; see `dask_slaq.adapters.compat`.
REPAIRS = ("incremental-search", "k-means++", "r2-score", "pca", "text-hashing")


@dataclass(frozen=True)
class Settings:
    """Validated settings of the plugin, documented in ``slaq.yaml``; times are in seconds."""

    policy: str
    epoch: float
    lend: bool
    normalizer: str
    latest: float
    floor: float
    other_weight: float
    reserve: float
    ahead: float
    keep_workers: float
    instrument: bool
    repairs: frozenset[str]
    history: int
    bindings: int
    memory: str | None
    log: str | None
    log_size: int
    log_files: int
    owner: str | None
    owners: dict[str, OwnerTerms] | None
    identity: str | None
    limits: dict[str, int]
    notify: dict[str, NoticeTerms] = field(repr=False)
    half_life: float | None
    operators: tuple[str, ...]
    lock: bool
    require_plugin: bool
    strict: bool


def settings(**given: Any) -> Settings:
    """Read and validate the settings from the Dask configuration.

    Parameters
    ----------
    **given
        Settings by name, with underscores; values other than None override the configuration.

    Returns
    -------
    Settings

    Raises
    ------
    InvalidSetting, UnknownPolicy
        A key, passed or configured, does not exist, or its value is invalid. The message names
        the key or the value, and what is allowed.
    """
    configured = dask.config.get("slaq", None)
    for section in (_REPLACED, configured):
        if section is not None and not isinstance(section, Mapping):
            raise InvalidSetting(
                "slaq must be a mapping of settings, such as {'epoch': '1s'}, "
                f"not {_cut(section)}"
            )
    # Merge with the defaults, as ``dask.config.set({"slaq": {...}})`` replaces the whole section.
    raw = {**DEFAULTS["slaq"], **(configured or {})}
    merged = {str(key).replace("-", "_"): value for key, value in raw.items()}
    merged.update({key: value for key, value in given.items() if value is not None})
    allowed = [field.name for field in fields(Settings)]
    for key in merged:
        if key not in allowed:
            raise InvalidSetting(_unknown(key.replace("_", "-"), allowed))
    return Settings(**{key: convert(key, merged[key]) for key in merged})


def is_strict(given: bool | None = None) -> bool:
    """Return whether a scheduler whose settings are invalid must not start.

    Parameters
    ----------
    given : bool, optional
        Used instead of ``slaq.strict``, of which any invalid value means yes.
    """
    if given is None:
        given = dask.config.get("slaq.strict", None)
    return given is not None and given is not False


def enabled_repairs() -> frozenset[str]:
    """Return the names of the repairs that the Dask configuration enables.

    Raises
    ------
    InvalidSetting
        The value of ``slaq.repairs`` is invalid.
    """
    value = dask.config.get("slaq.repairs", True)
    repairs: frozenset[str] = convert("repairs", True if value is None else value)
    return repairs


def convert(key: str, value: Any) -> Any:
    """Convert a raw value to the type of its setting.

    Parameters
    ----------
    key : str
        Name of the setting, with underscores.
    value : object
        Value in the Dask configuration.

    Returns
    -------
    object
        Times in seconds, sizes in bytes.

    Raises
    ------
    InvalidSetting, UnknownPolicy
        The value is invalid.
    """
    read, what = _READERS[key]
    try:
        return read(value)
    # Errors of Dask's parsers and Python's conversions on values of other types.
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        name = key.replace("_", "-")
        if isinstance(error, UnknownPolicy | InvalidSetting):
            raise type(error)(f"slaq.{name}: {error}") from error
        raise InvalidSetting(f"slaq.{name} must be {what}, not {_cut(value)}") from error


def _unknown(key: str, allowed: list[str]) -> str:
    """Return what is wrong with a key that does not exist, and the nearest ones that do."""
    names = [name.replace("_", "-") for name in allowed]
    near = " or ".join(f"slaq.{name}" for name in difflib.get_close_matches(key, names, n=2))
    hint = f": did you mean {near}?" if near else ";"
    return f"slaq.{_cut(key, str)} is not a setting{hint} allowed are: {', '.join(names)}"


def _cut(value: object, show: Callable[[object], str] = repr) -> str:
    """Format a value in at most 80 characters."""
    text = show(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _policy(value: Any) -> str:
    policy(str(value))
    return str(value)


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError
    return value


def _number(low: float, high: float) -> Callable[[Any], float]:
    """Return a reader of numbers in [low, high]."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not low <= float(value) <= high:
            raise ValueError
        return float(value)

    return read


def _time(low: float, high: float) -> Callable[[Any], float]:
    def read(value: Any) -> float:
        if isinstance(value, bool):
            raise ValueError
        return _number(low, high)(parse_timedelta(value))

    return read


def _whole(low: int, high: int, parse: Callable[[Any], Any] = lambda value: value) -> Any:
    def read(value: Any) -> int:
        if isinstance(value, bool):
            raise ValueError
        value = parse(value)
        if int(value) != float(value) or not low <= int(value) <= high:
            raise ValueError
        return int(value)

    return read


def _normalizer(value: Any) -> str:
    if value not in NORMALIZERS:
        raise ValueError
    return str(value)


def _repairs(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset(REPAIRS if value else ())
    if isinstance(value, str) or not set(value) <= set(REPAIRS):
        raise ValueError
    return frozenset(value)


def _file(value: Any) -> str | None:
    if value is None:
        return None
    name = os.fspath(value)
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError
    return name


def _text(value: Any) -> str | None:
    if value is not None and not (isinstance(value, str) and 0 < len(value) <= 256):
        raise ValueError
    return value


def _owners(value: Any) -> dict[str, OwnerTerms] | None:
    return None if value is None else check_owners(value)


def _limits(value: Any) -> dict[str, int]:
    return {} if value is None else check_limits(value)


def _notify(value: Any) -> dict[str, NoticeTerms]:
    return {} if value is None else check_notify(value)


def _identity(value: Any) -> str | None:
    if value not in (None, "tls"):
        raise ValueError
    return None if value is None else "tls"


def _half_life(value: Any) -> float | None:
    return None if value is None else _time(60.0, 3650 * _DAY)(value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise ValueError
    return tuple(value)


# Reader of each setting, and the allowed values in words. Upper bounds are far above any practical
# value. They reject durations that exceed timers and sizes that exceed memory before these fail
# elsewhere.
_DAY, _HOUR = 86_400.0, 3_600.0
_READERS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "policy": (_policy, "the name of a policy"),
    "epoch": (_time(0.001, _DAY), "a time from 1ms to 1 day, such as 1s or 500ms"),
    "lend": (_flag, "true or false"),
    "normalizer": (_normalizer, "one of " + ", ".join(NORMALIZERS)),
    "latest": (_number(1, math.inf), "a factor of at least 1, or inf"),
    "floor": (_number(0, 1), "a fraction in [0, 1]"),
    "other_weight": (_number(1e-6, 1e6), "a number from 1e-6 to 1e6"),
    "reserve": (_number(0, math.nextafter(1, 0)), "a fraction in [0, 1)"),
    "ahead": (_time(0, _HOUR), "a time from 0 to 1 hour, such as 25ms"),
    "keep_workers": (_time(0, _HOUR), "a time from 0 to 1 hour, such as 5m"),
    "instrument": (_flag, "true or false"),
    "repairs": (_repairs, f"true, false or a list of {', '.join(REPAIRS)}"),
    "history": (_whole(1, 1_000_000), "a whole number from 1 to 1000000"),
    "bindings": (_whole(0, 10_000_000), "a whole number from 0 to 10000000"),
    "memory": (_file, "the name of a file, or null"),
    "log": (_file, "the name of a file, or null"),
    "log_size": (_whole(10_000, 10**12, parse_bytes), "a size from 10 kB to 1 TB, such as 100 MiB"),
    "log_files": (_whole(2, 10_000), "a whole number from 2 to 10000"),
    "owner": (_text, "a string of 1 to 256 characters, or null"),
    "owners": (_owners, "a mapping of owner to weight, max-threads, max-jobs and latest, or null"),
    "limits": (_limits, "a mapping of label to the number of its tasks at once, or null"),
    "notify": (_notify, "a mapping of owner to a webhook or a command, or null"),
    "identity": (_identity, "tls, or null to believe what clients say"),
    "half_life": (_half_life, "a time from 1 minute to 10 years, such as 7d, or null"),
    "operators": (_names, "a list of owners"),
    "lock": (_flag, "true or false"),
    "require_plugin": (_flag, "true or false"),
    "strict": (_flag, "true or false"),
}
