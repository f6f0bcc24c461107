"""Files of JSON lines: each record with the place where it stands, for what is wrong with it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["decode", "field", "numbers", "records"]

#: Levels of brackets that a line may have: far more than any record of ours, and far fewer than
#: Python's decoder, and its `repr` after that, can follow.
MOST_NESTED = 50
_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"?')


def records(path: str | Path, error: type[ValueError]) -> Iterator[tuple[str, Any]]:
    """Yield the place (file and line) and the record of every line that is not blank.

    Raises
    ------
    error
        The file cannot be read, or a line is not JSON; names file and line.
    """
    try:
        # Not `str.splitlines`: a name may have characters at which that splits, such as U+2028.
        lines = Path(path).read_bytes().split(b"\n")
    except (OSError, ValueError) as problem:
        raise error(f"{path}: cannot be read: {problem}") from problem
    for number, line in enumerate(lines, start=1):
        if line.strip():
            place = f"{path}, line {number}"
            try:
                yield place, decode(line)
            except ValueError as problem:
                raise error(f"{place}: {problem}") from problem


def decode(line: bytes) -> Any:
    """Decode a line of JSON.

    Raises
    ------
    ValueError
        It is not JSON, or nested too deeply; the message says what is wrong and where.
    """
    if _nested(line) > MOST_NESTED and _nested(_STRING.sub(b"", line)) > MOST_NESTED:
        raise ValueError(f"brackets are nested more than {MOST_NESTED} deep")
    try:
        return json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as problem:
        # The decoder's own words call every line the first one.
        words = f"not JSON: {problem.msg.removesuffix(' at')} at column {problem.colno}"
        raise ValueError(words) from problem
    except ValueError as problem:  # not UTF-8, or an integer of thousands of digits
        raise ValueError(f"not JSON: {problem}") from problem


def _nested(line: bytes) -> int:
    """Return how deep brackets are nested at most, taking those inside strings for brackets."""
    text = np.frombuffer(line, np.uint8)
    # "[" and "{" differ in one bit, and so do "]" and "}".
    step = (text & 0xDF) == ord("["), (text & 0xDF) == ord("]")
    return int(np.cumsum(step[0].astype(np.int64) - step[1]).max(initial=0))


def field(record: dict[str, Any], key: str, kind: type, called: str) -> Any:
    """Return what is under a key if it is of this kind; ValueError says what is there if not."""
    if not isinstance(record.get(key), kind):
        there = f"not {record[key]!r:.60}" if key in record else "and is missing"
        raise ValueError(f"{key!r} must be {called}, {there}")
    return record[key]


def numbers(record: dict[str, Any], key: str, low: float, high: float) -> list[float]:
    """Return the numbers under a key, each from `low` to `high`; ValueError says which is not."""
    found: list[float] = field(record, key, list, "a list")
    for k, value in enumerate(found):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be a number")
        if not low <= value <= high:
            finite = isinstance(value, int) or math.isfinite(value)
            must = f"from {low:g} to {high:g}" if finite else "finite"
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be {must}")
    return found
