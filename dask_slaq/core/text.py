"""Values as text for people, and as values that JSON has."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Sequence
from typing import Any

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits, and ``-`` for None and nan."""
    if value is None or math.isnan(value):
        return "-"
    if 10**digits <= abs(value) < 1e15:
        return f"{value:.0f}"  # not 1.23e+03
    return f"{value:.{digits}g}"


def in_threads(value: float) -> str:
    """Return a number of threads with its noun, such as ``1 thread`` or ``2.5 threads``."""
    text = number(value, 3)
    return f"{text} thread" if text == "1" else f"{text} threads"


def duration(seconds: float | None) -> str:
    """Return a duration in the largest unit that fits, such as ``3.5 min``; ``?`` for None."""
    if seconds is None or not math.isfinite(seconds):
        return "?"
    for size, unit in _UNITS:
        if seconds >= size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and unit != "s" else f"{value:.0f} {unit}"
    return f"{max(seconds, 0.0):.1f} s"


def printable(text: object) -> str:
    """Return a user's text in one line, in which nothing moves, hides or turns text."""
    found = str(text)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in found)


def shortened(name: str, most: int) -> str:
    """Return a name without its middle if it has more than `most` characters."""
    if len(name) <= most:
        return name
    return f"{name[: most // 2]}…{name[len(name) - (most - 1) // 2 :]}"


def in_cell(value: Any, most: int = 24) -> str:
    """Return the value of a parameter as text of at most `most` characters."""
    text = number(value) if isinstance(value, float) else printable(value)
    return text if len(text) <= most else f"{text[: most - 1]}…"


def aligned(cells: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table; the columns of the numbers `left` are aligned to the left."""
    widths = [max(_width(line[k]) for line in cells) for k in range(len(cells[0]))]
    lines = []
    for line in cells:
        padded = []
        for k, (cell, width) in enumerate(zip(line, widths, strict=True)):
            space = " " * (width - _width(cell))
            padded.append(cell + space if k in left else space + cell)
        lines.append("  ".join(padded).rstrip())
    return lines


def _width(text: str) -> int:
    """Return the columns that a terminal needs for a text: wide characters take two."""
    if text.isascii():
        return len(text)
    wide = sum(unicodedata.east_asian_width(c) in "WF" for c in text)
    return len(text) + wide - sum(unicodedata.combining(c) > 0 for c in text)


def without_nan(value: Any) -> Any:
    """Return a value with None for every nan and infinity in it, which JSON does not have."""
    if isinstance(value, dict):
        return {str(key): without_nan(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [without_nan(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
