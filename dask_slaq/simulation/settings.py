"""Settings of a simulation, validated before anything runs."""

from __future__ import annotations

from dataclasses import dataclass

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import is_number
from dask_slaq.simulation.fluid import DISPATCH
from dask_slaq.simulation.workload import SCALINGS

__all__ = ["Settings"]

MOST_CORES, MOST_SECONDS = 10_000_000, 1e9
#: Allowed range of each number; None is not checked.
RANGES: dict[str, tuple[float, float]] = {
    "jobs": (1, 10_000_000),
    "cores": (1, MOST_CORES),
    "seeds": (1, 1_000_000),
    "interarrival": (0, 1e6),
    "noise": (0, 1e6),
    "move_pause": (0, 86_400),
    "max_cores": (1e-3, 1e9),
    "stragglers": (0, 1),
    "straggling": (1e-3, 1e6),
    "load": (1e-6, 1e6),
    "cores_per_gpu": (1e-3, 1e6),
    "gap": (0, 86_400),
    "epoch": (1e-3, 86_400),
}


@dataclass(frozen=True)
class Settings:
    """Settings of a simulation; the defaults are those of the paper's §6.2.

    `epoch`, `latest`, `floor` and `normalizer` are those of `Engine`.
    """

    #: Number of jobs per list, and of threads in the cluster.
    jobs: int = 160
    cores: int = 640
    #: Mean seconds between two arrivals; 0 for jobs that arrive all at once.
    interarrival: float = 15.0
    #: Number of job lists, and the seed of the first one.
    seeds: int = 6
    seed: int = 0
    #: Standard deviation of the noise on reports, as a fraction of the range of the curve.
    noise: float = 0.0
    #: True law of running times, one of `workload.SCALINGS`.
    scaling: str = "linear"
    #: Seconds for which a job computes nothing on a worker that it gained.
    move_pause: float = 0.0
    #: Most threads that any job can use.
    max_cores: float | None = None
    #: Fraction of the iterations that straggle, and the factor by which they take longer.
    stragglers: float = 0.0
    straggling: float = 4.0
    #: Core-seconds of work that arrive per core-second. By default jobs have the mean work that
    #: reproduces the paper's setting, whatever `interarrival` is.
    load: float | None = None
    #: Most threads that a job of a trace can use per GPU that it had in the trace.
    cores_per_gpu: float | None = None
    #: Seconds at which the number of cores changes, and the new numbers.
    capacity: tuple[tuple[float, int], ...] = ()
    #: Minimum seconds between two decisions; 0 to react to arrivals and ends immediately.
    gap: float = 0.0
    #: Rule that divides the threads between two decisions, see `fluid.DISPATCH`.
    dispatch: str = "shares"
    epoch: float = 3.0
    latest: float = 2.0
    floor: float = 0.75
    #: Whether jobs announce their number of iterations, as fits of libraries do.
    announced: bool = True
    normalizer: str = "range"

    def __post_init__(self) -> None:
        for name, allowed in (("scaling", SCALINGS), ("dispatch", DISPATCH)):
            if (chosen := getattr(self, name)) not in allowed:
                raise InvalidSetting(f"{name} must be one of {', '.join(allowed)}, not {chosen!r}")
        for name, (low, high) in RANGES.items():
            value = getattr(self, name)
            if value is not None and not (is_number(value) and low <= value <= high):
                raise InvalidSetting(f"{name} must be from {low:g} to {high:g}, not {value!r}")
        Engine(  # which checks its own
            "fair",
            epoch=self.epoch,
            latest=self.latest,
            floor=self.floor,
            normalizer=self.normalizer,
        )
        if self.load is not None and self.interarrival == 0:
            raise InvalidSetting("jobs that arrive all at once have no load: leave out one of both")
        times = [time for time, _ in self.capacity]
        if times != sorted(times) or not all(0 <= time <= MOST_SECONDS for time in times):
            raise InvalidSetting(
                f"the changes of capacity must be in order of time, from 0 to {MOST_SECONDS:g} s, "
                f"not at {times}"
            )
        if not all(1 <= cores <= MOST_CORES for _, cores in self.capacity):
            raise InvalidSetting(
                f"every change of capacity must leave at least 1 core, and {MOST_CORES} at most"
            )
