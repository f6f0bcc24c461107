"""Loss curves, read from JSON-lines files or generated from a seed.

A line of a file is `{"id": ..., "loss": [...]}`, with the optional fields `algorithm`, `model`,
`source` and `noisy`. Each job runs one curve, one iteration per point.
"""

from __future__ import annotations

import gzip
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from dask_slaq.core.errors import SlaqError

#: Minimum points of a job's curve.
MIN_POINTS = 15


class CurveError(SlaqError, ValueError):
    """Error in a curve file; the message names the file and the line."""


@dataclass(frozen=True)
class LossCurve:
    """One training-loss curve."""

    id: str
    #: Algorithm, model or source of the curve, the first that is known; else its id.
    group: str
    #: Finite losses (n_iterations,).
    loss: np.ndarray
    noisy: bool


def read_curves(paths: Iterable[str | Path]) -> list[LossCurve]:
    """Read the curves of all files, in order. Raises `CurveError`, with file and line."""
    curves: list[LossCurve] = []
    for path in paths:
        found = records(path, CurveError, lambda record, _: parse(record))
        if not found:
            raise CurveError(f"{path}: no curve in this file")
        curves += found
    return curves


def parse(record: Any) -> LossCurve:
    """Make a curve from one decoded line. Raises ValueError if the line is not a curve."""
    if not isinstance(record, dict):
        raise ValueError(f"a curve is an object with id and loss, not {record!r:.60}")
    if not isinstance(record.get("id"), str):
        raise ValueError(f"'id' must be a str, not {record.get('id')!r:.60}")
    # Largest absolute loss in a file: noise and differences must not overflow.
    max_loss = 1e200
    loss = numbers(record, "loss", -max_loss, max_loss)
    if len(loss) < 2:
        raise ValueError(f"'loss' has {len(loss)} values; a curve needs at least 2")
    array = np.array(loss, dtype=float)
    noisy = record.get("noisy")
    if noisy is None:
        # Fraction of rising steps above which a curve counts as noisy, unless its line has `noisy`.
        noisy = bool(np.mean(np.diff(array) > 0) > 0.3)
    group = record.get("algorithm") or record.get("model") or record.get("source")
    return LossCurve(record["id"], str(group or record["id"]), array, bool(noisy))


def make_curves(seed: int, count: int = 24) -> list[LossCurve]:
    """Generate `count` curves of kinds that take turns: geometric, power, plateau, noisy."""
    rng = np.random.default_rng([seed, 1])
    kinds = ("geometric", "power", "plateau", "noisy")
    return [_make(kinds[i % len(kinds)], i, rng) for i in range(count)]


def _make(kind: str, number: int, rng: np.random.Generator, points: int = 100) -> LossCurve:
    k = np.arange(points)
    if kind == "geometric" or (kind == "noisy" and rng.random() < 0.5):
        # A slow second mode gives a long tail after the quick gain.
        fast, slow = rng.uniform(0.06, 0.25), rng.uniform(0.01, 0.03)
        shape = 0.85 * np.exp(-fast * k) + 0.15 * np.exp(-slow * k)
    elif kind == "plateau":
        middle, width = rng.uniform(0.1, 0.3) * points, rng.uniform(2, 5)
        shape = 0.8 / (1 + np.exp((k - middle) / width)) + 0.2 * np.exp(-0.03 * k)
    else:
        shape = (1 + k / rng.uniform(1.5, 5)) ** -rng.uniform(0.9, 1.6)
    if kind == "noisy":
        shape = shape + rng.uniform(0.01, 0.03) * rng.standard_normal(points) * (k > 0)
    scale, floor = 10 ** rng.uniform(-1, 3), rng.uniform(0, 0.5)
    return LossCurve(f"made/{kind}-{number}", kind, scale * (floor + shape), kind == "noisy")


def load_curves(
    curves: str | Path | Sequence[str | Path] | Sequence[LossCurve] | None, seed: int
) -> list[LossCurve]:
    """Return `curves` that are fit for jobs, also from files; by default made from the `seed`."""
    if curves is None:
        return make_curves(seed)
    if isinstance(curves, str | Path):
        curves = [curves]
    given = [item for item in curves if isinstance(item, LossCurve)]
    given += read_curves([item for item in curves if not isinstance(item, LossCurve)])
    fit = fit_for_jobs(given)
    if not fit:
        sample([], 0, np.random.default_rng())  # raises, with what a curve needs
    return fit


def fit_for_jobs(curves: Iterable[LossCurve]) -> list[LossCurve]:
    """Select the curves with enough points and progress, but not all of it at once."""
    return [c for c in curves if len(c.loss) >= MIN_POINTS and _progresses(c.loss)]


def _progresses(loss: np.ndarray) -> bool:
    fall = loss[0] - loss.min()
    if fall <= 0.01 * np.abs(loss).max():  # it hardly falls
        return False
    early = loss[: 1 + round(0.05 * len(loss))]
    return bool(loss[0] - early.min() < 0.9 * fall)


def sample(curves: list[LossCurve], count: int, rng: np.random.Generator) -> list[LossCurve]:
    """Draw `count` of the `curves`: of as many groups, and each as rarely, as possible."""
    if not curves:
        raise CurveError(
            f"no curve is fit for a job: it needs {MIN_POINTS} points or more and to lose "
            "90 % of its loss later than in its first twentieth"
        )
    drawn: list[LossCurve] = []
    while len(drawn) < count:
        left = [curves[i] for i in rng.permutation(len(curves))]
        while left:  # one curve of every group per round
            groups: dict[str, LossCurve] = {}
            for curve in left:
                groups.setdefault(curve.group, curve)
            drawn += groups.values()
            left = [c for c in left if groups[c.group] is not c]
    return drawn[:count]


def iterations_to(
    losses: Sequence[float] | np.ndarray, fraction: float, lowest: float | None = None
) -> int | None:
    """Return the iterations until `losses` have made a `fraction` of their fall, or None."""
    if not len(losses):
        return None
    best = np.minimum.accumulate(losses)
    fall = best[0] - (best[-1] if lowest is None else lowest)
    made = best[0] - best >= fraction * fall * (1 - 1e-12)
    return int(np.argmax(made)) + 1 if fall > 0 and made[-1] else None


T = TypeVar("T")


def records(path: str | Path, error: type[ValueError], parse: Callable[[Any, str], T]) -> list[T]:
    """Return what `parse` makes of each line of `path` and its place, or raise `error`."""
    try:
        # `str.splitlines` would also split at characters that names may contain, such as U+2028.
        whole = Path(path).read_bytes()
        whole = gzip.decompress(whole) if whole.startswith(b"\x1f\x8b") else whole
        lines = whole.split(b"\n")
    except (OSError, ValueError, EOFError) as problem:
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
    """Decode a line of JSON. Raises ValueError with problem and column."""
    try:
        return json.loads(line.decode("utf-8"))
    except json.JSONDecodeError as problem:
        # The decoder's own message numbers every line as line 1.
        words = f"not JSON: {problem.msg.removesuffix(' at')} at column {problem.colno}"
        raise ValueError(words) from problem
    except (RecursionError, ValueError) as problem:  # not UTF-8, or thousands of digits or brackets
        raise ValueError(f"not JSON: {problem}") from problem


def field(record: dict[str, Any], key: str, kind: type, called: str) -> Any:
    """Return the value of a `key` of a `kind`, `called` so in the errors that are raised."""
    if not isinstance(record.get(key), kind):
        there = f"not {record[key]!r:.60}" if key in record else "and is missing"
        raise ValueError(f"{key!r} must be {called}, {there}")
    return record[key]


def numbers(record: dict[str, Any], key: str, low: float, high: float) -> list[float]:
    """Return the list of numbers from `low` to `high` under a `key`. Raises ValueError."""
    found: list[float] = field(record, key, list, "a list")
    for k, value in enumerate(found):
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be a number")
        if not low <= value <= high:
            finite = isinstance(value, int) or math.isfinite(value)
            must = f"from {low:g} to {high:g}" if finite else "finite"
            raise ValueError(f"{key}[{k}] is {value!r:.60}; it must be {must}")
    return found
