"""What is simulated; what is wrong with it is said before anything runs."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dask_slaq.core.engine import Engine
from dask_slaq.core.errors import InvalidSetting
from dask_slaq.simulation.dispatch import DISPATCH
from dask_slaq.simulation.laws import SCALINGS

__all__ = ["Settings"]


@dataclass(frozen=True)
class Settings:
    """What is simulated; the defaults are those of the paper's §6.2.

    Attributes
    ----------
    jobs, cores : int
    interarrival : float
        Mean seconds between two arrivals.
    seeds, seed : int
        How many lists of jobs, and the seed of the first.
    noise : float
        Standard deviation of the noise on reports, in ranges of the curve.
    scaling : str
        True law of running times, one of `laws.SCALINGS`.
    move_pause : float
        Seconds in which a job computes nothing on a worker that it gained.
    max_cores : float, optional
        Threads that any one job can use at most.
    stragglers, straggling : float
        Share of the iterations that take `straggling` times as long.
    load : float, optional
        Core-seconds that arrive in a core-second; by default jobs have the work that makes the
        paper's setting, whatever `interarrival` is.
    cores_per_gpu : float, optional
        Of jobs of a trace: threads that a job can use at most for each GPU that it had there.
    capacity : tuple of (seconds, cores)
        Changes of the number of cores.
    gap : float
        Least seconds between two decisions; 0 to react at once to arrivals and ends.
    dispatch : {"shares", "index"}
        Who has the threads between two decisions, see `dispatch.DISPATCH`.
    epoch, floor, normalizer
        As of `Engine`.
    """

    jobs: int = 160
    cores: int = 640
    interarrival: float = 15.0
    seeds: int = 6
    seed: int = 0
    noise: float = 0.0
    scaling: str = "linear"
    move_pause: float = 0.0
    max_cores: float | None = None
    stragglers: float = 0.0
    straggling: float = 4.0
    load: float | None = None
    cores_per_gpu: float | None = None
    capacity: tuple[tuple[float, int], ...] = ()
    gap: float = 0.0
    dispatch: str = "shares"
    epoch: float = 3.0
    floor: float = 0.5
    normalizer: str = "range"

    def __post_init__(self) -> None:
        Engine("fair", epoch=self.epoch, floor=self.floor, normalizer=self.normalizer)
        if self.scaling not in SCALINGS:
            allowed = ", ".join(SCALINGS)
            raise InvalidSetting(f"scaling must be one of {allowed}, not {self.scaling!r}")
        if self.dispatch not in DISPATCH:
            allowed = ", ".join(DISPATCH)
            raise InvalidSetting(f"dispatch must be one of {allowed}, not {self.dispatch!r}")
        for name in ("jobs", "cores", "seeds"):
            if getattr(self, name) < 1:
                raise InvalidSetting(f"{name} must be at least 1, not {getattr(self, name)!r}")
        for name in ("interarrival", "noise", "move_pause", "stragglers", "gap"):
            value = getattr(self, name)
            if not (value >= 0 and math.isfinite(value)):
                raise InvalidSetting(f"{name} must be a finite number >= 0, not {value!r}")
        for name in ("max_cores", "load", "straggling", "cores_per_gpu"):
            value = getattr(self, name)
            if value is not None and not (value > 0 and math.isfinite(value)):
                raise InvalidSetting(f"{name} must be a finite number > 0, not {value!r}")
        if self.load is not None and self.interarrival == 0:
            raise InvalidSetting("jobs that arrive all at once have no load: leave out one of both")
        times = [time for time, _ in self.capacity]
        if times != sorted(times) or any(time < 0 for time in times):
            raise InvalidSetting(
                f"the changes of capacity must be in order of time, not at {times}"
            )
        if any(cores < 1 for _, cores in self.capacity):
            raise InvalidSetting("every change of capacity must leave at least 1 core")
