"""Settings of a simulation, validated before anything runs."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_number
from dask_slaq.simulation.workload import SCALINGS


def _between(low: float, high: float, default: Any) -> Any:
    """Return a number in [low, high], with a default; None is not checked."""
    return field(default=default, metadata={"range": (low, high)})


@dataclass(frozen=True)
class Settings:
    """Settings of a simulation; the defaults are those of the paper's §6.2."""

    #: Number of jobs per list, and of threads in the cluster.
    jobs: int = _between(1, 10_000_000, 160)
    cores: int = _between(1, 10_000_000, 640)
    #: Mean seconds between two arrivals; 0 for jobs that arrive all at once.
    interarrival: float = _between(0, 1e6, 15.0)
    #: Number of job lists, and the seed of the first one.
    seeds: int = _between(1, 1_000_000, 6)
    seed: int = 0
    #: Standard deviation of the noise on reports, as a fraction of the range of the curve.
    noise: float = _between(0, 1e6, 0.0)
    #: True law of running times, one of `workload.SCALINGS`.
    scaling: str = "linear"
    #: Seconds for which a job computes nothing on a worker that it gained.
    move_pause: float = _between(0, 86_400, 0.0)
    #: Most threads that any job can use.
    max_cores: float | None = _between(1e-3, 1e9, None)
    #: Core-seconds of work that arrive per core-second. By default jobs have the mean work that
    #: reproduces the paper's setting, whatever `interarrival` is.
    load: float | None = _between(1e-6, 1e6, None)
    #: Most threads that a job of a trace can use per GPU that it had in the trace.
    cores_per_gpu: float | None = _between(1e-3, 1e6, None)
    #: Minimum seconds between two decisions; 0 to react to arrivals and ends immediately.
    gap: float = _between(0, 86_400, 0.0)
    #: See `Engine`.
    epoch: float = _between(1e-3, 86_400, 3.0)
    latest: float = 2.0
    floor: float = 0.75
    normalizer: str = "range"
    #: Whether jobs announce their number of iterations, as fits of libraries do.
    announced: bool = True

    def __post_init__(self) -> None:
        if self.scaling not in SCALINGS:
            allowed = ", ".join(SCALINGS)
            raise InvalidSetting(f"scaling must be one of {allowed}, not {self.scaling!r}")
        for row in fields(self):
            value = getattr(self, row.name)
            if not row.metadata or value is None:
                continue
            low, high = row.metadata["range"]
            if not (is_number(value) and low <= value <= high):
                raise InvalidSetting(f"{row.name} must be from {low:g} to {high:g}, not {value!r}")
        Engine(  # which checks its own
            "fair",
            epoch=self.epoch,
            latest=self.latest,
            floor=self.floor,
            normalizer=self.normalizer,
        )
        if self.load is not None and self.interarrival == 0:
            raise InvalidSetting("jobs that arrive all at once have no load: leave out one of both")
