"""Kinds of jobs, stated by users and adapters or taken from a job's name; and their distance."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import MOST_NAME_CHARACTERS, is_name, is_number, require, shown

#: Maximum number of features of a kind, and of characters in the name of one.
MOST_FEATURES, MOST_FEATURE_CHARACTERS = 32, 64
#: Key of a mapping that holds the name of the kind.
NAME = "name"

_SEPARATORS = re.compile(r"([\s_/#@:,;|+()\[\]{}-]+)")
_LETTERS = re.compile(r"[^\W\d_]{2,}")


@dataclass(frozen=True)
class Kind:
    """Kind of a job: jobs of like kind have curves of like shape.

    The name is of library, estimator and solver, such as ``"dask_ml.LogisticRegression/admm"``, or
    what the user passed as ``slaq.job(kind=...)``. Features are parameters that shape the curve and
    the size of the data, sorted by name, each as the log10 of a positive number.
    """

    name: str
    features: tuple[tuple[str, float], ...] = ()


def distance(one: Kind, other: Kind) -> float:
    """Return the distance between two kinds in orders of magnitude; inf under different names."""
    if one.name != other.name:
        return math.inf
    if one.features == other.features:
        return 0.0
    mine, theirs = dict(one.features), dict(other.features)
    squares = 0.0
    for name in sorted({*mine, *theirs}):
        # Orders of magnitude that count for a feature which only one of two kinds has.
        apart = 1.0
        if name in mine and name in theirs:
            apart = mine[name] - theirs[name]
        squares += apart * apart
    return math.sqrt(squares)


def read_kind(given: Any) -> Kind | None:
    """Return the kind that is stated as a name or mapping; None for None. May raise."""
    if given is None:
        return None
    features = {} if isinstance(given, str) else given
    must = "a name, or a mapping such as {'name': 'resnet', 'lr': 0.01}"
    require("kind", given, isinstance(features, Mapping), must)
    name = given if isinstance(given, str) else features.get(NAME)
    if not is_name(name):
        raise InvalidSetting(
            f"kind must have a name of 1 to {MOST_NAME_CHARACTERS} printable characters, "
            f"not {shown(name)}"
        )
    if len(features) > MOST_FEATURES:
        raise InvalidSetting(
            f"kind may have at most {MOST_FEATURES - 1} numbers, not {len(features) - 1}"
        )
    rest = ((key, value) for key, value in features.items() if key != NAME)
    return Kind(name, tuple(sorted(_feature(key, value) for key, value in rest)))


def check_kind(given: object) -> dict[str, str | float] | None:
    """Return a kind as a mapping of plain values that `read_kind` takes, and raises as it does."""
    kind = read_kind(given)
    if kind is None:
        return None
    numbers = given if isinstance(given, Mapping) else {}
    return {**{name: float(numbers[name]) for name, _ in kind.features}, NAME: kind.name}


def _feature(key: object, value: object) -> tuple[str, float]:
    if not is_name(key) or len(key) > MOST_FEATURE_CHARACTERS:
        raise InvalidSetting(
            f"names of a kind's numbers must have 1 to {MOST_FEATURE_CHARACTERS} characters, not "
            + shown(key)
        )
    ok = is_number(value) and value >= 0
    require(f"{key!r} of a kind", value, ok, "a finite number >= 0")
    # What a parameter of 0 counts as, since it has no order of magnitude.
    return key, math.log10(max(float(value), 1e-12))  # type: ignore[arg-type]


def kind_of_name(name: str) -> Kind:
    """Return the kind of a job of which only the name is known: that without parts with digits.

    The first part that begins with letters keeps these: ``logreg`` of ``logreg-C0.1-3``.
    """
    parts = _SEPARATORS.split(name[:MOST_NAME_CHARACTERS])
    kept = ""
    for part, before in zip(parts[::2], ["", *parts[1::2]], strict=True):
        letters = _LETTERS.match(part)
        if not any(c.isdigit() for c in part):
            found = part
        elif not kept and letters and "=" not in part:
            found = letters[0]
        else:
            continue
        kept += (before if kept else "") + found
    return Kind(kept.strip(" .=") or name)
