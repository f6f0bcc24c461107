"""List of figures, with the functions that compute, draw and tabulate each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import xarray as xr

from benchmarks.paper import decisions, draw, forecasts, quality, sweeps
from benchmarks.paper.datasets import Row
from benchmarks.paper.study import Study

__all__ = ["FIGURES", "Figure"]


@dataclass(frozen=True)
class Figure:
    """One figure: how its Dataset is computed, drawn, if at all, and tabulated."""

    name: str  # of its files
    data: Callable[[Study], xr.Dataset]
    rows: Callable[[xr.Dataset], list[Row]]
    draw: Callable[[xr.Dataset], Any] | None


#: Figures in the order of the paper. They run one at a time, since some measure times.
FIGURES = (
    Figure("figure-6", forecasts.errors, forecasts.errors_rows, draw.figure_6),
    Figure("figure-7a", quality.losses, quality.losses_rows, draw.figure_7a),
    Figure("figure-7b", quality.times, quality.times_rows, draw.figure_7b),
    Figure("figure-7-measures", quality.measures, quality.measures_rows, None),
    Figure("figure-9", sweeps.contention, sweeps.contention_rows, draw.figure_9),
    Figure("figure-10b", decisions.decisions, decisions.decisions_rows, draw.figure_10b),
    Figure("figure-10c", sweeps.moves, sweeps.moves_rows, draw.figure_10c),
)
