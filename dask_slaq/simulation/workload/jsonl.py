"""JSON-lines files, whose errors name file and line."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")


def records(path: str | Path, error: type[ValueError], parse: Callable[[Any, str], T]) -> list[T]:
    """Return what `parse` makes of every line of `path` that is not blank, and of file and line.

    Raises `error`, with file and line, if the file cannot be read, a line is not JSON, or `parse`
    raises ValueError.
    """
    try:
        # `str.splitlines` would also split at characters that names may contain, such as U+2028.
        lines = Path(path).read_bytes().split(b"\n")
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read: {problem}") from problem
    found = []
    for number, line in enumerate(lines, start=1):
        place = f"{path}, line {number}"
        try:
            found += [parse(decode(line), place)] if line.strip() else []
        except ValueError as problem:
            raise error(f"{place}: {problem}") from problem
    return found


def decode(line: bytes) -> Any:
    """Decode a line of JSON.

    Raises ValueError, with problem and column, if it is not JSON or nested too deeply.
    """
    try:
        return json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as problem:
        # The decoder's own message numbers every line as line 1.
        words = f"not JSON: {problem.msg.removesuffix(' at')} at column {problem.colno}"
        raise ValueError(words) from problem
    except (RecursionError, ValueError) as problem:  # not UTF-8, or thousands of digits or brackets
        raise ValueError(f"not JSON: {problem}") from problem


def field(record: dict[str, Any], key: str, kind: type, called: str) -> Any:
    """Return the value of a `key` of a `record`, which is of a `kind`, `called` so in errors.

    Raises ValueError if the key is missing, or its value is of another type.
    """
    if not isinstance(record.get(key), kind):
        there = f"not {record[key]!r:.60}" if key in record else "and is missing"
        raise ValueError(f"{key!r} must be {called}, {there}")
    return record[key]


def numbers(record: dict[str, Any], key: str, low: float, high: float) -> list[float]:
    """Return the list of numbers from `low` to `high` that a `record` has under a `key`.

    Raises ValueError if the value is not a list, or has an element that is not a number in the
    range.
    """
    found: list[float] = field(record, key, list, "a list")
    for k, value in enumerate(found):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be a number")
        if not low <= value <= high:
            finite = isinstance(value, int) or math.isfinite(value)
            must = f"from {low:g} to {high:g}" if finite else "finite"
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be {must}")
    return found
