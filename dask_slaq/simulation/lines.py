"""Files of JSON lines: each record with the place where it stands, for what is wrong with it."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["field", "numbers", "records", "wrong_json"]


def records(path: str | Path, error: type[ValueError]) -> Iterator[tuple[str, Any]]:
    """Place (file and line) and record of every line that is not blank.

    Raises
    ------
    error
        The file cannot be read, or a line is not JSON; names file and line.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as problem:
        raise error(f"{path}: cannot be read: {problem}") from problem
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, json.loads(line)
            except ValueError as problem:
                raise error(f"{place}: {wrong_json(problem)}") from problem


def wrong_json(problem: ValueError) -> str:
    """What is wrong with a line; the decoder's own words call every line the first one."""
    if isinstance(problem, json.JSONDecodeError):
        return f"not JSON: {problem.msg.removesuffix(' at')} at column {problem.colno}"
    return f"not JSON: {problem}"


def field(record: dict[str, Any], key: str, kind: type, called: str) -> Any:
    """What is under a key, of this kind; ValueError says what is there if it is not."""
    if not isinstance(record.get(key), kind):
        there = f"not {record[key]!r:.60}" if key in record else "and is missing"
        raise ValueError(f"{key!r} must be {called}, {there}")
    return record[key]


def numbers(record: dict[str, Any], key: str) -> list[float]:
    """The finite numbers under a key; ValueError says which one is none."""
    found: list[float] = field(record, key, list, "a list")
    for k, value in enumerate(found):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be a number")
        if not math.isfinite(value):
            raise ValueError(f"{key}[{k}] is {value}; it must be finite")
    return found
