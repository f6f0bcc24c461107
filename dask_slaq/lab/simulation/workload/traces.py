"""Traces of production clusters: arrivals and sizes of jobs.

A line of a file is `{"trace": name, "arrivals_s": [...], "duration_s": [...], "gpus": [...]}` with
one number per job. Traces have no losses: the seed draws the curve of each job.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dask_slaq.core.errors import SlaqError
from dask_slaq.core.jobs.arrays import FloatArray
from dask_slaq.lab.simulation.workload.curves import field, numbers, records
from dask_slaq.lab.simulation.workload.simulated_jobs import SimulatedJob

#: Range of each column of a trace. Arrivals may be Unix times.
ALLOWED = {"arrivals_s": (-1e10, 1e10), "duration_s": (1e-3, 1e9), "gpus": (1e-3, 1e6)}


class TraceError(SlaqError, ValueError):
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

    def first(self, jobs: int) -> Trace:
        """Return a trace of the first `jobs` jobs. Raises `TraceError` if there are fewer."""
        if jobs > len(self.arrivals):
            raise TraceError(
                f"{self.place}: trace {self.name!r} has {len(self.arrivals)} jobs, fewer than "
                f"{jobs}; ask for fewer"
            )
        columns = (self.arrivals, self.duration, self.gpus)
        return Trace(self.name, self.place, *(column[:jobs] for column in columns))

    @property
    def gap(self) -> float:
        """Mean seconds between two arrivals."""
        return float(self.arrivals[-1] - self.arrivals[0]) / max(len(self.arrivals) - 1, 1)


def read_trace(path: str | Path, name: str | None = None) -> Trace:
    """Read the trace with a `name`, required if there are several. Raises `TraceError`."""
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


def follow(
    jobs: Sequence[SimulatedJob],
    trace: Trace,
    *,
    interarrival: float,
    work: float,
    cores_per_gpu: float | None = None,
) -> list[SimulatedJob]:
    """Give copies of `jobs` the arrivals and relative sizes of the first jobs of a `trace`.

    Both are scaled to a mean `interarrival` and `work`. Raises `TraceError` if the trace has fewer
    jobs, or they arrive all at once.
    """
    trace = trace.first(len(jobs))
    if trace.gap == 0 and len(jobs) > 1 and interarrival > 0:
        raise TraceError(
            f"{trace.place}: the first {len(jobs)} jobs of trace {trace.name!r} arrive all at "
            "once: ask for more, or for a mean gap of 0 s"
        )
    arrivals = (trace.arrivals - trace.arrivals[0]) * (interarrival / (trace.gap or 1.0))
    size = trace.duration * trace.gpus
    size *= work / size.mean()
    cap = np.full(len(jobs), np.inf) if cores_per_gpu is None else cores_per_gpu * trace.gpus
    return [
        replace(job, arrival=float(a), work=float(s) / len(job.loss), cap=float(c))
        for job, a, s, c in zip(jobs, arrivals, size, cap, strict=True)
    ]


def about(trace: Trace, settings: Any) -> dict[str, Any]:
    """Describe a `trace` in a result: what it is, and what is assumed of its jobs."""
    caps = "without caps"
    if settings.cores_per_gpu is not None:
        caps = f"with at most {settings.cores_per_gpu:g} cores a GPU"
    return {
        "trace": {
            "name": trace.name,
            "place": trace.place,
            "interarrival": trace.gap,
            "duration_mean_s": float(trace.duration.mean()),
            "gpus_mean": float(trace.gpus.mean()),
        },
        "assumption": (
            f"Arrivals and sizes (duration x GPUs, {caps}) are those of the first "
            f"{len(trace.arrivals)} jobs of {trace.name}, its mean gap of {trace.gap:.4g} s scaled "
            f"to {settings.interarrival:g} s and its work to the load; it has no losses: which "
            "curve a job has is drawn by the seed."
        ),
    }
