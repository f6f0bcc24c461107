"""Parts of a job that are jobs within it, such as the models of a search."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from dask_slaq.client.connection import request
from dask_slaq.core.errors import DuplicateJob

if TYPE_CHECKING:
    from distributed import Client

#: Seconds after which a scheduler that does not answer is taken to know nothing of parts.
PATIENCE = 10.0
#: Seconds until a name that is taken is asked for again: that its last owner ended may be on its
#: way, as a client sends such messages every ten milliseconds.
AGAIN = (0.02, 0.05, 0.1)


class Parts:
    """Parts of a job, made by `divide`. Calls return at once; what they say comes in order.

    Attributes
    ----------
    names : list of str
        The jobs, in the order in which the parts were given.
    """

    def __init__(self, client: Client, job: str, names: list[str]) -> None:
        self.names = names
        self._client = client
        self._job = job

    def report(self, name: str, loss: float) -> None:
        """Report the loss of the next iteration of a part."""
        self._client._send_to_scheduler({"op": "slaq-report", "job": name, "loss": loss})

    def end(self, names: Collection[str]) -> None:
        """Say that these parts have ended."""
        message = {"op": "slaq-end-parts", "job": self._job, "parts": list(names)}
        self._client._send_to_scheduler(message)


async def divide(client: Client, job: str, parts: Sequence[str]) -> Parts:
    """Make parts of a job jobs within it, called ``job/part``.

    Raises
    ------
    SlaqError
        A name is taken, or the job does not run.
    TimeoutError
    """
    names = [f"{job}/{part}" for part in parts]
    for pause in AGAIN:
        try:
            return await _divide(client, job, names)
        except DuplicateJob:
            await asyncio.sleep(pause)
    return await _divide(client, job, names)


async def _divide(client: Client, job: str, names: list[str]) -> Parts:
    asked = request(client, "slaq_divide", job=job, parts=names, client=client.id)
    await asyncio.wait_for(asked, PATIENCE)
    return Parts(client, job, names)
