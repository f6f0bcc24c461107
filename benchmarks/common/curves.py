"""Loss curves of files, and with as many points as a job has iterations."""

from __future__ import annotations

from collections.abc import Sequence

import click
import numpy as np

from dask_slaq.lab.simulation.workload import curves as curve_files
from dask_slaq.lab.simulation.workload.curves import LossCurve


def read(files: Sequence[str]) -> list[LossCurve]:
    """Read the files that were given to a command, which ends with a sentence if it cannot."""
    try:
        return curve_files.read_curves(files)
    except curve_files.CurveError as error:
        raise click.ClickException(str(error)) from error


def resample(curve: LossCurve, iterations: int) -> np.ndarray:
    """Return the loss at `iterations` evenly spaced points, the first and the last included.

    Fewer points than the curve has are picked from it, which keeps its shape and its noise; more
    are interpolated.
    """
    points = np.linspace(0, len(curve.loss) - 1, iterations)
    if iterations <= len(curve.loss):
        return curve.loss[np.round(points).astype(int)]
    return np.interp(points, np.arange(len(curve.loss)), curve.loss)
