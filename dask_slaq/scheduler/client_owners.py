"""Owners of the clients of a scheduler, and of the tasks that they submit outside of jobs."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING

from distributed.comm.addressing import get_address_host

if TYPE_CHECKING:
    from distributed import Scheduler

#: Clients of which those that left are still known.
MOST_CLIENTS = 1000


@lru_cache(1000)  # called for each task outside of jobs
def _unknown_at(address: str) -> str:
    return f"unknown@{get_address_host(address)}"


class ClientOwners:
    """Owner of each client: of its last job, or as it said.

    `name_of` returns whom the certificate of a client names, None if that does not count. `settle`
    is called before the owner of a client changes.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        name_of: Callable[[str], str | None],
        settle: Callable[[], object],
    ) -> None:
        self._scheduler, self._name_of, self._settle = scheduler, name_of, settle
        self._owner: dict[str, str] = {}

    def introduce(self, client: str, owner: str) -> None:
        """Record the owner of a client that has opened no job."""
        if client not in self._owner:
            self.know(client, owner)

    def know(self, client: str, owner: str) -> None:
        """Record the owner of a job that a client opens."""
        if self._owner.get(client) != owner:
            self._settle()  # what it has used until now
        if len(self._owner) >= MOST_CLIENTS:
            for gone in self._owner.keys() - self._scheduler.clients.keys():
                del self._owner[gone]
        self._owner[client] = owner

    def named(self, client: str) -> str:
        """Return the owner of a client, empty if it has said none."""
        return self._name_of(client) or self._owner.get(client, "")

    def of(self, client: str) -> str:
        """Return the owner of a client's jobs; by its machine if the client has said none.

        Otherwise all notebooks together would be one owner, under one limit.
        """
        if owner := self.named(client):
            return owner
        comm = getattr(self._scheduler.client_comms.get(client), "comm", None)
        return "unknown" if comm is None else _unknown_at(comm.peer_address)
