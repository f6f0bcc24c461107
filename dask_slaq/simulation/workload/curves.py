"""Loss curves: read from JSON-lines files, or made from a seed.

A line of a file is `{"id": ..., "loss": [...]}`, with `algorithm`, `model`, `source` and
`noisy` where known. A job runs one curve, stretched or squeezed to its own number of
iterations: points are taken at even distances, so the shape and the noise stay.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.simulation.workload.jsonl import numbers, records

__all__ = ["Curve", "CurveError", "fit_for_jobs", "make_curves", "parse", "read_curves", "sample"]

#: A curve with a larger share of rising steps is noisy, unless its line says otherwise.
NOISY_RISES = 0.3
#: Fewest points, and least fall as a fraction of the largest value, of a job's curve.
MIN_POINTS = 15
MIN_PROGRESS = 0.01
#: Largest loss of a file, of either sign: noise and differences must not overflow.
MAX_LOSS = 1e200


class CurveError(ValueError):
    """A curve file cannot be read; names the file and the line."""


@dataclass(frozen=True)
class Curve:
    """One training-loss curve.

    Attributes
    ----------
    id : str
    group : str
        Curves of one algorithm, model or source belong together.
    loss : (n_iterations,) array
        Lower is better; finite.
    noisy : bool
    """

    id: str
    group: str
    loss: np.ndarray
    noisy: bool

    def resample(self, iterations: int) -> np.ndarray:
        """Loss at `iterations` evenly spaced points, the first and the last included."""
        points = np.linspace(0, len(self.loss) - 1, iterations)
        if iterations <= len(self.loss):
            return self.loss[np.round(points).astype(int)]
        return np.interp(points, np.arange(len(self.loss)), self.loss)


def read_curves(paths: Iterable[str | Path]) -> list[Curve]:
    """Curves of all files, in order.

    Raises
    ------
    CurveError
        A file is missing or empty, or a line is not a curve; names file and line.
    """
    curves: list[Curve] = []
    for path in paths:
        found = list(_read(Path(path)))
        if not found:
            raise CurveError(f"{path}: no curve in this file")
        curves += found
    return curves


def _read(path: Path) -> Iterator[Curve]:
    for place, record in records(path, CurveError):
        try:
            yield parse(record)
        except ValueError as error:
            raise CurveError(f"{place}: {error}") from error


def parse(record: Any) -> Curve:
    """Curve of one line, decoded; ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError(f"a curve is an object with id and loss, not {record!r:.60}")
    if not isinstance(record.get("id"), str):
        raise ValueError(f"'id' must be a str, not {record.get('id')!r:.60}")
    loss = numbers(record, "loss", -MAX_LOSS, MAX_LOSS)
    if len(loss) < 2:
        raise ValueError(f"'loss' has {len(loss)} values; a curve needs at least 2")
    array = np.array(loss, dtype=float)
    noisy = record.get("noisy")
    if noisy is None:
        noisy = bool(np.mean(np.diff(array) > 0) > NOISY_RISES)
    group = record.get("algorithm") or record.get("model") or record.get("source")
    return Curve(record["id"], str(group or record["id"]), array, bool(noisy))


def make_curves(seed: int, count: int = 24) -> list[Curve]:
    """Curves of the kinds that training shows, a function of `seed`.

    Geometric (as of gradient descent on strongly convex problems), power (sublinear
    methods), plateau and drop (networks), and the first two with the noise of mini-batches.
    """
    rng = np.random.default_rng([seed, 1])
    kinds = ("geometric", "power", "plateau", "noisy")
    return [_make(kinds[i % len(kinds)], i, rng) for i in range(count)]


def _make(kind: str, number: int, rng: np.random.Generator, points: int = 100) -> Curve:
    k = np.arange(points)
    if kind == "geometric" or (kind == "noisy" and rng.random() < 0.5):
        # With a slow second mode: after the quick gain comes a long tail.
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
    return Curve(f"made/{kind}-{number}", kind, scale * (floor + shape), kind == "noisy")


def fit_for_jobs(curves: Iterable[Curve]) -> list[Curve]:
    """Those with enough points that make progress, and not all of it at once.

    A curve that has lost 90 % at its second of 20 points leaves a scheduler nothing to do.
    """
    return [c for c in curves if len(c.loss) >= MIN_POINTS and _progresses(c.loss)]


def _progresses(loss: np.ndarray) -> bool:
    fall = loss[0] - loss.min()
    if fall <= MIN_PROGRESS * np.abs(loss).max():
        return False
    early = loss[: 1 + round(0.05 * len(loss))]
    return bool(loss[0] - early.min() < 0.9 * fall)


def sample(curves: list[Curve], count: int, rng: np.random.Generator) -> list[Curve]:
    """Draw `count` curves, from as many groups as there are, and each as rarely as possible."""
    if not curves:
        raise CurveError(
            f"no curve is fit for a job: it needs {MIN_POINTS} points or more and to lose "
            "90 % of its loss later than in its first twentieth"
        )
    drawn: list[Curve] = []
    while len(drawn) < count:
        left = [curves[i] for i in rng.permutation(len(curves))]
        while left:  # one of every group, then another of every group
            groups: dict[str, Curve] = {}
            for curve in left:
                groups.setdefault(curve.group, curve)
            drawn += groups.values()
            left = [c for c in left if groups[c.group] is not c]
    return drawn[:count]
