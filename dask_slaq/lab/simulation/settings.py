"""Settings of a simulation: the one table that `simulate` and its command follow."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.settings import (
    NORMALIZERS,
    RUNTIMES,
    check_engine_settings,
    is_number,
    require,
)
from dask_slaq.lab.simulation.workload import SCALINGS


def _setting(default: Any, about: str, *allowed: Any, unset: str = "") -> Any:
    """Return the row of a setting: what it is, its range or its choices, and what None means.

    Without `allowed`, text and range are those of the argument of `Engine`.
    """
    row = {"about": about, "allowed": allowed, "unset": unset}
    return field(default=default, metadata=row)


@dataclass(frozen=True)
class Settings:
    """Settings of a simulation; the defaults are those of the paper's §6.2. See `_setting`."""

    cores_per_gpu: float | None = _setting(
        None,
        "Threads that a job of a trace can use at most for each GPU that it had.",
        *(1e-3, 1e6),
        unset="no cap",
    )
    jobs: int = _setting(160, "Jobs of a list.", 1, 10_000_000)
    cores: int = _setting(640, "Threads of the cluster.", 1, 10_000_000)
    interarrival: float = _setting(15.0, "Mean seconds between two arrivals.", 0, 1e6)
    seeds: int = _setting(6, "Lists of jobs.", 1, 1_000_000)
    seed: int = _setting(0, "Seed of the first one.", 0, 2**63)
    load: float | None = _setting(
        None,
        "Core-seconds that arrive in a core-second. If left out, jobs are as large at every "
        "--interarrival.",
        *(1e-6, 1e6),
        unset="the work of the paper's section 6.2",
    )
    noise: float = _setting(
        0.0, "Standard deviation of the noise on reports, in ranges of the curve.", 0, 1e6
    )
    scaling: str = _setting("linear", "True running times of iterations on N threads.", *SCALINGS)
    max_cores: float | None = _setting(None, "Threads of any one job at most.", 1e-3, 1e9)
    move_pause: float = _setting(
        0.0, "Seconds in which a job computes nothing on a worker that it gained.", 0, 86_400
    )
    epoch: float = _setting(3.0, "Seconds between two decisions.", 1e-3, 86_400)
    gap: float = _setting(
        0.0,
        "Least seconds between two decisions; 0 to react to arrivals and ends at once.",
        *(0, 86_400),
    )
    max_slowdown: float = _setting(
        2.0,
        "Factor of its fair time at which a job of known length ends at the latest; inf for none.",
    )
    floor: float = _setting(
        0.75, "Part of its fair share that a job of unknown length keeps over time.", 0, 1
    )
    announced: bool = _setting(
        True, "Whether jobs announce their number of iterations, as fits of libraries do."
    )
    normalizer: str = _setting("range", "What losses are divided by.", *NORMALIZERS)
    runtime: str = _setting("observed", "What the engine assumes of running times.", *RUNTIMES)
    predictor: str = _setting("default", "Forecasts of losses.", "default", "paper")

    def __post_init__(self) -> None:
        for row in fields(self):
            value, allowed = getattr(self, row.name), row.metadata["allowed"]
            if not allowed or value is None:
                continue
            if isinstance(row.default, str):
                require(row.name, value, value in allowed, f"one of {', '.join(allowed)}")
            else:
                low, high = allowed
                ok = is_number(value) and low <= value <= high
                require(row.name, value, ok, f"from {low:g} to {high:g}")
        check_engine_settings(
            *(
                self.epoch,
                self.normalizer,
                self.floor,
                self.move_pause,
                self.max_slowdown,
                self.runtime,
            )
        )
        if self.load is not None and self.interarrival == 0:
            raise InvalidSetting("jobs that arrive all at once have no load: leave out one of both")
