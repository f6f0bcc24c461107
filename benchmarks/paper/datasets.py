"""Self-describing Datasets with names and units for every variable, and rows of the table."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr


@dataclass(frozen=True)
class Row:
    """One row of the table. `Figure.rows` sets its figure and setting."""

    measured: str  # what the values are
    paper: str  # what the paper states
    values: dict[str, float]  # by policy or method
    unit: str = ""
    differs: str = ""  # where ours differs from the paper, in one sentence
    figure: str = ""  # number in the paper
    setting: str = ""

    @property
    def line(self) -> str:
        """The values in words."""
        unit = f" {self.unit}" if self.unit else ""
        ours = ", ".join(f"{name} {short(value)}{unit}" for name, value in self.values.items())
        return f"{self.measured}: {self.paper} in the paper; {ours}"


def short(value: float) -> str:
    """Format a number with three digits, and nan as a dash."""
    return "-" if math.isnan(value) else f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def variable(dims: Sequence[str], values: Any, long_name: str, units: str) -> tuple[Any, ...]:
    """Make a variable or coordinate for `dataset`."""
    return tuple(dims), np.asarray(values), {"long_name": long_name, "units": units}


def dataset(
    variables: Mapping[str, Any],
    coords: Mapping[str, tuple[Any, str, str]],
    *,
    figure: str,
    title: str,
    setting: str,
) -> xr.Dataset:
    """Make a Dataset that describes itself, from results of `variable` by name.

    `coords` are values along each dimension, their long name and their unit. `figure` is the
    paper's number.
    """
    attrs = {"figure": figure, "title": title, "setting": setting}
    along = {name: variable((name,), *coord) for name, coord in coords.items()}
    return xr.Dataset(dict(variables), coords=along, attrs=attrs)


def by_name(array: xr.DataArray) -> dict[str, float]:
    """Return the values of an array with one dimension by the names along it."""
    [dimension] = array.dims
    return dict(zip(map(str, array[dimension].values), array.values.tolist(), strict=True))


def label(array: xr.DataArray) -> str:
    """Return the label of an axis: the long name, with the unit if there is one."""
    units = array.attrs["units"]
    return array.attrs["long_name"] + ("" if units in ("", "1") else f" ({units})")
