"""States of driver loops: `Job.keep` puts them on workers, and the next program finds them."""

from __future__ import annotations

import asyncio
import logging
import uuid
from time import monotonic
from typing import TYPE_CHECKING, Any

from distributed.client import Future

from dask_slaq.client.connection import request
from dask_slaq.core.task_reports import Iterations
from dask_slaq.worker import KEEP, KEEPING, Kept, freeze

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["DriverState"]

logger = logging.getLogger(__name__)

#: How the names of keys begin, as the scheduler expects it.
PREFIX = "slaq-job-state"
#: Seconds after which a transfer is given up.
PATIENCE = 60.0


class DriverState:
    """State of a job's loop in one block of it."""

    def __init__(self, job: str, run: str) -> None:
        self._known = {"name": job, "run": run}
        self._due = 0.0

    async def keep(self, client: Client, state: Any) -> bool:
        """Keep a state unless one was kept a moment ago; see `Job.keep`. Never raises."""
        begin = monotonic()
        if begin < self._due:
            return False
        try:
            workers = await client.scheduler.ncores_running()
            if not workers:
                return False
            kept = freeze(state, 0, Iterations(), None, copy=True)
            name = f"{PREFIX}-{self._known['name']}-{uuid.uuid4().hex}"
            # Dask keeps a replica only while a task needs it: the second has a name of its own.
            names = [name, f"{name}-2"][: len(workers)]
            futures = await asyncio.wait_for(
                client.scatter(dict.fromkeys(names, kept), hash=False, asynchronous=True), PATIENCE
            )
            await request(client, "slaq_keep", **self._known, keys=names)
            for future in futures.values():
                future.release()
        except Exception:
            logger.exception(
                "the state of job %s was not kept; the last one counts", self._known["name"]
            )
            self._due = monotonic() + PATIENCE
            return False
        now = monotonic()
        self._due = now + max(KEEP, (now - begin) / KEEPING)
        return True

    async def find(self, client: Client) -> Any:
        """Return the last state that was kept under the job's name; None if there is none."""
        for name in await request(client, "slaq_kept", **self._known):
            future = Future(name, client)
            client._send_to_scheduler(
                {"op": "client-desires-keys", "keys": [name], "client": client.id}
            )
            try:
                found = await asyncio.wait_for(client.gather([future], asynchronous=True), PATIENCE)
            except Exception:
                logger.warning("a state of job %s is lost", self._known["name"], exc_info=True)
                continue
            finally:
                future.release()
            if isinstance(found[0], Kept):
                return found[0].thaw(copy=True)
        return None
