"""Settings in the ``slaq`` section of the Dask configuration, validated when they are read.

`PluginSettings` has a row per setting, with its check. ``slaq.yaml`` has their defaults and what
they mean. Options of ``--preload dask_slaq`` and the documentation are made from both.
"""

from __future__ import annotations

import difflib
import math
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from dask_slaq.core.errors import InvalidSetting, UnknownPolicy
from dask_slaq.core.policies import POLICIES
from dask_slaq.core.settings import NORMALIZERS, RUNTIMES, check_limits

if TYPE_CHECKING:
    from dask_slaq.core.owners.terms import OwnerTerms
    from dask_slaq.core.scaling_terms import ScalingTerms

FILE = Path(__file__).with_name("slaq.yaml")
DEFAULTS: dict[str, Any] = yaml.safe_load(FILE.read_text())

# `update_defaults` silently replaces a section that is not a mapping, such as ``DASK_SLAQ=x``.
_REPLACED = dask.config.config.get("slaq")
dask.config.update_defaults(DEFAULTS)
dask.config.ensure_file(source=str(FILE))

# Readers convert a raw value, or raise what `convert` turns into `InvalidSetting`.


def _policy(value: Any) -> str:
    if value in POLICIES:
        return str(value)
    from dask_slaq.plug_ins import check_policy_name

    return check_policy_name(value)


def _added(kind: str, *own: str) -> Callable[[Any], str]:
    """Return a reader of `own` names, class paths, and names that other packages add."""

    def read(value: Any) -> str:
        if value in own:
            return str(value)
        from dask_slaq.plug_ins import canonical

        try:
            return canonical(kind, value)
        except InvalidSetting:
            if isinstance(value, str) and value.isidentifier():
                raise ValueError from None  # what is allowed helps more
            raise

    return read


def _value(is_ok: Callable[[Any], bool]) -> Callable[[Any], Any]:
    """Return a reader of values as they are."""

    def read(value: Any) -> Any:
        if not is_ok(value):
            raise ValueError
        return value

    return read


_flag = _value(lambda value: isinstance(value, bool))
_text = _value(lambda value: isinstance(value, str) and 0 < len(value) <= 256)


def _one_of(*names: str) -> Any:
    """Return the row of a setting that is one of some names."""
    read = _value(lambda value: value in names)
    return _setting(read, f"one of {', '.join(names)}", str)


def _number(low: float, high: float, parse: Callable[[Any], Any] = float) -> Callable[[Any], float]:
    """Return a reader of numbers in [low, high]."""

    def read(value: Any) -> float:
        if isinstance(value, bool) or not low <= float(parse(value)) <= high:
            raise ValueError
        return float(parse(value))

    return read


def _time(low: float, high: float) -> Callable[[Any], float]:
    return _number(low, high, parse_timedelta)


def _whole(low: int, high: int, parse: Callable[[Any], Any] = float) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        number = _number(low, high, parse)(value)
        if not number.is_integer():
            raise ValueError
        return int(number)

    return read


def _file(value: Any) -> str:
    name = os.fspath(value)
    if not isinstance(name, str) or not name or "\0" in name:
        raise ValueError
    return name


def _owners(value: Any) -> dict[str, OwnerTerms]:
    from dask_slaq.core.owners.terms import check_owners

    return check_owners(value)


def _scaling(value: Any) -> ScalingTerms:
    from dask_slaq.core.scaling_terms import check_scaling

    times = ("stay", "start-up", "start_up")
    if isinstance(value, Mapping):
        value = {k: parse_timedelta(v) if k in times else v for k, v in value.items()}
        if value.get("rule") is not None:
            value["rule"] = _added("scaling")(value["rule"])
    return check_scaling(value)


def _names(value: Any) -> tuple[str, ...]:
    if isinstance(value, str) or not all(isinstance(name, str) and name for name in value):
        raise ValueError
    return tuple(value)


def _identity(value: Any) -> str:
    return "tls" if value == "tls" else _added("owner")(value)


def _or_null(read: Callable[[Any], Any], null: Callable[[], Any] = lambda: None) -> Any:
    """Return a reader that takes null, too, which gives ``null()``."""
    return lambda value: null() if value is None else read(value)


def _setting(
    read: Any,
    allowed: str,
    option: type | None = None,
    *,
    of_machine: bool = False,
    shown: bool = True,
) -> Any:
    """Return the row of a setting: its reader, and the allowed values in words.

    `option` is the type of its option of ``--preload dask_slaq``, if it has one. A setting that is
    `of_machine` cannot be changed by clients where the scheduler's machine sets it.
    """
    row = {"read": read, "allowed": allowed, "option": option, "of_machine": of_machine}
    return field(metadata=row, repr=shown)


# Upper bounds are far above any practical value. They reject durations that exceed timers and sizes
# that exceed memory before these fail elsewhere.
_DAY_SECONDS, _HOUR_SECONDS = 86_400.0, 3_600.0
_FLAG = "true or false"
_PATH = "the name of a file, or null"


@dataclass(frozen=True)
class PluginSettings:
    """Validated settings of the plugin, one row per setting in ``slaq.yaml``; times in seconds."""

    policy: str = _setting(_policy, "the name or the class path of a policy", str)
    predictor: str | None = _setting(
        _or_null(_added("predictor", "paper")), "paper, the class path of a predictor, or null"
    )
    epoch: float = _setting(
        _time(0.001, _DAY_SECONDS), "a time from 1ms to 1 day, such as 1s or 500ms", str
    )
    lend: bool = _setting(_flag, _FLAG, bool)
    normalizer: str = _one_of(*NORMALIZERS)
    runtime: str = _one_of(*RUNTIMES)
    max_slowdown: float = _setting(_number(1, math.inf), "a factor of at least 1, or inf", float)
    floor: float = _setting(_number(0, 1), "a fraction in [0, 1]", float)
    other_weight: float = _setting(_number(1e-6, 1e6), "a number from 1e-6 to 1e6", float)
    reserve: float = _setting(_number(0, math.nextafter(1, 0)), "a fraction in [0, 1)", float)
    prefetch: float = _setting(
        _time(0, _HOUR_SECONDS), "a time from 0 to 1 hour, such as 25ms", str
    )
    keep_workers: float = _setting(_time(0, _HOUR_SECONDS), "a time from 0 to 1 hour, such as 5m")
    scaling: ScalingTerms | None = _setting(
        _or_null(_scaling),
        "a mapping of price, minimum, maximum, stay, start-up and rule, or null",
        of_machine=True,
    )
    instrument: bool = _setting(_flag, _FLAG)
    repairs: bool = _setting(_flag, _FLAG)
    history: int = _setting(_whole(1, 1_000_000), "a whole number from 1 to 1000000", int)
    bindings: int = _setting(_whole(0, 10_000_000), "a whole number from 0 to 10000000", int)
    run_history: str | None = _setting(_or_null(_file), _PATH, Path, of_machine=True)
    log: str | None = _setting(_or_null(_file), _PATH, Path, of_machine=True)
    log_size: int = _setting(
        _whole(10_000, 10**12, parse_bytes), "a size from 10 kB to 1 TB, such as 100 MiB", str
    )
    log_files: int = _setting(_whole(2, 10_000), "a whole number from 2 to 10000", int)
    owner: str | None = _setting(_or_null(_text), "a string of 1 to 256 characters, or null")
    identity: str | None = _setting(
        _or_null(_identity),
        "tls, the class path of a function that says who a client is, or null to believe clients",
        of_machine=True,
    )
    owners: dict[str, OwnerTerms] | None = _setting(
        _or_null(_owners),
        "a mapping of owner to weight, max-threads, max-jobs, max-resources, max-slowdown, "
        "value-per-hour and budget, or null",
        of_machine=True,
    )
    limits: dict[str, int] = _setting(
        _or_null(check_limits, dict),
        "a mapping of label to the number of its tasks at once, or null",
        of_machine=True,
    )
    half_life: float | None = _setting(
        _or_null(_time(60, 3650 * _DAY_SECONDS)),
        "a time from 1 minute to 10 years, such as 7d, or null",
        of_machine=True,
    )
    operators: tuple[str, ...] = _setting(_names, "a list of owners", of_machine=True)
    lock: bool = _setting(_flag, _FLAG, of_machine=True)
    require_plugin: bool = _setting(_flag, _FLAG)
    strict: bool = _setting(_flag, _FLAG, bool)


#: Metadata of each setting by name, with underscores; see `_setting`.
ROWS = {row.name: row.metadata for row in fields(PluginSettings)}


def meanings() -> dict[str, str]:
    """Return what each setting means, in one line: its comment in ``slaq.yaml``."""
    found: dict[str, list[str]] = {}
    key = None
    for line in FILE.read_text().splitlines():
        start, _, comment = line.partition("# ")
        if match := re.match(r"  ([a-z-]+):", start):
            key = match[1]
        if key:
            found.setdefault(key, []).append(comment.strip())
    return {key: " ".join(filter(None, lines)) for key, lines in found.items()}


def settings(**given: Any) -> PluginSettings:
    """Read and validate the settings from the Dask configuration.

    Settings in `given`, by name with underscores, override the configuration unless they are None.
    Raises `InvalidSetting` or `UnknownPolicy`, which names the key or the value, and what is
    allowed.
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
    for key in merged:
        if key not in ROWS:
            raise InvalidSetting(_unknown(key.replace("_", "-")))
    return PluginSettings(**{key: convert(key, merged[key]) for key in merged})


def is_strict(given: bool | None = None) -> bool:
    """Return whether a scheduler whose settings are invalid must not start.

    `given` counts instead of ``slaq.strict``, of which any invalid value means yes.
    """
    if given is None:
        given = dask.config.get("slaq.strict", None)
    return given is not None and given is not False


def repairs_libraries() -> bool:
    """Return whether ``slaq.repairs`` is true, or raise `InvalidSetting`."""
    return bool(convert("repairs", dask.config.get("slaq.repairs", True)))


def convert(key: str, value: Any) -> Any:
    """Convert a raw value of the setting `key`, with underscores; sizes are in bytes.

    Raises `InvalidSetting` or `UnknownPolicy`.
    """
    row = ROWS[key]
    try:
        return row["read"](value)
    # Errors of Dask's parsers and Python's conversions on values of other types.
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        name = key.replace("_", "-")
        if isinstance(error, UnknownPolicy | InvalidSetting):
            raise type(error)(f"slaq.{name}: {error}") from error
        raise InvalidSetting(f"slaq.{name} must be {row['allowed']}, not {_cut(value)}") from error


def _unknown(key: str) -> str:
    """Return what is wrong with a key that does not exist, and the nearest ones that do."""
    names = [name.replace("_", "-") for name in ROWS]
    if key in names:
        return f"slaq.{key} is written {key.replace('-', '_')} as an argument"
    near = " or ".join(f"slaq.{name}" for name in difflib.get_close_matches(key, names, n=2))
    hint = f": did you mean {near}?" if near else ";"
    return f"slaq.{_cut(key, str)} is not a setting{hint} allowed are: {', '.join(names)}"


def _cut(value: object, show: Callable[[object], str] = repr) -> str:
    """Format a value in at most 80 characters."""
    text = show(value)
    return text if len(text) <= 80 else text[:77] + "..."
