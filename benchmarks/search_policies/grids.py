"""Grids of models: the loss after each step of each model, and how long its steps take."""

from __future__ import annotations

import json
import math
import random
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

#: Shortest step of a model, in mean steps of its grid.
SHORTEST = 0.02


@dataclass(frozen=True)
class Grid:
    """Models of one search, all of which make the same number of steps.

    Parameters
    ----------
    name : str
        Name of the grid.
    losses : tuple of tuples of float
        Loss of each model after each of its steps; a model that diverged has losses of inf or nan.
    seconds : tuple of float
        Length of a step of each model, in mean steps of the grid.
    """

    name: str
    losses: tuple[tuple[float, ...], ...]
    seconds: tuple[float, ...]

    @staticmethod
    def of(name: str, losses: list[list[float]], seconds: list[float] | None = None) -> Grid:
        """Return a grid of losses, one list per model, whose steps take some `seconds`."""
        seconds = [1.0] * len(losses) if seconds is None else seconds
        mean = sum(seconds) / len(seconds)
        return Grid(
            name,
            tuple(tuple(map(float, curve)) for curve in losses),
            tuple(max(s / mean, SHORTEST) for s in seconds),
        )

    @property
    def models(self) -> int:
        """Number of models."""
        return len(self.losses)

    @property
    def steps(self) -> int:
        """Number of steps of a model."""
        return len(self.losses[0])

    @cached_property
    def final(self) -> list[float]:
        """Final loss of each model; inf if it diverged."""
        return [x[-1] if math.isfinite(x[-1]) else math.inf for x in self.losses]

    @cached_property
    def ranked(self) -> list[int]:
        """Models by their final loss, the best first."""
        return sorted(range(self.models), key=lambda m: self.final[m])

    @cached_property
    def span(self) -> float:
        """Distance from the best final loss to the 90th percentile: diverged models set no unit."""
        finite = [loss for loss in self.final if loss < math.inf]
        return max(float(np.quantile(finite, 0.9)) - min(finite), 1e-12)

    def orders(self, count: int, seed: int = 0) -> list[list[int]]:
        """Return the models in `count` random orders."""
        chance, found = random.Random(f"{self.name}-{seed}"), []
        for _ in range(count):
            order = list(range(self.models))
            chance.shuffle(order)
            found.append(order)
        return found


def read_grids(folder: str | Path) -> list[Grid]:
    """Read the grids in a folder: one file of JSON lines per grid, one line per model.

    A line has ``loss``, the loss after each step, and may have ``s``, the seconds of a step.
    Raises `ValueError` for models of unlike numbers of steps.
    """
    found = []
    for path in sorted(Path(folder).glob("*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        losses = [
            [math.inf if x is None else float(x) for x in row["loss"]] for row in rows
        ]  # JSON has no nan
        if len({len(curve) for curve in losses}) != 1:
            raise ValueError(f"{path}: all models of a grid must make the same number of steps")
        known = all("s" in row for row in rows)
        found.append(Grid.of(path.stem, losses, [row["s"] for row in rows] if known else None))
    return found
