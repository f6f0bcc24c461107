"""Ends of fits whose loops run in tasks on workers.

The client asks all workers of a run to end. Tasks that train together, one per worker, must end
after the same round, or the last ones would wait forever for the others. They run in lockstep:
none can be more than a round ahead. So the client first lets each task wait at its next round,
which tells how far it was (`hold`), and then names the round after which all end (`end`).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from distributed import Client

    from dask_slaq.adapters.observing.worker_reports import Address

logger = logging.getLogger(__name__)

#: Seconds for which a task waits for the round; then it trains on, since its client must be gone.
PATIENCE = 60.0
#: Number of runs that a process remembers.
REMEMBERED = 1000


@dataclass
class Gate:
    """State of one run on one worker.

    Attributes
    ----------
    passed : int
        Latest round that passed before the gate was held.
    held : bool
        Whether the next round waits for `end`.
    end : float or None
        Round with which the run ends; infinity if it does not.
    """

    passed: int = -1
    held: bool = False
    end: float | None = None


_changed = threading.Condition()
# By mailbox and worker: several workers may share this process.
_gates: OrderedDict[tuple[str, str | None], Gate] = OrderedDict()


def ends_with(address: Address, number: int) -> bool:
    """Return whether the run that reports to `address` ends with a round.

    Call it in a task, once per round. It returns at once unless the run is being stopped.

    Parameters
    ----------
    address : Address
        Address of the run's mailbox.
    number : int
        Number of the round, >= 0, the same on all workers of the run.
    """
    with _changed:
        gate = _gate(address.inbox, _worker_here())
        if not gate.held:
            gate.passed = number
            return False
        if not _changed.wait_for(lambda: gate.end is not None, PATIENCE):
            gate.end = math.inf
        return gate.end is not None and number >= gate.end


def is_stopping(address: Address) -> bool:
    """Return whether the run that reports to `address` was stopped. Call it in a task."""
    with _changed:
        return _gate(address.inbox, _worker_here()).held


def hold(inbox: str, dask_worker: Any = None) -> int:
    """Let the next round on a worker wait for `end`.

    Parameters
    ----------
    inbox : str
        Name of the run's mailbox.
    dask_worker : distributed.Worker, optional
        Passed by ``Client.run``; None for tasks outside workers.

    Returns
    -------
    int
        Latest round that passed; -1 if there was none.
    """
    with _changed:
        gate = _gate(inbox, getattr(dask_worker, "address", None))
        gate.held = True
        return gate.passed


def end(inbox: str, number: float, dask_worker: Any = None) -> None:
    """Name the round with which a run ends.

    Parameters
    ----------
    inbox : str
        Name of the run's mailbox.
    number : float
        Number of the round; infinity to train on.
    dask_worker : distributed.Worker, optional
        See `hold`.
    """
    with _changed:
        _gate(inbox, getattr(dask_worker, "address", None)).end = number
        _changed.notify_all()


async def end_on_workers(client: Client, inbox: str) -> None:
    """End a run on all workers after the same round. Never raises.

    Parameters
    ----------
    client : distributed.Client
        Client of the run; call this in its event loop.
    inbox : str
        Name of the run's mailbox.
    """
    number = math.inf
    try:
        passed = await client.run(hold, inbox, on_error="return")
        errors = [answer for answer in passed.values() if not isinstance(answer, int)]
        if errors:
            logger.warning("a fit on workers cannot be stopped and goes on: %r", errors[0])
        else:
            number = max(passed.values(), default=-1) + 1
    except Exception as error:
        logger.warning("a fit on workers cannot be stopped and goes on: %r", error)
    try:
        await client.run(end, inbox, number, on_error="ignore")
    except Exception as error:
        logger.warning("workers were not told when their fit ends: %r", error)


def _gate(inbox: str, worker: str | None) -> Gate:
    gate = _gates.setdefault((inbox, worker), Gate())
    if len(_gates) > REMEMBERED:
        _gates.popitem(last=False)
    return gate


def _worker_here() -> str | None:
    """Return the address of the worker that runs this task, or None outside a worker."""
    from distributed import get_worker

    try:
        address: str = get_worker().address
    except ValueError:
        return None
    return address
