"""Models of emulated searches: what a draw chooses, and the loss curve of each choice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from benchmarks.common.curves import resample
from dask_slaq.lab.simulation.workload import curves as curve_files

#: Loss of a classifier of ten classes that has learned nothing.
UNTRAINED = 2.3
#: Standard deviation of the noise on synthetic losses.
NOISE = 0.004


class Space(Protocol):
    """Search space: parameters, and the loss curve that each choice of parameters trains."""

    def draw(self, rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
        """Draw the parameters of `count` models at random."""

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Return the parameters that Optuna chooses for `trial`."""

    def losses(self, parameters: dict[str, Any]) -> list[float]:
        """Return the loss after each step of the model with these parameters.

        The curve depends on the space and the parameters alone, so every way trains the same model.
        """


@dataclass(frozen=True)
class Synthetic:
    """Networks with a learning rate and a width, of a number of steps each.

    A large rate learns fast, but not to the lowest loss, so the first steps mislead. The best final
    loss is at a rate of 10**-2.2 and at 128 units.
    """

    steps: int

    def draw(self, rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
        """Draw rates log-uniformly over five decades, and widths from 16 to 1024."""
        rates, units = 10 ** rng.uniform(-5, 0, count), 2 ** rng.uniform(4, 10, count)
        pairs = zip(rates.tolist(), units.astype(int).tolist(), strict=True)
        return [{"rate": rate, "units": unit} for rate, unit in pairs]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Return a rate and a width of the ranges that `draw` draws from."""
        return {
            "rate": trial.suggest_float("rate", 1e-5, 1.0, log=True),
            "units": trial.suggest_int("units", 16, 1024, log=True),
        }

    def losses(self, parameters: dict[str, Any]) -> list[float]:
        """Return a power law towards the floor of these parameters, with noise."""
        rate, units = parameters["rate"], parameters["units"]
        decade, doublings = np.log10(rate), np.log2(units)
        floor = 0.15 + 0.05 * (decade + 2.2) ** 2 + 0.01 * (doublings - 7) ** 2
        speed = 10 ** np.clip(0.45 * (decade + 2), -1, 0.6)
        curve = floor + (UNTRAINED - floor) / (1 + speed * np.arange(self.steps)) ** 1.1
        noise = np.random.default_rng([int(rate * 1e9), units]).normal(0, NOISE, self.steps)
        return (curve + noise).tolist()


@dataclass(frozen=True)
class Recorded:
    """Models with recorded loss curves, one loss per step; the only parameter chooses the curve."""

    curves: list[list[float]]

    def draw(self, rng: np.random.Generator, count: int) -> list[dict[str, Any]]:
        """Draw models, none twice while there are others."""
        order = rng.permutation(len(self.curves)).tolist()
        return [{"curve": order[i % len(order)]} for i in range(count)]

    def suggest(self, trial: Any) -> dict[str, Any]:
        """Return the number of a curve; neighbours have nothing in common."""
        return {"curve": trial.suggest_categorical("curve", list(range(len(self.curves))))}

    def losses(self, parameters: dict[str, Any]) -> list[float]:
        """Return the chosen curve."""
        return self.curves[parameters["curve"]]


def recorded(
    curves: Sequence[curve_files.LossCurve], models: int, steps: int, rng: np.random.Generator
) -> Recorded:
    """Make one search of curves from different trainings.

    Noisy curves are left out, because which of them ends lowest is a matter of the last batch; if
    no other is left, it raises `CurveError`. The others keep their shape: squeezed to `steps`
    points, and scaled so that all start close to 1 and each ends at a level of its own.
    """
    smooth = [curve for curve in curve_files.fit_for_jobs(curves) if not curve.noisy]
    made = []
    for curve in curve_files.sample(smooth, models, rng):
        loss = resample(curve, steps)
        left = (loss - loss.min()) / (loss[0] - loss.min())
        first, last = rng.uniform(0.9, 1.1), rng.uniform(0.1, 0.6)
        made.append((last + (first - last) * left).tolist())
    return Recorded(made)
