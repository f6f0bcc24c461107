"""Workers as people see them: how much longer tasks take there than on a median worker."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.scheduler import WorkerState

    from dask_slaq.core.runtime import Known, WorkerSpeeds

#: Standard errors of the middle 80 % of a normal distribution.
BAND = 1.28


def workers_of(scheduler: Scheduler, speeds: WorkerSpeeds) -> dict[str, dict[str, Any]]:
    """Return what is known of each worker, by address.

    ``factor`` is what is used: by how much longer tasks take there, 1 while it is not sure that
    they do. ``estimate`` is the best guess, and ``low`` to ``high`` its 80 % band; they are None
    while nothing is known. ``kinds`` has the factors of kinds of task that differ from the others.
    """
    kinds: dict[str, dict[str, float]] = {}
    for (address, kind), known in speeds.kinds.items():
        kinds.setdefault(address, {})[kind] = known.factor
    return {
        address: {
            "name": str(ws.name),
            "host": ws.host,
            "threads": ws.nthreads,
            **_of(speeds.workers.get(address)),
            "kinds": kinds.get(address, {}),
        }
        for address, ws in scheduler.workers.items()
    }


def _of(known: Known | None) -> dict[str, float | None]:
    if known is None:
        return {"factor": 1.0, "estimate": None, "low": None, "high": None}
    width = math.exp(BAND * known.error)
    return {
        "factor": known.factor,
        "estimate": known.estimate,
        "low": known.estimate / width,
        "high": known.estimate * width,
    }


def speeds_in_words(workers: Iterable[WorkerState], speeds: WorkerSpeeds) -> str:
    """Return how many workers surely differ from the others."""
    factors = [speeds.factor(ws.address) for ws in workers]
    slower, faster = sum(f > 1 for f in factors), sum(f < 1 for f in factors)
    some = len({address for address, _ in speeds.kinds})
    parts = [(slower, "slower"), (faster, "faster"), (some, "unlike for some kinds of task")]
    return "workers: " + ", ".join(f"{count} {what}" for count, what in parts if count)
