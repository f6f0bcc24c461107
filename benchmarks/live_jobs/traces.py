"""Traces of production clusters: arrivals and sizes of jobs.

A line of a file is `{"trace": name, "arrivals_s": [...], "duration_s": [...], "gpus": [...]}` with
one number per job. Traces have no losses: the seed draws the curve of each job.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dask_slaq.simulation.workload.jsonl import field, numbers, records

FloatArray = npt.NDArray[np.float64]

#: Range of each column of a trace. Arrivals may be Unix times.
ALLOWED = {"arrivals_s": (-1e10, 1e10), "duration_s": (1e-3, 1e9), "gpus": (1e-3, 1e6)}


class TraceError(ValueError):
    """Error in a trace; the message names the file, the line and the problem."""


@dataclass(frozen=True)
class Trace:
    """Jobs of one trace in order of arrival. Arrays are (n_jobs,), times in seconds."""

    name: str
    #: File and line.
    place: str
    arrivals: FloatArray
    duration: FloatArray
    gpus: FloatArray

    @property
    def gap(self) -> float:
        """Mean seconds between two arrivals."""
        return float(self.arrivals[-1] - self.arrivals[0]) / max(len(self.arrivals) - 1, 1)


def read_trace(path: str | Path, name: str | None = None) -> Trace:
    """Read a trace from the file at `path`: that with a `name`, required if there are several.

    Raises `TraceError`, with file and line, if the file cannot be read or is empty, or a line is
    not a trace; with the names if not exactly one trace matches.
    """
    found = records(path, TraceError, _parse)
    if not found:
        raise TraceError(f"{path}: no trace in this file")
    chosen = found if name is None else [trace for trace in found if trace.name == name]
    if len(chosen) == 1:
        return chosen[0]
    if chosen and name is not None:
        both = " and ".join(trace.place for trace in chosen)
        raise TraceError(f"more than one trace is called {name!r}: {both}")
    there = ", ".join(trace.name for trace in found)
    what = f"no trace is called {name!r}" if name is not None else "name one of several traces"
    raise TraceError(f"{path}: {what}; there are: {there}")


def _parse(record: Any, place: str) -> Trace:
    """Make a trace from one decoded line. Raises ValueError if the line is not a trace."""
    if not isinstance(record, dict):
        raise ValueError(f"a trace is an object, not {record!r:.60}")
    name = field(record, "trace", str, "a name")
    arrivals, duration, gpus = (
        np.array(numbers(record, key, low, high), float) for key, (low, high) in ALLOWED.items()
    )
    if len({len(arrivals), len(duration), len(gpus)}) > 1:
        lengths = f"{len(arrivals)}, {len(duration)} and {len(gpus)}"
        raise ValueError(f"{', '.join(ALLOWED)} have {lengths} values; they need one a job")
    if not len(arrivals):
        raise ValueError("the trace is empty: 'arrivals_s' has no value")
    back = np.flatnonzero(np.diff(arrivals) < 0)
    if len(back):
        k = int(back[0]) + 1
        raise ValueError(
            f"arrivals out of order: arrivals_s[{k}] is {arrivals[k]:.17g}, before "
            f"arrivals_s[{k - 1}], which is {arrivals[k - 1]:.17g}"
        )
    return Trace(name, place, arrivals, duration, gpus)
