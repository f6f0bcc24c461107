"""Last states of jobs' driver loops, from which the same program goes on when it is started again.

They are keys in Dask's memory that the scheduler wants, so they outlive the client that kept them.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import itemgetter
from time import time
from typing import TYPE_CHECKING

from dask_slaq.core.errors import InvalidSetting
from dask_slaq.core.fairly import oldest_of_most
from dask_slaq.core.settings import shown

if TYPE_CHECKING:
    from distributed.scheduler import Scheduler

__all__ = ["JobStates", "release"]

#: Client that wants the keys, and how their names begin.
CLIENT, PREFIX = "slaq-job-states", "slaq-job-state"
#: Jobs whose states are kept, the last ones; first those go of the owner that has most.
MOST = 100


class JobStates:
    """Names of the last state of each job, by owner and name, until it is done."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._names: dict[tuple[str, str], list[str]] = {}

    def __len__(self) -> int:
        return len(self._names)

    def keep(self, owner: str, job: str, names: object) -> None:
        """Keep the keys of a job's state instead of those before. Raises `InvalidSetting`."""
        known = self._scheduler.tasks
        if not (
            isinstance(names, list | tuple)
            and 1 <= len(names) <= 2
            and all(isinstance(n, str) and n.startswith(PREFIX) and n in known for n in names)
        ):
            raise InvalidSetting(f"a state is one or two keys on workers, not {shown(names)}")
        before = self._names.pop((owner, job), [])
        self._names[owner, job] = list(names)
        self._scheduler.client_desires_keys(list(names), CLIENT)
        release(self._scheduler, before, CLIENT)
        while len(self._names) > MOST:
            self.free(*oldest_of_most(self._names, itemgetter(0)))

    def of(self, owner: str, job: str) -> list[str]:
        """Return the keys of a job's state that workers have."""
        known = self._scheduler.tasks
        names = self._names.get((owner, job), ())
        return [name for name in names if name in known and known[name].who_has]

    def free(self, owner: str, job: str) -> None:
        """Free the state of a job."""
        release(self._scheduler, self._names.pop((owner, job), ()), CLIENT)


def release(scheduler: Scheduler, names: Iterable[str], client: str) -> None:
    """Free keys that a client of ours wants, and forget it once it wants none."""
    known = [name for name in names if name in scheduler.tasks]
    if known and client in scheduler.clients:
        scheduler.client_releases_keys(known, client, f"{client}-{time()}")
    cs = scheduler.clients.get(client)
    if cs is not None and not cs.wants_what:
        del scheduler.clients[client]
