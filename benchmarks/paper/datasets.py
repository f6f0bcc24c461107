"""Datasets whose every variable says what it is and in which unit, and rows read from them."""

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
    """One line of the table.

    Attributes
    ----------
    figure : str
        Of the paper.
    measured : str
        What the values are.
    paper : str
        Its number as far as it is known here, or `NOT_STATED`.
    ours : dict of str to float
        Value of each policy or method.
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
    """A variable or coordinate for `dataset`."""
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
    """A Dataset that says what it is.

    Parameters
    ----------
    variables, coords : mapping
        Of `variable`.
    figure : str
        Of the paper.
    title : str
        Of the picture.
    shows : str
        What the figure of the paper is taken to be.
    setting : str
        In which this one was measured.
    """
    attrs = {"figure": figure, "title": title, "paper_figure": shows, "setting": setting}
    return xr.Dataset(dict(variables), coords=dict(coords), attrs=attrs)


def label(array: xr.DataArray) -> str:
    """Label of an axis: the long name, and the unit if there is one."""
    units = array.attrs["units"]
    return array.attrs["long_name"] + ("" if units in ("", "1") else f" ({units})")
