"""What the dispatcher has to know of the cluster: its workers, and inputs of tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from dask_slaq.core.dispatch.job_queue import Handover, JobQueue
from dask_slaq.core.dispatch.ready import TaskConstraints
from dask_slaq.core.dispatch.slots import Slots


class Pinned(NamedTuple):
    """Tasks that start together, each on its own worker, with the threads that each uses there."""

    members: Sequence[tuple[Handover, str, float]]


class Inputs(NamedTuple):
    """Inputs of a task: seconds to fetch all; who has some; seconds to fetch the rest there."""

    seconds: float
    at: Collection[str]
    to_fetch: Callable[[str], float]


class Cluster(Protocol):
    """What a choice has to know of the cluster."""

    @property
    def threads(self) -> int:
        """Threads of all workers."""

    @property
    def workers(self) -> int:
        """Number of workers that may get tasks."""

    def slots(self, address: str) -> Slots | None:
        """Return the slots of a worker that may get tasks, as of now; None for others."""

    def busy(self) -> Iterable[Slots]:
        """Return the slots of workers with tasks of jobs."""

    def idle(self, constraints: Collection[TaskConstraints]) -> tuple[int, int]:
        """Return the free threads of workers that meet any constraints, and all of theirs."""

    def occupancy(self, address: str) -> float:
        """Return the seconds that all tasks on a worker take, as Dask guesses."""

    def inputs(self, task: Handover) -> Inputs:
        """Return what it takes to move the inputs of a task."""

    def free(self, label: str | None) -> float:
        """Return how many more tasks of a label may run."""

    def runs(self, label: str) -> bool:
        """Return whether a task of a label runs."""

    def pinned(self, now: float) -> Mapping[JobQueue, Sequence[Pinned]]:
        """Return the gangs of pinned tasks that are complete, by job."""
