"""Self-describing Datasets with names and units for every variable, and rows of the table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

__all__ = ["NOT_STATED", "Row", "dataset", "label", "variable"]

NOT_STATED = "not stated"


@dataclass(frozen=True)
class Row:
    """One row of the table.

    Attributes
    ----------
    figure : str
        Figure of the paper.
    measured : str
        Description of the values.
    paper : str
        The paper's value as far as it is known here, or `NOT_STATED`.
    ours : dict of str to float
        Value by policy or method.
    unit : str
    setting : str
    """

    figure: str
    measured: str
    paper: str
    ours: dict[str, float]
    unit: str
    setting: str


def variable(dims: Sequence[str], values: Any, long_name: str, units: str) -> tuple[Any, ...]:
    """Make a variable or coordinate for `dataset`.

    Parameters
    ----------
    dims : sequence of str
    values : array_like
    long_name, units : str
    """
    return tuple(dims), np.asarray(values), {"long_name": long_name, "units": units}


def dataset(
    variables: Mapping[str, Any],
    coords: Mapping[str, Any],
    *,
    figure: str,
    title: str,
    shows: str,
    setting: str,
) -> xr.Dataset:
    """Make a Dataset that describes itself.

    Parameters
    ----------
    variables, coords : mapping
        Results of `variable` by name.
    figure : str
        Figure of the paper.
    title : str
        Title of the picture.
    shows : str
        What the paper's figure is assumed to show.
    setting : str
        Setting in which the values were measured.
    """
    attrs = {"figure": figure, "title": title, "paper_figure": shows, "setting": setting}
    return xr.Dataset(dict(variables), coords=dict(coords), attrs=attrs)


def label(array: xr.DataArray) -> str:
    """Return the label of an axis: the long name, with the unit if there is one."""
    units = array.attrs["units"]
    return array.attrs["long_name"] + ("" if units in ("", "1") else f" ({units})")
