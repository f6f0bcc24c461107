"""Workers that end together, as one job of a batch system."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from distributed.scheduler import WorkerState

#: Names of workers that one job of a batch system runs, as of dask-jobqueue: ``SLURMCluster-3-0``.
GROUPED = re.compile(r"(.*\d)-\d+")


def group_of(ws: WorkerState) -> tuple[str, str]:
    """Return what ends together: the machine and name of a batch job, or a worker by itself."""
    found = GROUPED.fullmatch(str(ws.name))
    return (ws.host, found[1]) if found else ("", ws.address)
