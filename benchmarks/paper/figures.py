"""List of figures, with the functions that compute, draw and tabulate each."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import xarray as xr

from benchmarks.paper import costs, draw, forecasts, quality, training
from benchmarks.paper.datasets import Row
from benchmarks.paper.study import Study


class Figure(NamedTuple):
    """One figure: its number in the paper, and how it is computed, tabulated and drawn."""

    number: str
    data: Callable[[Study], xr.Dataset]
    table: Callable[[xr.Dataset], list[Row]]
    draw: Callable[[xr.Dataset], Any] | None

    def rows(self, data: xr.Dataset) -> list[Row]:
        """Return the rows of the table that the data of this figure make."""
        setting = data.attrs["setting"]
        return [replace(row, figure=self.number, setting=setting) for row in self.table(data)]


#: Figures in the order of the paper, and a table of our own. They run one at a time, since some
#: measure times. Figures 2 and 4 are diagrams.
FIGURES = (
    Figure("1", training.cumulative, training.cumulative_rows, draw.figure_1),
    Figure("3", quality.one_job, quality.one_job_rows, draw.figure_3),
    Figure("5", training.changes, training.changes_rows, draw.figure_5),
    Figure("6a", forecasts.traces, forecasts.traces_rows, draw.figure_6a),
    Figure("6b", forecasts.errors, forecasts.errors_rows, draw.figure_6b),
    Figure("7a", quality.losses, quality.losses_rows, draw.figure_7a),
    Figure("7b", quality.times, quality.times_rows, draw.figure_7b),
    Figure("8", quality.cores, quality.cores_rows, draw.figure_8),
    Figure("9", quality.contention, quality.contention_rows, draw.figure_9),
    Figure("10a", forecasts.by_algorithm, forecasts.by_algorithm_rows, draw.figure_10a),
    Figure("10b", costs.iterations, costs.iterations_rows, draw.figure_10b),
    Figure("10c", costs.decisions, costs.decisions_rows, draw.figure_10c),
    Figure("changes", quality.gains, quality.gains_rows, None),
)
