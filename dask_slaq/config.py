"""Settings: the Dask configuration under ``slaq:``, validated where they are used.

Defaults are in ``slaq.yaml``. As with any Dask setting, ``DASK_SLAQ__EPOCH=2s`` and
``dask.config.set({"slaq.epoch": "2s"})`` work too.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import dask.config
import yaml
from dask.utils import parse_bytes, parse_timedelta

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.policies import policy
from dask_slaq.core.quality import NORMALIZERS

with open(os.path.join(os.path.dirname(__file__), "slaq.yaml")) as file:
    DEFAULTS: dict[str, Any] = yaml.safe_load(file)

dask.config.update_defaults(DEFAULTS)
dask.config.ensure_file(
    source=os.path.join(os.path.dirname(__file__), "slaq.yaml"),
)


# What is allowed for the settings that are times.
TIMES = {
    "epoch": "a time > 0, such as 1s or 500ms",
    "short_task": "a time >= 0, such as 10ms",
    "ahead": "a time >= 0, such as 25ms",
}
LOG_SIZE = "a size of at least 10 kB, such as 100 MiB"


#: Names of the repairs that can be switched off one by one; `dask_slaq.adapters.repairs` has them.
REPAIRS = ("incremental-search", "k-means++", "r2-score", "pca", "text-hashing")


@dataclass(frozen=True)
class Settings:
    """What the plugin runs with; times in seconds. ``slaq.yaml`` says what each one means.

    Raises
    ------
    InvalidSetting, UnknownPolicy
        Naming the setting, its value, and what is allowed.
    """

    policy: str
    epoch: float
    lend: bool
    normalizer: str
    floor: float
    other_weight: float
    reserve: float
    short_task: float
    ahead: float
    instrument: bool
    search_models: bool
    repairs: frozenset[str]
    history: int
    bindings: int
    log: str | None
    log_size: int
    log_files: int

    def __post_init__(self) -> None:
        policy(self.policy)
        require("epoch", self.epoch, self.epoch > 0, TIMES["epoch"])
        require("floor", self.floor, 0 <= self.floor <= 1, "a fraction in [0, 1]")
        require("other-weight", self.other_weight, self.other_weight > 0, "a number > 0")
        require("reserve", self.reserve, 0 <= self.reserve < 1, "a fraction in [0, 1)")
        require("history", self.history, self.history > 0, "a whole number > 0")
        require("bindings", self.bindings, self.bindings >= 0, "a whole number >= 0")
        require("log", self.log, self.log != "", "the name of a file, or null")
        require("log-size", self.log_size, self.log_size >= 10_000, LOG_SIZE)
        require("log-files", self.log_files, self.log_files >= 2, "a whole number >= 2")
        require(
            "normalizer",
            self.normalizer,
            self.normalizer in NORMALIZERS,
            "one of " + ", ".join(NORMALIZERS),
        )


def require(name: str, value: object, allowed: bool, what: str) -> None:
    """Raise `InvalidSetting` unless `allowed`."""
    if not allowed:
        raise InvalidSetting(f"slaq.{name} must be {what}, not {value!r}")


def settings(**given: Any) -> Settings:
    """Settings from the Dask configuration; what is `given` and not None goes before.

    Raises
    ------
    InvalidSetting, UnknownPolicy
        For a key that does not exist, here or in the configuration, or a value not allowed.
    """
    configured: Mapping[str, Any] = dask.config.get("slaq", {}) or {}
    # Over the defaults: ``dask.config.set({"slaq": {...}})`` replaces the whole section.
    merged = {k.replace("-", "_"): v for k, v in {**DEFAULTS["slaq"], **configured}.items()}
    merged.update({key: value for key, value in given.items() if value is not None})
    allowed = {f.name: f.type for f in fields(Settings)}
    for key in merged:
        if key not in allowed:
            names = ", ".join(name.replace("_", "-") for name in allowed)
            raise InvalidSetting(
                f"slaq.{key.replace('_', '-')} is no setting; allowed are: {names}"
            )
    return Settings(**{key: convert(key, allowed[key], merged[key]) for key in merged})


def enabled_repairs() -> frozenset[str]:
    """Names of the repairs that the Dask configuration allows.

    Raises
    ------
    InvalidSetting
    """
    value = dask.config.get("slaq.repairs", True)
    return convert("repairs", "frozenset[str]", True if value is None else value)


def convert(key: str, kind: Any, value: Any) -> Any:
    """One raw value to the type of its setting; times to seconds."""
    name = key.replace("_", "-")
    try:
        if kind == "bool":
            if not isinstance(value, bool):
                raise ValueError("true or false")
            return value
        if key == "repairs":
            return _repairs(value)
        if kind == "str | None" and value is None:
            return None
        if kind in ("str", "str | None"):
            return str(value)
        if isinstance(value, bool):
            raise ValueError("a number")
        if key == "log_size":
            value = parse_bytes(value)
        if kind == "int":
            if int(value) != float(value):
                raise ValueError("a whole number")
            return int(value)
        if key in TIMES:  # parse_timedelta takes none below zero
            value = parse_timedelta(value)
        if not math.isfinite(float(value)):
            raise ValueError("finite")
        return float(value)
    except (TypeError, ValueError, KeyError) as error:
        what = {"bool": "true or false", "int": "a whole number"}.get(kind, "a finite number")
        repairs = f"true, false or a list of {', '.join(REPAIRS)}"
        what = {"repairs": repairs, "log_size": LOG_SIZE, **TIMES}.get(key, what)
        raise InvalidSetting(f"slaq.{name} must be {what}, not {value!r}") from error


def _repairs(value: Any) -> frozenset[str]:
    if isinstance(value, bool):
        return frozenset(REPAIRS if value else ())
    if isinstance(value, str) or not set(value) <= set(REPAIRS):
        raise ValueError("names of repairs")
    return frozenset(value)
