"""Last states of models, which are keys in Dask's memory: who has them, and when they are freed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from time import time
from typing import Any

from distributed.scheduler import Scheduler, TaskState

from dask_slaq.scheduler.pools import TaskControl

logger = logging.getLogger(__name__)

#: Client that wants the keys of all states.
CLIENT = "slaq-states"


def remove_files(folder: str) -> None:
    """Remove the states of a search from its folder, if this machine can, and an empty folder."""
    try:
        import fsspec

        system, where = fsspec.core.url_to_fs(folder)
        for path in (*system.glob(f"{where}/*.state"), *system.glob(f"{where}/*.state.part")):
            system.rm_file(path)
        if system.isdir(where) and not system.ls(where):
            system.rmdir(where)
    except Exception:
        logger.warning("the states in %s could not be removed", folder, exc_info=True)


class States:
    """Last state of each model that has kept one, until the scheduler forgets its task.

    The next run of a task finds the names of its state in its annotations. Dask keeps a replica of
    a key only while a task needs it, so a second replica has a name of its own.
    """

    def __init__(self, scheduler: Scheduler, control: TaskControl) -> None:
        self._scheduler, self._control = scheduler, control
        self.names: dict[Any, list[str]] = {}  # by key of the task
        self._pinned: set[Any] = set()  # keys of tasks from whose states others go on

    def keep(self, ts: TaskState, worker: str, name: str, nbytes: int, peer: str) -> None:
        """Record the state `name` of a task on its worker, and a replica that goes to a peer."""
        before = self.names.pop(ts.key, [])
        names, workers = [name], self._scheduler.workers
        self._learn(name, worker, nbytes)
        if peer in workers and peer != worker:
            names.append(f"{name}-2")
            self._learn(names[1], peer, nbytes)
        else:  # an earlier state there is better than none
            names += before[1:]
        self.names[ts.key] = names
        self._control.annotate(ts, "slaq_state", names)
        release(self._scheduler, set(before) - set(names), CLIENT)

    def pin(self, key: Any) -> list[str]:
        """Return the names of the state of a task, which is not freed with it from now on."""
        self._pinned.add(key)
        return self.names.get(key, [])

    def unpin(self, keys: Iterable[Any]) -> None:
        """Free the states of tasks that were pinned, and are forgotten."""
        self._pinned.difference_update(keys)
        for key in [key for key in self.names if key not in self._scheduler.tasks]:
            self.free(key)

    def free(self, key: Any) -> None:
        """Free the state of a task, unless others go on from it."""
        if key not in self._pinned:
            release(self._scheduler, self.names.pop(key, ()), CLIENT)

    def free_forgotten(self) -> None:
        """Free the states of tasks that are forgotten, now and every few seconds.

        No hook will tell of them.
        """
        self.unpin(list(self._pinned))
        if self.names:
            asyncio.get_running_loop().call_later(5.0, self.free_forgotten)

    def at(self, key: Any) -> set[str]:
        """Return the workers that have the state of a task."""
        tasks = (self._scheduler.tasks.get(name) for name in self.names.get(key, ()))
        return {ws.address for ts in tasks if ts is not None for ws in ts.who_has or ()}

    def _learn(self, name: str, worker: str, nbytes: int) -> None:
        self._scheduler.update_data(who_has={name: [worker]}, nbytes={name: nbytes}, client=CLIENT)


def release(scheduler: Scheduler, names: Iterable[str], client: str) -> None:
    """Free keys that a client of ours wants, and forget it once it wants none."""
    known = [name for name in names if name in scheduler.tasks]
    if known and client in scheduler.clients:
        scheduler.client_releases_keys(known, client, f"{client}-{time()}")
    cs = scheduler.clients.get(client)
    if cs is not None and not cs.wants_what:
        del scheduler.clients[client]
