"""Text for terminals: aligned columns, and values that cannot disturb the terminal."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Sequence
from typing import Any

__all__ = ["aligned", "as_json", "duration", "number", "printable"]

_UNITS = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"), (1.0, "s"))


def aligned(cells: Sequence[Sequence[str]], left: Sequence[int] = (0,)) -> list[str]:
    """Return the lines of a table.

    Parameters
    ----------
    cells : sequence of sequences of str
        One sequence per row, all of the same length.
    left : sequence of int
        Numbers of the columns that are aligned to the left; the others are aligned to the right.
    """
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


def printable(text: object) -> str:
    r"""Return a user's text in one line, with control characters escaped, as in ``\x1b``."""
    return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in str(text))


def number(value: float | None, digits: int = 4) -> str:
    """Return a number with some significant digits, and ``-`` for None and nan.

    Parameters
    ----------
    value : float or None
    digits : int
        Number of significant digits.
    """
    if value is None or math.isnan(value):
        return "-"
    if 10**digits <= abs(value) < 1e15:
        return f"{value:.0f}"  # not 1.23e+03
    return f"{value:.{digits}g}"


def duration(seconds: float | None) -> str:
    """Return a duration in the largest unit that fits, such as ``3.5 min``; ``?`` for None.

    What is over by now, less than 0, is ``0.0 s``.
    """
    if seconds is None or not math.isfinite(seconds):
        return "?"
    for size, unit in _UNITS:
        if seconds >= size:
            value = seconds / size
            return f"{value:.1f} {unit}" if value < 10 and unit != "s" else f"{value:.0f} {unit}"
    return f"{max(seconds, 0.0):.1f} s"


def as_json(found: Any) -> str:
    """Return JSON text in which numbers that are not finite are null."""
    return json.dumps(_finite(found), indent=2, allow_nan=False, default=str)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_finite(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
