"""Which clients are in the processes of workers: only their graphs name tasks that submit them.

Any client may name any task. So the worker of that task is asked: it has the clients of its process
send a number back, each on its own stream. Nobody else knows the number.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from distributed.protocol import pickle

if TYPE_CHECKING:
    from distributed import Scheduler
    from distributed.comm.core import Comm

__all__ = ["INSIDE", "InsideClients"]

logger = logging.getLogger(__name__)

#: Stream message by which a client sends the number.
INSIDE = "slaq-inside"
#: Seconds for which a worker may take to answer, and numbers that are remembered.
PATIENCE, MOST_ASKED = 10.0, 1000


class InsideClients:
    """Connections of the clients in workers' processes. `until` waits a moment for a condition."""

    def __init__(
        self, scheduler: Scheduler, until: Callable[[Callable[[], object]], Awaitable[object]]
    ) -> None:
        self._scheduler, self._until = scheduler, until
        # Whether each connection is of a client in the process of a worker, by its address.
        self._known: WeakKeyDictionary[Comm, dict[str, bool]] = WeakKeyDictionary()
        self._asking: dict[tuple[Comm, str], asyncio.Task[bool]] = {}
        self._asked: OrderedDict[str, str] = OrderedDict()  # workers, by number

    def is_in(self, comm: Comm, worker: str) -> bool | None:
        """Return whether a connection is of a client in a worker's process; None if unknown."""
        return self._known.get(comm, {}).get(worker)

    def heard(self, comm: Comm, number: object) -> None:
        """Remember the worker in whose process the client of a connection is, by its number."""
        if isinstance(number, str) and (worker := self._asked.get(number)) is not None:
            self._known.setdefault(comm, {})[worker] = True

    def ask(self, comm: Comm, worker: str) -> Awaitable[bool]:
        """Find out, once, whether a connection is of a client in the process of a worker."""
        asking = self._asking.get((comm, worker))
        if asking is None:
            asking = self._asking[comm, worker] = asyncio.create_task(self._ask(comm, worker))
            asking.add_done_callback(lambda _: self._asking.pop((comm, worker)))
        return asyncio.shield(asking)

    async def _ask(self, comm: Comm, worker: str) -> bool:
        number = secrets.token_hex(16)
        self._asked[number] = worker
        while len(self._asked) > MOST_ASKED:
            self._asked.popitem(last=False)
        try:
            pickled: Any = pickle  # which has no types
            function, args = pickled.dumps(_answer()), pickled.dumps((number, INSIDE))
            ask = self._scheduler.rpc(worker).run(function=function, args=args)
            answer = await asyncio.wait_for(ask, PATIENCE)
            if answer["status"] != "OK":
                raise OSError(answer.get("text", "it failed"))
            await self._until(lambda: self.is_in(comm, worker))
        except (OSError, TimeoutError, asyncio.TimeoutError) as error:
            logger.warning("the worker %s did not tell which clients it has: %r", worker, error)
        if not self._known.setdefault(comm, {}).setdefault(worker, False):
            logger.warning(
                "a client at %s names a task at %s that has submitted its tasks, but is not there: "
                "they are its own, and not of the job of that task",
                *(comm.peer_address, worker),
            )
        return self._known[comm][worker]


def _answer() -> Callable[..., None]:
    """Return what a worker runs. It is pickled by value, as workers need not have this package."""

    def answer(number: str, operation: str, dask_worker: Any) -> None:
        from distributed import Client

        clients: list[Any] = list(Client._instances)
        for client in clients:
            # In its event loop only coroutines run, which name no task; but for its own client.
            inside = client is dask_worker._client or client.loop is not dask_worker.loop
            ours = client.scheduler is not None and client.status == "running"
            if inside and ours and client.scheduler.address == dask_worker.scheduler.address:
                client._send_to_scheduler({"op": operation, "number": number})

    return answer
