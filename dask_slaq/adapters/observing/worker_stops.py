"""Ends of fits whose loops run in tasks on workers."""

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

# Tasks that train together, one per worker, must end after the same round, or the last ones would
# wait forever for the others. They run in lockstep: none can be more than a round ahead. So the
# client first lets each task wait at its next round, which tells how far it was (`hold`), and then
# names the round after which all end (`end`).


@dataclass
class Gate:
    """State of one run on one worker."""

    #: Latest round that passed before the gate was held.
    passed: int = -1
    #: Whether the next round waits for `end`.
    held: bool = False
    #: Round with which the run ends; infinity if it does not.
    end: float | None = None


_changed = threading.Condition()
# By mailbox and worker: several workers may share this process.
_gates: OrderedDict[tuple[str, str | None], Gate] = OrderedDict()


def ends_with(address: Address, number: int) -> bool:
    """Return whether the run that reports to `address` ends with round `number`, counted from 0.

    Call it in a task, once per round. It returns at once unless the run is being stopped.
    """
    with _changed:
        gate = _gate(address.inbox, worker_here())
        if not gate.held:
            gate.passed = number
            return False
        if not _changed.wait_for(lambda: gate.end is not None, PATIENCE):
            gate.end = math.inf
        return gate.end is not None and number >= gate.end


def is_stopping(address: Address) -> bool:
    """Return whether the run that reports to `address` was stopped. Call it in a task."""
    with _changed:
        return _gate(address.inbox, worker_here()).held


def hold(inbox: str, dask_worker: Any = None) -> int:
    """Let the next round on a worker wait for `end`; return the latest round that passed, or -1.

    ``Client.run`` passes `dask_worker`. It is None for tasks outside workers.
    """
    with _changed:
        gate = _gate(inbox, dask_worker)
        gate.held = True
        return gate.passed


def end(inbox: str, number: float, dask_worker: Any = None) -> None:
    """Name the round with which a run ends, infinity to train on. See `hold`."""
    with _changed:
        _gate(inbox, dask_worker).end = number
        _changed.notify_all()


async def end_on_workers(client: Client, inbox: str) -> None:
    """End a run on all workers after the same round, in its client's event loop. Never raises."""
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


def _gate(inbox: str, worker: Any) -> Gate:
    """Return the gate of a run on a worker, or outside workers if that is None."""
    gate = _gates.setdefault((inbox, worker and worker.address), Gate())
    if len(_gates) > REMEMBERED:
        _gates.popitem(last=False)
    return gate


def worker_here() -> Any:
    """Return the worker that runs this task, or None outside a worker."""
    from distributed import get_worker

    try:
        return get_worker()
    except ValueError:
        return None
