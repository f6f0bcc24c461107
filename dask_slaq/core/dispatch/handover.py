"""Way of one task from when it is ready until it leaves its worker."""

from __future__ import annotations

import enum
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dask_slaq.core.dispatch.constants import BETWEEN_MESSAGES
from dask_slaq.core.dispatch.ready import ANY, DurationEstimate, TaskConstraints

if TYPE_CHECKING:
    from dask_slaq.core.dispatch.job_queue import JobQueue
    from dask_slaq.core.dispatch.order import Key


class Way(enum.Enum):
    """How far a task is on its way to a worker."""

    WAITS, GOES, SENT = range(3)


@dataclass(slots=True, eq=False)
class Handover:
    """Task that waits, goes to the `worker` that was chosen for it, or was sent there.

    Ready tasks sort by `rank`, in the order in which Dask would send them: other tasks as soon as
    they are ready, while root tasks wait in its queue, whatever their priority. By priority alone,
    results would stay in memory until all root tasks before their users had run.
    """

    pool: JobQueue  # the job that it is charged to
    ts: Any  # the task
    like: DurationEstimate  # compute times of similar tasks
    # What it needs, while it waits
    rank: tuple[bool, tuple[Any, ...], int] = (False, (), 0)  # rootish, priority, a unique number
    rootish: bool = False  # whether Dask would queue it
    nbytes: int = 0  # of its inputs
    kind: TaskConstraints = ANY
    homes: tuple[str, ...] = ()  # workers with nearly all of its inputs; empty for any
    loads: bool = False  # whether it has no inputs
    direct: bool = False  # whether Dask alone decides where it runs, once it may
    way: Way = Way.WAITS
    # What was chosen
    worker: str = ""
    key: Key | None = None  # of its job, which is its turn; None if Dask has sent it
    why: str = ""
    workers: frozenset[str] | None = None  # where work stealing may move it; None for its job's
    order: tuple[Any, ...] = ()  # on the worker, lowest first; no two tasks have the same
    entitled: bool = False  # whether it takes tokens of the share of its job
    # Its run
    tag: float = 0.0  # service of its job when it was sent
    expected: float = math.inf  # compute time in seconds when it was sent; infinite if unknown
    soonest: float = math.inf  # compute time after which it may plausibly have ended
    needs: tuple[tuple[str, float], ...] = ()  # resources
    threads: float = 1.0
    ahead: float = 0.0  # core-seconds charged to its job so far
    start: float | None = None  # estimated, monotonic seconds; None while it waits on the worker
    lends: bool = False  # whether it waits for tasks that it has submitted
    moved: str = ""  # worker of which its job was granted a thread for it, outside the planned set
    # What the user gave the task, while it carries what we gave it
    restricted: Any = None  # restriction to workers that we gave it
    users: tuple[Any, bool] | None = None  # its restriction to workers, and whether that is loose
    priority: tuple[Any, ...] | None = None  # on the worker
    own_priority: Any = None  # what Dask gave it, while it has the other

    @property
    def ours(self) -> bool:
        """Whether the dispatcher chose its worker, and not Dask."""
        return self.key is not None

    def seconds_left(self, now: float) -> float:
        """Return the estimated seconds until the task ends; infinite if unknown.

        An overdue task is expected to take as long again as it is overdue.
        """
        if self.start is None or self.expected == math.inf:
            return self.expected
        elapsed = now - self.start
        if elapsed < self.expected:
            return max(self.soonest - elapsed, 0.0)
        return max(elapsed - self.expected - 2 * BETWEEN_MESSAGES, 0.0)
