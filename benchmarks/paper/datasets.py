"""Self-describing Datasets with names and units for every variable, and rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["NOT_STATED", "Row", "by_name", "dataset", "label", "variable"]

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Row:
    """One row of the table."""

    figure: str
    measured: str  # what the values are
    paper: str  # the paper's value as far as it is known here, or `NOT_STATED`
    ours: dict[str, float]  # by policy or method
    unit: str
    setting: str


def variable(dims: Sequence[str], values: Any, long_name: str, units: str) -> tuple[Any, ...]:
    """Make a variable or coordinate for `dataset`."""
    return tuple(dims), np.asarray(values), {"long_name": long_name, "units": units}


def dataset(
    variables: Mapping[str, Any],
    coords: Mapping[str, tuple[Any, str, str]],
    *,
    figure: str,
    title: str,
    shows: str,
    setting: str,
) -> xr.Dataset:
    """Make a Dataset that describes itself, from results of `variable` by name.

    `coords` are values along each dimension, their long name and their unit. `figure` is the
    paper's; it is assumed to show what `shows` says.
    """
    attrs = {"figure": figure, "title": title, "paper_figure": shows, "setting": setting}
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
